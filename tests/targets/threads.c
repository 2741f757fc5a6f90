/* Many threads, each mostly asleep and a little busy in `thread_work`.
 *
 * usage: threads COUNT LIFE_MS SECONDS [BUSY_US]
 *
 * COUNT threads run at any time; each lives LIFE_MS (0: as long as the program) and is then
 * replaced. Prints "ready" on a line when all have started. SECONDS 0: forever.
 */
#define _GNU_SOURCE
#include <pthread.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <time.h>
#include <unistd.h>

static long life_ms, busy_us;
static pthread_attr_t small_stack;
static int started;

static int64_t now_us(clockid_t clock) {
    struct timespec t;
    clock_gettime(clock, &t);
    return t.tv_sec * 1000000LL + t.tv_nsec / 1000;
}

__attribute__((noinline)) static void thread_work(int64_t microseconds) {
    int64_t end = now_us(CLOCK_THREAD_CPUTIME_ID) + microseconds;
    uint64_t x = 1;
    do {
        for (int n = 0; n < 2000; n++) {
            x = x * 6364136223846793005u + 1442695040888963407u;
            __asm__ volatile("" : "+r"(x));
        }
    } while (now_us(CLOCK_THREAD_CPUTIME_ID) < end);
}

static void spawn(long number);

static void *thread_main(void *argument) {
    long number = (long)argument;
    char name[16];
    snprintf(name, sizeof name, "worker-%ld", number % 100000);
    pthread_setname_np(pthread_self(), name);
    __atomic_add_fetch(&started, 1, __ATOMIC_RELAXED);
    int64_t end = now_us(CLOCK_MONOTONIC) + life_ms * 1000;
    unsigned seed = (unsigned)number;
    do {
        thread_work(busy_us);
        usleep(20000 + rand_r(&seed) % 100000);
    } while (life_ms == 0 || now_us(CLOCK_MONOTONIC) < end);
    spawn(number);
    return NULL;
}

static void spawn(long number) {
    pthread_t thread;
    /* Out of threads for a moment: those that end make room. */
    while (pthread_create(&thread, &small_stack, thread_main, (void *)number) != 0) usleep(1000);
    pthread_detach(thread);
}

int main(int argc, char **argv) {
    long count = argc > 1 ? atol(argv[1]) : 10;
    life_ms = argc > 2 ? atol(argv[2]) : 0;
    double seconds = argc > 3 ? atof(argv[3]) : 0;
    busy_us = argc > 4 ? atol(argv[4]) : 200;
    pthread_attr_init(&small_stack);
    pthread_attr_setstacksize(&small_stack, 128 * 1024);
    for (long n = 0; n < count; n++) spawn(n);
    while (__atomic_load_n(&started, __ATOMIC_RELAXED) < count) usleep(1000);
    puts("ready");
    fflush(stdout);
    int64_t end = now_us(CLOCK_MONOTONIC) + (int64_t)(seconds * 1e6);
    while (seconds == 0 || now_us(CLOCK_MONOTONIC) < end) usleep(10000);
    return 0;
}
