/* A parent that only waits, and CHILDREN children that are busy in `child_work` forever;
 * prints the pids of the children, then "ready".
 *
 * usage: family CHILDREN
 */
#include <signal.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

__attribute__((noinline)) static void child_work(void) {
    volatile uint64_t x = 1;
    for (;;) x = x * 3 + 1;
}

int main(int argc, char **argv) {
    int children = argc > 1 ? atoi(argv[1]) : 2;
    for (int n = 0; n < children; n++) {
        pid_t pid = fork();
        if (pid == 0) {
            prctl(PR_SET_PDEATHSIG, SIGKILL);
            child_work();
        }
        printf("%d\n", pid);
    }
    puts("ready");
    fflush(stdout);
    while (wait(NULL) > 0) {
    }
    return 0;
}
