/* DEPTH frames of `recurse` above `main`, and SECONDS of CPU time at the deepest, in `bottom`.
 *
 * usage: recurse DEPTH SECONDS
 */
#include <stdint.h>
#include <stdlib.h>
#include <time.h>

static double seconds;

static double cpu_seconds(void) {
    struct timespec t;
    clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &t);
    return (double)t.tv_sec + (double)t.tv_nsec * 1e-9;
}

__attribute__((noinline, noclone)) static uint64_t bottom(uint64_t x) {
    do {
        for (int n = 0; n < 100000; n++) {
            x = x * 6364136223846793005u + 1442695040888963407u;
            __asm__ volatile("" : "+r"(x));
        }
    } while (cpu_seconds() < seconds);
    return x;
}

__attribute__((noinline, noclone)) static uint64_t recurse(long depth, uint64_t x) {
    x = depth <= 1 ? bottom(x) : recurse(depth - 1, x + 1);
    __asm__ volatile("" : "+r"(x)); /* no tail call */
    return x * 3;
}

int main(int argc, char **argv) {
    long depth = argc > 1 ? atol(argv[1]) : 100;
    seconds = argc > 2 ? atof(argv[2]) : 1;
    return recurse(depth, 1) == 0;
}
