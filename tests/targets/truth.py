"""The program of truth.c in Python, whose work is done by libraries: Python 3.11 has no names for
its own functions, so each kind of work is identified by the binary that does it.

usage: truth.py THREADS MILLISECONDS      (of CPU time of each thread)
"""
import _hashlib
import bz2
import hashlib
import json.encoder
import lzma
import os
import random
import sys
import threading
import time
import zlib

generator = random.Random(1)
TEXT = "".join(generator.choice("etaoin shrdlu") for _ in range(16384))
DATA = TEXT.encode()
# Each takes long enough that the interpreter's time between them is negligible.
LONG_TEXT, LONG_DATA, LONGEST_DATA = TEXT * 3, DATA * 8, DATA * 32


def libcrypto():
    hashlib.sha256(LONGEST_DATA).digest()


def libz():
    zlib.compress(LONG_DATA)


def libbz2():
    bz2.compress(DATA, 1)


def liblzma():
    lzma.compress(DATA, preset=0)


def json_encoder():
    for _ in range(5):
        json.encoder.c_encode_basestring_ascii(LONG_TEXT)



def name(module, library):
    """A part of the name of Python's module, which also waits for the other threads, or of the
    library if the module is a part of Python itself."""
    return f"{module.__name__}.cpython" if getattr(module, "__file__", None) else library


# A part of a binary's name, the function, and its percent of a cycle (100 ms on average).
KINDS = [
    (name(_hashlib, "libcrypto.so"), libcrypto, 35),
    (name(zlib, "libz.so"), libz, 25),
    ("bz2", libbz2, 20),
    ("lzma", liblzma, 12),
    ("json.cpython", json_encoder, 8),
]


def spin(function, quota):
    """Works until this thread has used the quota of CPU time; returns the time used."""
    start = time.thread_time_ns()
    while True:
        function()
        used = time.thread_time_ns() - start
        if used >= quota:
            return used


def work(seed, quota, used):
    """Cycles of all functions, in a random order and for a random time."""
    generator = random.Random(seed)
    order = list(range(len(KINDS)))
    done = 0
    while done < quota:
        generator.shuffle(order)
        for kind in order:
            # From half to one and a half of its part.
            part = KINDS[kind][2] * (500_000 + generator.randrange(1_000_000))
            spent = spin(KINDS[kind][1], part)
            used[kind] += spent
            done += spent


def main():
    threads, quota = int(sys.argv[1]), int(sys.argv[2]) * 1_000_000
    for _, function, _ in KINDS:
        function()
    print("ready", flush=True)
    sys.stdin.read()
    process = time.process_time_ns()
    used = [[0] * len(KINDS) for _ in range(threads)]
    others = [
        threading.Thread(target=work, args=(i + 1, quota, used[i])) for i in range(1, threads)
    ]
    for thread in others:
        thread.start()
    work(1, quota, used[0])
    for thread in others:
        thread.join()
    process = time.process_time_ns() - process
    for kind, (binary, _, _) in enumerate(KINDS):
        print(binary, sum(one[kind] for one in used))
    # The end of the interpreter is not measured.
    print("process", process, flush=True)
    os._exit(0)


main()
