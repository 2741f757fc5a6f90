"""Busy in pure Python. usage: busy.py SECONDS of CPU time (0: forever)"""
import sys
import time


def fibonacci(n):
    return n if n < 2 else fibonacci(n - 1) + fibonacci(n - 2)


def main(seconds):
    end = time.process_time() + seconds
    while seconds == 0 or time.process_time() < end:
        fibonacci(18)


print("ready", flush=True)
main(float(sys.argv[1]))
