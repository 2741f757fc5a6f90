/* A program that measures its own profile: the time of each of its functions by the thread's CPU
 * clock. All of them call the same leaf, so only a whole stack distinguishes them.
 *
 * usage: truth THREADS MILLISECONDS      (of CPU time of each thread)
 *
 * Prints "ready", waits for the end of its standard input, works, and prints NAME NANOSECONDS of
 * each function, and of the process while it worked.
 */
#include <pthread.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <time.h>

#define KINDS 5
#define NOINLINE __attribute__((noipa))

static int64_t now(clockid_t clock) {
    struct timespec t;
    clock_gettime(clock, &t);
    return t.tv_sec * 1000000000LL + t.tv_nsec;
}

/* About 15 µs. */
NOINLINE static uint64_t burn(uint64_t x) {
    for (int n = 0; n < 10000; n++) {
        x = x * 6364136223846793005u + 1442695040888963407u;
        __asm__ volatile("" : "+r"(x));
    }
    return x;
}

/* Works until this thread has used the quota of CPU time; returns the time used. */
#define SPIN(name, salt)                                                                       \
    NOINLINE static int64_t name(int64_t quota) {                                              \
        int64_t start = now(CLOCK_THREAD_CPUTIME_ID), used;                                    \
        do burn(salt);                                                                         \
        while ((used = now(CLOCK_THREAD_CPUTIME_ID) - start) < quota);                         \
        return used;                                                                           \
    }

SPIN(spin_alpha, 1)
SPIN(spin_beta, 2)
SPIN(spin_gamma, 3)
SPIN(spin_delta, 4)
SPIN(spin_epsilon, 5)

static const char *const names[KINDS] = {
    "spin_alpha", "spin_beta", "spin_gamma", "spin_delta", "spin_epsilon",
};
static int64_t (*const functions[KINDS])(int64_t) = {
    spin_alpha, spin_beta, spin_gamma, spin_delta, spin_epsilon,
};
/* Percent of a cycle, which is 100 ms on average. */
static const int weights[KINDS] = {35, 25, 20, 12, 8};

struct worker {
    pthread_t thread;
    uint64_t random;
    int64_t quota, used[KINDS];
};

static uint32_t next(struct worker *w) {
    w->random = w->random * 6364136223846793005u + 1442695040888963407u;
    return (uint32_t)(w->random >> 33);
}

/* Cycles of all functions, in a random order and for a random time: in step with nothing. */
static void *work(void *argument) {
    struct worker *w = argument;
    for (int64_t done = 0; done < w->quota;) {
        int order[KINDS] = {0, 1, 2, 3, 4};
        for (int i = KINDS - 1; i > 0; i--) {
            int j = (int)(next(w) % (uint32_t)(i + 1)), k = order[i];
            order[i] = order[j], order[j] = k;
        }
        for (int i = 0; i < KINDS; i++) {
            int kind = order[i];
            /* From half to one and a half of its part. */
            int64_t part = weights[kind] * (500000 + (int64_t)(next(w) % 1000000));
            int64_t used = functions[kind](part);
            w->used[kind] += used, done += used;
        }
    }
    return NULL;
}

int main(int argc, char **argv) {
    int threads = argc > 1 ? atoi(argv[1]) : 1;
    int64_t quota = (argc > 2 ? atoi(argv[2]) : 1000) * 1000000LL;
    struct worker *workers = calloc((size_t)threads, sizeof *workers);
    puts("ready");
    fflush(stdout);
    while (getchar() != EOF) {
    }
    int64_t process = now(CLOCK_PROCESS_CPUTIME_ID);
    for (int i = 0; i < threads; i++) {
        workers[i].random = (uint64_t)i + 1, workers[i].quota = quota;
        if (i > 0) pthread_create(&workers[i].thread, NULL, work, &workers[i]);
    }
    work(&workers[0]);
    for (int i = 1; i < threads; i++) pthread_join(workers[i].thread, NULL);
    process = now(CLOCK_PROCESS_CPUTIME_ID) - process;
    for (int kind = 0; kind < KINDS; kind++) {
        int64_t sum = 0;
        for (int i = 0; i < threads; i++) sum += workers[i].used[kind];
        printf("%s %lld\n", names[kind], (long long)sum);
    }
    printf("process %lld\n", (long long)process);
    return 0;
}
