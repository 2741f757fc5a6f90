/* A target that is hard to record: it works for a part of a second of CPU time, and then
 *
 * exec     becomes another program, which works too
 * forks    has three children, which work too
 * dies     kills itself
 * stops    stops itself, and works again when it is continued
 * confined works under a seccomp filter that kills it for all but a few system calls
 * works    works on, for ten seconds of CPU time at most
 *
 * usage: hardship MODE
 */
#define _GNU_SOURCE
#include <errno.h>
#include <signal.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "confine.h"

static void *volatile kept;

static double now(void) {
    struct timespec t;
    clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &t);
    return (double)t.tv_sec + (double)t.tv_nsec * 1e-9;
}

static uint64_t spin(double seconds) {
    uint64_t x = 1;
    for (double end = now() + seconds; now() < end;) {
        for (int n = 0; n < 1000000; n++) {
            x = x * 6364136223846793005u + 1442695040888963407u;
            __asm__ volatile("" : "+r"(x));
        }
        /* Work for recordings of the heap and of waits. */
        free(kept);
        kept = malloc(10000);
        usleep(1000);
    }
    return x;
}

__attribute__((noipa)) static uint64_t works_before(void) {
    return spin(0.2) + 1;
}

__attribute__((noipa)) static uint64_t works_afterwards(void) {
    return spin(0.2) + 2;
}

int main(int argc, char **argv) {
    const char *mode = argc > 1 ? argv[1] : "";
    kept = malloc(10000);
    if (!strcmp(mode, "afterwards")) return (int)(works_afterwards() & 0);
    works_before();
    if (!strcmp(mode, "exec")) {
        execl("/proc/self/exe", "hardship", "afterwards", NULL);
        return 3;
    } else if (!strcmp(mode, "forks")) {
        for (int i = 0; i < 3; i++)
            if (fork() == 0) return (int)(works_afterwards() & 0);
        while (wait(NULL) > 0 || errno == EINTR) continue;
    } else if (!strcmp(mode, "dies")) {
        kill(getpid(), SIGKILL);
    } else if (!strcmp(mode, "stops")) {
        raise(SIGSTOP);
        works_afterwards();
    } else if (!strcmp(mode, "confined")) {
        static const int calls[] = {
            SYS_write, SYS_fstat, SYS_newfstatat, SYS_clock_nanosleep, SYS_clock_gettime,
            SYS_brk,   SYS_munmap, SYS_exit_group,
        };
        confine(calls, sizeof calls / sizeof *calls);
        works_afterwards();
    } else if (!strcmp(mode, "works")) {
        puts("ready");
        fflush(stdout);
        for (int i = 0; i < 50; i++) works_afterwards();
    }
    puts("done");
    return 0;
}
