/* A program whose threads wait in known places, and measure their own waits.
 *
 * usage: waits ROUNDS
 *
 * Threads: `napper` sleeps 20 ms in nap() and works 10 ms of CPU time in work(), ROUNDS times;
 * `reader` waits in take() for a byte of `writer`, which comes every 15 ms; `idler` sleeps in
 * doze() from its beginning to the end. At the end each function's time is printed in seconds of
 * wall time: `THREAD FUNCTION SECONDS`, and with the function `all` the time of the thread.
 */
#define _GNU_SOURCE
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <time.h>
#include <unistd.h>

static int rounds, pipes[2], ends[2];

static double now(clockid_t clock) {
    struct timespec t;
    clock_gettime(clock, &t);
    return t.tv_sec + t.tv_nsec / 1e9;
}

/* Each call has work behind it, so that it is no tail call. */
#define FUNCTION __attribute__((noinline, noclone)) static double

FUNCTION nap(void) {
    double begin = now(CLOCK_MONOTONIC);
    usleep(20000);
    return now(CLOCK_MONOTONIC) - begin;
}

FUNCTION work(void) {
    double begin = now(CLOCK_MONOTONIC), end = now(CLOCK_THREAD_CPUTIME_ID) + 0.010;
    volatile unsigned long x = 1;
    do
        for (int i = 0; i < 10000; i++) x = x * 5 + 1;
    while (now(CLOCK_THREAD_CPUTIME_ID) < end);
    return now(CLOCK_MONOTONIC) - begin;
}

FUNCTION take(void) {
    double begin = now(CLOCK_MONOTONIC);
    char byte;
    if (read(pipes[0], &byte, 1) != 1) perror("read");
    return now(CLOCK_MONOTONIC) - begin;
}

FUNCTION doze(void) {
    double begin = now(CLOCK_MONOTONIC);
    char byte;
    if (read(ends[0], &byte, 1) != 0) perror("read");
    return now(CLOCK_MONOTONIC) - begin;
}

static void *napper(void *unused) {
    pthread_setname_np(pthread_self(), "napper");
    double begin = now(CLOCK_MONOTONIC), napped = 0, worked = 0;
    for (int n = 0; n < rounds; n++) {
        napped += nap();
        worked += work();
    }
    printf("napper nap %f\nnapper work %f\n", napped, worked);
    printf("napper all %f\n", now(CLOCK_MONOTONIC) - begin);
    return unused;
}

static void *reader(void *unused) {
    pthread_setname_np(pthread_self(), "reader");
    double begin = now(CLOCK_MONOTONIC), taken = 0;
    for (int n = 0; n < rounds; n++) taken += take();
    printf("reader take %f\nreader all %f\n", taken, now(CLOCK_MONOTONIC) - begin);
    return unused;
}

static void *idler(void *unused) {
    pthread_setname_np(pthread_self(), "idler");
    printf("idler doze %f\n", doze());
    return unused;
}

int main(int argc, char **argv) {
    rounds = argc > 1 ? atoi(argv[1]) : 50;
    if (pipe(pipes) || pipe(ends)) return 1;
    pthread_t idle, threads[2];
    pthread_create(&idle, NULL, idler, NULL);
    pthread_create(&threads[0], NULL, napper, NULL);
    pthread_create(&threads[1], NULL, reader, NULL);
    printf("ready\n");
    fflush(stdout);
    for (int n = 0; n < rounds; n++) {
        usleep(15000);
        if (write(pipes[1], "", 1) != 1) perror("write");
    }
    for (int i = 0; i < 2; i++) pthread_join(threads[i], NULL);
    close(ends[1]);
    pthread_join(idle, NULL);
}
