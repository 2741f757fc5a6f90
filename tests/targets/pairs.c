// Allocates and frees: pairs N. First N pairs of one small size, then N of many sizes of which a
// thousand live at a time. Prints the nanoseconds of CPU time per pair for each.

#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <time.h>

static double now(void) {
  struct timespec t;
  clock_gettime(CLOCK_THREAD_CPUTIME_ID, &t);
  return t.tv_sec * 1e9 + t.tv_nsec;
}

static void use(void *p) { __asm__ volatile("" ::"r"(p) : "memory"); }

__attribute__((noinline)) static void small(long n) {
  for (long i = 0; i < n; i++) {
    void *p = malloc(64);
    use(p);
    free(p);
  }
}

static void *alive[1024];

__attribute__((noinline)) static void mixed(long n) {
  uint32_t random = 1;
  for (long i = 0; i < n; i++) {
    random = random * 1664525 + 1013904223;
    void **at = &alive[random >> 22];
    free(*at);
    *at = malloc(16 + (random >> 8 & 1023));
    use(*at);
  }
}

int main(int argc, char **argv) {
  long n = argc > 1 ? atol(argv[1]) : 10000000;
  small(n / 10);
  double start = now();
  small(n);
  double middle = now();
  mixed(n);
  double end = now();
  printf("%.3f %.3f\n", (middle - start) / n, (end - middle) / n);
  return 0;
}
