/* Works in step with a timer of 100 Hz: at each tick spin_early, then spin_late, then it sleeps
 * until the next. A profiler that samples in step with it sees only one of them.
 *
 * usage: ticks TICKS
 *
 * Prints "ready", waits for the end of its standard input, works, and prints NAME NANOSECONDS of
 * both, by the thread's CPU clock. It stays on its CPU, with whose timer it is in step, and if
 * permitted, it runs before all other threads, which would shift its work.
 */
#define _GNU_SOURCE
#include <sched.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/timerfd.h>
#include <time.h>
#include <unistd.h>

#define NOINLINE __attribute__((noipa))

static int64_t now(clockid_t clock) {
    struct timespec t;
    clock_gettime(clock, &t);
    return t.tv_sec * 1000000000LL + t.tv_nsec;
}

/* Inlined into its caller: recorders without stacks have to distinguish the callers. */
__attribute__((always_inline)) static inline uint64_t burn(uint64_t x) {
    for (int n = 0; n < 10000; n++) {
        x = x * 6364136223846793005u + 1442695040888963407u;
        __asm__ volatile("" : "+r"(x));
    }
    return x;
}

#define SPIN(name, salt)                                                                       \
    NOINLINE static int64_t name(int64_t quota) {                                              \
        int64_t start = now(CLOCK_THREAD_CPUTIME_ID), used;                                    \
        do burn(salt);                                                                         \
        while ((used = now(CLOCK_THREAD_CPUTIME_ID) - start) < quota);                         \
        return used;                                                                           \
    }

SPIN(spin_early, 1)
SPIN(spin_late, 2)

int main(int argc, char **argv) {
    int ticks = argc > 1 ? atoi(argv[1]) : 100;
    puts("ready");
    fflush(stdout);
    while (getchar() != EOF) {
    }
    cpu_set_t here;
    CPU_ZERO(&here);
    CPU_SET(sched_getcpu(), &here);
    sched_setaffinity(0, sizeof here, &here);
    struct sched_param first = {.sched_priority = 1};
    sched_setscheduler(0, SCHED_FIFO, &first);
    int timer = timerfd_create(CLOCK_MONOTONIC, 0);
    struct itimerspec each = {{0, 10000000}, {0, 10000000}};
    timerfd_settime(timer, 0, &each, NULL);
    int64_t early = 0, late = 0;
    uint64_t passed, all = 0;
    for (; all < (uint64_t)ticks; all += passed) {
        if (read(timer, &passed, sizeof passed) != sizeof passed) return 1;
        early += spin_early(3000000);
        late += spin_late(3000000);
    }
    printf("spin_early %lld\nspin_late %lld\n", (long long)early, (long long)late);
    return 0;
}
