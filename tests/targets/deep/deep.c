// A hundred functions deep: the native one of the programs in this directory.
//
// usage: PROGRAM ROUNDS
//
// Prints "ready", waits for a line on standard input, works, and prints the CPU time and the wall
// time of the work, in nanoseconds.

#include <stdio.h>
#include <stdlib.h>
#include <time.h>

static long now(clockid_t clock) {
    struct timespec t;
    clock_gettime(clock, &t);
    return t.tv_sec * 1000000000L + t.tv_nsec;
}

static volatile long sum;

__attribute__((noinline)) static long step(long i) {
    volatile long result = i;
    return result * i;
}

__attribute__((noinline)) static void part(long count) {
    for (long i = 0; i < count; i++) sum += step(i);
    sum ^= 1;
}

__attribute__((noinline)) static void work(long rounds) {
    for (long i = 0; i < rounds; i++) part(100000);
    sum ^= 1;
}

__attribute__((noinline)) static void descend(int depth, long rounds) {
    if (depth > 0) {
        descend(depth - 1, rounds);
    } else {
        work(rounds);
    }
    // No tail call.
    sum ^= 1;
}

int main(int argc, char **argv) {
    long rounds = argc > 1 ? atol(argv[1]) : 1;
    puts("ready");
    fflush(stdout);
    getchar();
    long cpu = now(CLOCK_PROCESS_CPUTIME_ID), wall = now(CLOCK_MONOTONIC);
    descend(95, rounds);
    printf("%ld %ld\n", now(CLOCK_PROCESS_CPUTIME_ID) - cpu, now(CLOCK_MONOTONIC) - wall);
}
