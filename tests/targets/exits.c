/* Is busy for MS milliseconds of CPU time in `before_exit` and exits with CODE; when a SIGTERM or
 * SIGUSR1 comes first, prints its number and exits with 40. With AFTER: prints the CPU time, in
 * milliseconds, that it has used AFTER milliseconds after its start, and in all.
 *
 * usage: exits CODE MS [AFTER]
 */
#include <signal.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <time.h>

static volatile sig_atomic_t got;

static void on_signal(int number) { got = number; }

static int64_t cpu_ms(void) {
    struct timespec t;
    clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &t);
    return t.tv_sec * 1000LL + t.tv_nsec / 1000000;
}

static int64_t wall_ms(void) {
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return t.tv_sec * 1000LL + t.tv_nsec / 1000000;
}

/* Returns the CPU time that was used until then. */
__attribute__((noinline)) static long before_exit(long ms, int64_t then) {
    volatile uint64_t x = 1;
    long used = 0;
    while (cpu_ms() < ms && !got) {
        for (int n = 0; n < 10000; n++) x = x * 3 + 1;
        if (wall_ms() < then) used = cpu_ms();
    }
    return used;
}

int main(int argc, char **argv) {
    int code = argc > 1 ? atoi(argv[1]) : 0;
    long ms = argc > 2 ? atol(argv[2]) : 0;
    signal(SIGTERM, on_signal);
    signal(SIGUSR1, on_signal);
    int64_t then = argc > 3 ? wall_ms() + atol(argv[3]) : 0;
    puts("ready");
    fflush(stdout);
    long used = before_exit(ms, then);
    if (argc > 3) printf("%ld %ld\n", used, (long)cpu_ms());
    if (got) {
        printf("signal %d\n", (int)got);
        return 40;
    }
    return code;
}
