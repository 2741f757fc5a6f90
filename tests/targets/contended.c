/* Pieces of work for benches/lock.rs: contended KIND TIMES.
 *
 * mutex: four threads take one mutex TIMES times in all, for 1 us, and work 3 us without it;
 * wakes: a wake-up without waiter, TIMES times; calls: getppid TIMES times. Prints the duration in
 * seconds, and the number of waits (of mutex: context switches that were not forced) or of calls.
 */
#define _GNU_SOURCE
#include <linux/futex.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

enum { THREADS = 4 };

static pthread_mutex_t mutex = PTHREAD_MUTEX_INITIALIZER;
static long times;
static volatile unsigned long shared;

static double now(void) {
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return t.tv_sec + t.tv_nsec / 1e9;
}

static void work(int rounds) {
    volatile unsigned long x = 1;
    for (int i = 0; i < rounds; i++) x = x * 5 + 1;
}

static void *contend(void *unused) {
    for (long n = 0; n < times / THREADS; n++) {
        pthread_mutex_lock(&mutex);
        shared++;
        work(400);
        pthread_mutex_unlock(&mutex);
        work(1200);
    }
    return unused;
}

int main(int argc, char **argv) {
    const char *kind = argc > 1 ? argv[1] : "mutex";
    times = argc > 2 ? atol(argv[2]) : 1000;
    double since = now();
    double events = times;
    if (strcmp(kind, "mutex") == 0) {
        pthread_t threads[THREADS];
        for (int i = 0; i < THREADS; i++) pthread_create(&threads[i], NULL, contend, NULL);
        for (int i = 0; i < THREADS; i++) pthread_join(threads[i], NULL);
        struct rusage usage;
        getrusage(RUSAGE_SELF, &usage);
        events = usage.ru_nvcsw;
    } else if (strcmp(kind, "wakes") == 0) {
        int word = 0;
        for (long n = 0; n < times; n++) syscall(SYS_futex, &word, FUTEX_WAKE_PRIVATE, 1);
    } else {
        for (long n = 0; n < times; n++) syscall(SYS_getppid);
    }
    printf("%f %.0f\n", now() - since, events);
}
