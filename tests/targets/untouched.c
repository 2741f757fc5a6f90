/* Works for SECONDS of CPU time below a frame of 100 KB, of which only a small part was written.
 *
 * usage: untouched SECONDS
 */
#include <stdlib.h>
#include <string.h>
#include <time.h>

static volatile unsigned long sum;

static double seconds(void) {
    struct timespec t;
    clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &t);
    return t.tv_sec + t.tv_nsec * 1e-9;
}

__attribute__((noinline)) static void work(double until) {
    while (seconds() < until)
        for (int i = 0; i < 2000; i++) sum += i * sum;
    __asm__ volatile(""); /* no tail call */
}

__attribute__((noinline)) static void large(double until) {
    char buffer[100000];
    memset(buffer, 1, 64);
    __asm__ volatile("" : : "r"(buffer) : "memory");
    work(until);
    __asm__ volatile("" : : "r"(buffer) : "memory");
}

int main(int argc, char **argv) {
    large(argc > 1 ? atof(argv[1]) : 1);
    return 0;
}
