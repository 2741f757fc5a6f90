/* Two threads on one CPU take turns: each works for WORK rounds of a loop, wakes the other and
 * sleeps. Prints the number of turns, and the mean nanoseconds of one.
 *
 * usage: pingpong SECONDS WORK
 */
#define _GNU_SOURCE
#include <linux/futex.h>
#include <pthread.h>
#include <sched.h>
#include <stdatomic.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

static _Atomic uint32_t turn;
static atomic_int over;
static _Atomic uint64_t turns;
static uint64_t work;

static double now(void) {
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + (double)t.tv_nsec * 1e-9;
}

static void futex(int op, uint32_t value) {
    syscall(SYS_futex, &turn, op | FUTEX_PRIVATE_FLAG, value, NULL, NULL, 0);
}

__attribute__((noinline)) static void works(void) {
    for (uint64_t n = work; n > 0; n--) __asm__ volatile("");
}

__attribute__((noinline)) static void waits_for(uint32_t mine) {
    while (atomic_load(&turn) % 2 != mine && !atomic_load(&over)) {
        futex(FUTEX_WAIT, mine ^ 1);
    }
}

static void *takes_turns(void *which) {
    uint32_t mine = (uint32_t)(uintptr_t)which;
    while (!atomic_load(&over)) {
        waits_for(mine);
        works();
        atomic_fetch_add(&turns, 1);
        atomic_store(&turn, mine ^ 1);
        futex(FUTEX_WAKE, 1);
    }
    return NULL;
}

static void on_one_cpu(void) {
    cpu_set_t set;
    CPU_ZERO(&set);
    CPU_SET(sched_getcpu(), &set);
    sched_setaffinity(0, sizeof set, &set);
}

int main(int argc, char **argv) {
    if (argc != 3) return 2;
    double seconds = atof(argv[1]);
    work = strtoull(argv[2], NULL, 10);
    pthread_t threads[2];
    on_one_cpu();
    double began = now();
    for (uintptr_t i = 0; i < 2; i++) pthread_create(&threads[i], NULL, takes_turns, (void *)i);
    struct timespec t = {(time_t)seconds, (long)((seconds - (double)(time_t)seconds) * 1e9)};
    nanosleep(&t, NULL);
    uint64_t n = atomic_load(&turns);
    double lasted = now() - began;
    atomic_store(&over, 1);
    futex(FUTEX_WAKE, 2);
    for (int i = 0; i < 2; i++) pthread_join(threads[i], NULL);
    printf("%llu %.1f\n", (unsigned long long)n, lasted * 1e9 / (double)n);
    return 0;
}
