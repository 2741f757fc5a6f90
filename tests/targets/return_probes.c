// Functions for return probes, which most of the time is spent in, one below the other.
//
// usage: return_probes SECONDS
#include <stdlib.h>
#include <time.h>

static volatile unsigned long sink;

__attribute__((noinline)) void work(void) {
    for (int i = 0; i < 2000000; i++)
        sink += i * sink + 1;
}

__attribute__((noinline)) int inner(int n) {
    work();
    return n + sink;
}

__attribute__((noinline)) int outer(int n) {
    return n > 0 ? outer(n - 1) + 1 : inner(n) + 1;
}

__attribute__((noinline)) int first(void) { return outer(3) + 1; }
__attribute__((noinline)) int second(void) { return outer(3) + 2; }

int main(int argc, char **argv) {
    clock_t end = clock() + (clock_t)((argc > 1 ? atof(argv[1]) : 1) * CLOCKS_PER_SEC);
    while (clock() < end)
        sink += first() + second();
}
