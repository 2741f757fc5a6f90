/* Forks CHILDREN short-lived children, WIDTH at a time; each is busy for BUSY_US in
 * `child_work` and ends.
 *
 * usage: forker CHILDREN [WIDTH [BUSY_US]]
 */
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

static int64_t cpu_us(void) {
    struct timespec t;
    clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &t);
    return t.tv_sec * 1000000LL + t.tv_nsec / 1000;
}

__attribute__((noinline)) static void child_work(long microseconds) {
    int64_t end = cpu_us() + microseconds;
    volatile uint64_t x = 1;
    do {
        for (int n = 0; n < 2000; n++) x = x * 3 + 1;
    } while (cpu_us() < end);
}

int main(int argc, char **argv) {
    long children = argc > 1 ? atol(argv[1]) : 1000;
    long width = argc > 2 ? atol(argv[2]) : 4;
    long busy_us = argc > 3 ? atol(argv[3]) : 500;
    long running = 0;
    for (long n = 0; n < children; n++) {
        if (running == width) {
            wait(NULL);
            running--;
        }
        pid_t pid = fork();
        if (pid < 0) {
            perror("fork");
            return 1;
        }
        if (pid == 0) {
            child_work(busy_us);
            _exit(0);
        }
        running++;
    }
    while (wait(NULL) > 0) {
    }
    printf("%ld\n", children);
    return 0;
}
