// phases MILLISECONDS: that long in f, then the same in g, then the same in f, of time on the clock.
#include <stdlib.h>
#include <time.h>

static volatile unsigned long sink;

static double now(void) {
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return t.tv_sec * 1e3 + t.tv_nsec / 1e6;
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
    f(start + each);
    g(start + 2 * each);
    f(start + 3 * each);
    return 0;
}
