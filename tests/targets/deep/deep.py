"""As deep.c."""
import sys
import time


def step(i):
    return i * i


def part(count):
    total = 0
    for i in range(count):
        total += step(i)
    return total


def work(rounds):
    for _ in range(rounds):
        part(1000)


def descend(depth, rounds):
    if depth > 0:
        descend(depth - 1, rounds)
    else:
        work(rounds)


def main():
    print("ready", flush=True)
    sys.stdin.readline()
    cpu, wall = time.process_time_ns(), time.monotonic_ns()
    descend(95, int(sys.argv[1]))
    print(time.process_time_ns() - cpu, time.monotonic_ns() - wall, flush=True)


main()
