"""Threads that wait in known stacks. Writes them, innermost frame first, and then waits for ever:

    thread THREAD-POINTER SHAPE
    FUNCTION<tab>FILE<tab>LINE
    ...
    ready
"""

import _thread
import asyncio
import ctypes
import functools
import sys
import time

gate = _thread.allocate_lock()
gate.acquire()
idents = {}
shapes = []


def wait():
    gate.acquire()


def shape(function):
    shapes.append(function)
    return function


@shape
def recursion(depth=12):
    if depth:
        recursion(depth - 1)
    else:
        wait()


def generator(depth):
    if depth:
        yield from generator(depth - 1)
    else:
        yield wait()


@shape
def generators():
    for _ in generator(5):
        pass


@shape
def sorting():
    sorted([1, 2], key=lambda value: wait())


@shape
def c_callback():
    kind = ctypes.CFUNCTYPE(ctypes.c_int, ctypes.c_void_p, ctypes.c_void_p)
    compare = kind(lambda a, b: recursion(2))
    array = (ctypes.c_int * 2)(2, 1)
    ctypes.CDLL(None).qsort(array, 2, 4, compare)


async def inner(depth):
    if depth:
        await inner(depth - 1)
    wait()


@shape
def tasks():
    asyncio.new_event_loop().run_until_complete(inner(3))


class Outer:
    class Inner:
        def method(self):
            def nested():
                functools.reduce(lambda a, b: wait(), [1, 2])

            nested()


@shape
def methods():
    Outer.Inner().method()


class Made:
    def __init__(self, number):
        # In 3.13, calls of this have a frame of their own in the interpreter.
        if number == 999:
            wait()


@shape
def construction():
    for number in range(1000):
        Made(number)


class Ended:
    def __del__(self):
        wait()


@shape
def destruction():
    ended = Ended()
    ended = None


@shape
def handlers():
    try:
        try:
            raise KeyError
        finally:
            [1]
    except KeyError:
        any(wait() for _ in (1, 2))


@shape
def expressions():
    return [
        max(
            1,
            2,
        ),
        [wait() for _ in (1,)],
        3,
    ]


TEXT = """
def größe():
    wait()
def функция():
    größe()
def 𐊀𐊁(): функция()
𐊀𐊁()
"""


@shape
def names():
    code = compile(TEXT, "пример 🐍.py", "exec")
    exec(code, {"wait": wait})


@shape
def long_name():
    text = "def f{0}(): wait()\nf{0}()".format("x" * 600)
    exec(compile(text, "long", "exec"), {"wait": wait})


@shape
def distant_lines():
    text = "def far():\n" + "\n" * 700 + " (\n  wait\n )(\n  *(\n   ),\n )\nfar()\n" + "\n" * 300
    exec(compile(text, "far", "exec"), {"wait": wait})


def start(function):
    idents[_thread.get_ident()] = function.__name__
    function()


def write():
    while True:
        time.sleep(0.2)
        frames = sys._current_frames()
        at_gate = [f for f in frames.values() if f.f_code.co_name == "wait"]
        if len(at_gate) == len(shapes) + 1:
            break
    for ident, frame in frames.items():
        if ident == _thread.get_ident():
            continue
        sys.stdout.write("thread %x %s\n" % (ident, idents[ident]))
        while frame:
            code = frame.f_code
            name = getattr(code, "co_qualname", code.co_name)
            sys.stdout.write("%s\t%s\t%d\n" % (name, code.co_filename, frame.f_lineno))
            frame = frame.f_back
    sys.stdout.write("ready\n")
    sys.stdout.flush()
    wait()


sys.stdout.reconfigure(encoding="utf-8")
idents[_thread.get_ident()] = "main"
for each in shapes:
    _thread.start_new_thread(start, (each,))
_thread.start_new_thread(write, ())
recursion(3)
