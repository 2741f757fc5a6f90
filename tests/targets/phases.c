// phases MILLISECONDS: that long in f, then the same in g, then the same in f, of CPU time. Prints the
// times of the four changes, in nanoseconds since 1970.
#include <stdio.h>
#include <stdlib.h>
#include <time.h>

static volatile unsigned long sink;

static double now(void) {
    struct timespec t;
    clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &t);
    return t.tv_sec * 1e3 + t.tv_nsec / 1e6;
}

static long long date(void) {
    struct timespec t;
    clock_gettime(CLOCK_REALTIME, &t);
    return t.tv_sec * 1000000000LL + t.tv_nsec;
}

#define PHASE(name, step)                                     \
    __attribute__((noinline)) void name(double until) {       \
        do {                                                  \
            for (int i = 0; i < 100000; i++) sink += (step);  \
        } while (now() < until);                              \
    }

PHASE(f, 1)
PHASE(g, 2)

int main(int argc, char **argv) {
    double each = argc > 1 ? atof(argv[1]) : 1000;
    double start = now();
    long long changes[4] = {date()};
    f(start + each);
    changes[1] = date();
    g(start + 2 * each);
    changes[2] = date();
    f(start + 3 * each);
    changes[3] = date();
    for (int i = 0; i < 4; i++) printf("%lld\n", changes[i]);
    return 0;
}
