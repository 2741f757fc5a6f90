/* Is busy for MS milliseconds in `before_exit` and exits with CODE; when a SIGTERM or SIGUSR1
 * comes first, prints its number and exits with 40.
 *
 * usage: exits CODE MS
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

__attribute__((noinline)) static void before_exit(long ms) {
    volatile uint64_t x = 1;
    while (cpu_ms() < ms && !got)
        for (int n = 0; n < 10000; n++) x = x * 3 + 1;
}

int main(int argc, char **argv) {
    int code = argc > 1 ? atoi(argv[1]) : 0;
    long ms = argc > 2 ? atol(argv[2]) : 0;
    signal(SIGTERM, on_signal);
    signal(SIGUSR1, on_signal);
    puts("ready");
    fflush(stdout);
    before_exit(ms);
    if (got) {
        printf("signal %d\n", (int)got);
        return 40;
    }
    return code;
}
