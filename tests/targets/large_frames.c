/* DEPTH frames of about BYTES each (60, 540 or 4,200) above `main`. With MICROSECONDS of 0, all
 * work is at the deepest; else each frame works for that time on the way back, again and again.
 *
 * usage: large_frames DEPTH BYTES MICROSECONDS SECONDS
 */
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <time.h>

static double seconds, each;

static double cpu_seconds(void) {
    struct timespec t;
    clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &t);
    return (double)t.tv_sec + (double)t.tv_nsec * 1e-9;
}

__attribute__((noinline, noclone)) static uint64_t spin(uint64_t x, double until) {
    do {
        for (int n = 0; n < 10000; n++) {
            x = x * 6364136223846793005u + 1442695040888963407u;
            __asm__ volatile("" : "+r"(x));
        }
    } while (cpu_seconds() < until);
    return x;
}

#define RECURSE(name, words)                                                   \
    __attribute__((noinline, noclone)) static uint64_t name(long depth) {      \
        volatile uint64_t kept[words];                                         \
        kept[depth % words] = (uint64_t)depth;                                 \
        uint64_t x = kept[depth % words];                                      \
        if (depth > 1)                                                         \
            x += name(depth - 1);                                              \
        else if (each == 0)                                                    \
            x += spin(x, seconds);                                             \
        if (each > 0) x += spin(x, cpu_seconds() + each);                      \
        return x + kept[depth % words];                                        \
    }

RECURSE(tiny, 4)
RECURSE(small, 64)
RECURSE(large, 520)

int main(int argc, char **argv) {
    if (argc < 5) return 2;
    long depth = atol(argv[1]);
    each = atof(argv[3]) * 1e-6;
    seconds = atof(argv[4]);
    long bytes = atol(argv[2]);
    uint64_t x = 0;
    do {
        x += bytes > 1000 ? large(depth) : bytes > 100 ? small(depth) : tiny(depth);
    } while (cpu_seconds() < seconds);
    if (x == 1) puts("never");
}
