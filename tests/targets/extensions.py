"""Busy in Python's C extensions and the libraries behind them. usage: extensions.py SECONDS"""
import csv
import decimal
import hashlib
import io
import json
import pickle
import random
import re
import sqlite3
import sys
import time
import zlib


def parse(data, raw):
    json.loads(json.dumps(data))
    pickle.loads(pickle.dumps(data))
    re.findall(rb"\d+\.(\d\d)", raw)
    list(csv.reader(io.StringIO("a,b,c\n" * 100)))
    sorted(data, key=lambda k: data[k][0])


def digest(raw):
    zlib.decompress(zlib.compress(raw, 6))
    for name in ("md5", "sha1", "sha256", "sha512", "sha3_256", "blake2b"):
        hashlib.new(name, raw * 4).digest()


def compute(data):
    (decimal.Decimal(2) ** 300).sqrt()
    table = sqlite3.connect(":memory:")
    table.execute("create table t(a, b)")
    table.executemany("insert into t values(?, ?)", enumerate(data))
    table.execute("select sum(a) from t group by b").fetchall()


def main(seconds):
    data = {str(i): [random.random() for _ in range(20)] for i in range(50)}
    raw = json.dumps(data).encode()
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        parse(data, raw)
        digest(raw)
        compute(data)


main(float(sys.argv[1]))
