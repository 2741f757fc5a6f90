/* A program with a known answer. Of 9 parts of CPU time, by self: bar 5, main 2, foo1 1.5,
 * foo2 0.5; by total: main 9, foo1 4, foo2 3.
 *
 * Prints a number, and the CPU time that it has used, in seconds.
 *
 * usage: known SECONDS     (of CPU time; 0: forever)
 */
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <time.h>

/* A chain of multiplications: bound by latency, so that the loop's alignment does not matter. */
#define SPIN(halves)                                                                     \
    do {                                                                                 \
        for (uint64_t n = unit * (halves); n > 0; n--) {                                 \
            x = x * 6364136223846793005u + 1442695040888963407u;                         \
            __asm__ volatile("" : "+r"(x));                                              \
        }                                                                                \
    } while (0)

#define FUNCTION __attribute__((noinline, noclone)) static uint64_t

/* A leaf: gcc gives it no frame unless its address is taken. */
#ifdef FRAME_POINTERS
#define ENTER __asm__ volatile("" : : "r"(__builtin_frame_address(0)))
#else
#define ENTER
#endif

FUNCTION bar(uint64_t x, uint64_t unit) {
    ENTER;
    SPIN(10);
    return x;
}

/* Own work before and after the call, so that it is no tail call. */
FUNCTION foo1(uint64_t x, uint64_t unit) {
    SPIN(3);
    x = bar(x, unit);
    SPIN(3);
    return x;
}

FUNCTION foo2(uint64_t x, uint64_t unit) {
    SPIN(1);
    x = bar(x, unit);
    SPIN(1);
    return x;
}

static double cpu_seconds(void) {
    struct timespec t;
    clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &t);
    return (double)t.tv_sec + (double)t.tv_nsec * 1e-9;
}

int main(int argc, char **argv) {
    double seconds = argc > 1 ? atof(argv[1]) : 1.0;
    uint64_t x = 1;
    do {
        /* Rounds of unequal length (about 20 ms), so that no sampling rate is in step. */
        uint64_t unit = 200000 + (x >> 33) % 400000;
        SPIN(4);
        x = foo1(x, unit);
        SPIN(4);
        x = foo2(x, unit);
    } while (seconds == 0 || cpu_seconds() < seconds);
    printf("%llu\n%f\n", (unsigned long long)x, cpu_seconds());
    return 0;
}
