// Allocates and frees 64 bytes all the time, next to THREADS that sleep. Prints for each tenth of a
// second the time of a pair, in nanoseconds, and the longest pause of the thread that allocates, in
// milliseconds.
//
// usage: slices SECONDS THREADS

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

static void *sleeps(void *unused) {
    for (;;) pause();
    return unused;
}

int main(int argc, char **argv) {
    if (argc < 3) return 2;
    pthread_attr_t small;
    pthread_attr_init(&small);
    pthread_attr_setstacksize(&small, 128 << 10);
    for (int i = atoi(argv[2]); i > 0; i--) {
        pthread_t thread;
        if (pthread_create(&thread, &small, sleeps, NULL)) return 1;
    }
    double end = now() + 1e3 * atof(argv[1]);
    while (now() < end) {
        const int each = 256;
        double began = now(), last = began, longest = 0;
        long pairs = 0;
        while (last < began + 100) {
            for (int i = 0; i < each; i++) {
                void *volatile block = malloc(64);
                free(block);
            }
            pairs += each;
            double next = now();
            if (next - last > longest) longest = next - last;
            last = next;
        }
        printf("%.3f %.3f\n", (last - began) * 1e6 / (double)pairs, longest);
        fflush(stdout);
    }
    return 0;
}
