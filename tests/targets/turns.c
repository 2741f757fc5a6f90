// Waits thousands of times a second in two functions, for some microseconds in the one and for
// longer in the other, and prints the measured times of each: "thread function seconds".
#define _GNU_SOURCE
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <time.h>
#include <unistd.h>

static int there[2], back[2];

static double now(void) {
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return t.tv_sec + t.tv_nsec / 1e9;
}

static void *answers(void *unused) {
    char c;
    while (read(there[0], &c, 1) == 1)
        if (write(back[1], &c, 1) != 1) break;
    return unused;
}

__attribute__((noinline)) void asks(int times) {
    char c = 0;
    for (int i = 0; i < times; i++)
        if (write(there[1], &c, 1) != 1 || read(back[0], &c, 1) != 1) abort();
}

__attribute__((noinline)) void naps(int times) {
    for (int i = 0; i < times; i++) usleep(300);
}

int main(int argc, char **argv) {
    double seconds = argc > 1 ? atof(argv[1]) : 1, asked = 0, napped = 0;
    if (pipe(there) || pipe(back)) return 1;
    pthread_t thread;
    pthread_create(&thread, NULL, answers, NULL);
    pthread_setname_np(thread, "answers");
    pthread_setname_np(pthread_self(), "asks");
    double began = now();
    while (now() - began < seconds) {
        double start = now();
        asks(100);
        double middle = now();
        naps(3);
        asked += middle - start, napped += now() - middle;
    }
    close(there[1]);
    pthread_join(thread, NULL);
    printf("asks asks %.6f\nasks naps %.6f\n", asked, napped);
}
