// COUNT threads that sleep below a few functions, and one that runs for SECONDS and measures its
// pauses: prints the longest time between two readings of the clock, in milliseconds.
//
// usage: gaps COUNT SECONDS

#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <time.h>
#include <unistd.h>

static double now(void) {
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec * 1e3 + (double)t.tv_nsec / 1e6;
}

__attribute__((noinline)) static void sleeps(int depth) {
    volatile int kept = depth;
    if (depth > 0)
        sleeps(depth - 1);
    else
        for (;;) pause();
    kept++;
}

static void *sleeper(void *unused) {
    sleeps(20);
    return unused;
}

int main(int argc, char **argv) {
    if (argc < 3) return 2;
    pthread_attr_t small;
    pthread_attr_init(&small);
    pthread_attr_setstacksize(&small, 128 << 10);
    for (int i = atoi(argv[1]); i > 0; i--) {
        pthread_t thread;
        if (pthread_create(&thread, &small, sleeper, NULL)) return 1;
    }
    usleep(300000);
    puts("ready");
    fflush(stdout);
    double longest = 0, last = now(), end = last + 1e3 * atof(argv[2]);
    while (last < end) {
        double next = now();
        if (next - last > longest) longest = next - last;
        last = next;
    }
    printf("%.3f\n", longest);
    return 0;
}
