/* Calls functions and passes markers N times: places for probes, with known answers.
 *
 * usage: probes N [wait|exec]
 *
 * Two threads call `leaf` N times each, through `first` and `second`; then a child process does N
 * times through `child`. Each call of `first` passes the marker `app:step`, and the marker
 * `app:heard` if its counter shows a listener. `wait`: not before standard input ends.
 * `exec`: as a new program.
 */
#define _GNU_SOURCE
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "marker.h"

__attribute__((section(".probes"), used)) volatile unsigned short heard_counter;

static long calls;

/* push %rbp; mov %rsp,%rbp: its second instruction is one byte behind its beginning. */
__attribute__((noinline)) void leaf(void);
__asm__(".text\n .globl leaf\n .type leaf,@function\nleaf:\n .cfi_startproc\n push %rbp\n"
        " .cfi_def_cfa_offset 16\n .cfi_offset 6,-16\n mov %rsp,%rbp\n .cfi_def_cfa_register 6\n"
        " pop %rbp\n .cfi_def_cfa 7,8\n ret\n .cfi_endproc\n .size leaf, .-leaf\n");

__attribute__((noinline)) void first(void) {
    MARKER("step", "0");
    if (heard_counter) MARKER("heard", "heard_counter");
    leaf();
    __asm__ volatile("" ::: "memory");
}

__attribute__((noinline)) void second(void) {
    leaf();
    __asm__ volatile("" ::: "memory");
}

__attribute__((noinline)) void child(void) {
    leaf();
    __asm__ volatile("" ::: "memory");
}

static void *calls_first(void *unused) {
    for (long i = 0; i < calls; i++) first();
    return unused;
}

static void *calls_second(void *unused) {
    for (long i = 0; i < calls; i++) second();
    return unused;
}

int main(int argc, char **argv) {
    calls = argc > 1 ? atol(argv[1]) : 1000;
    if (argc > 2 && strcmp(argv[2], "exec") == 0) {
        execl("/proc/self/exe", argv[0], argv[1], (char *)NULL);
        return 1;
    }
    if (argc > 2) {
        puts("ready");
        fflush(stdout);
        while (getchar() != EOF) {}
    }
    pthread_t threads[2];
    pthread_create(&threads[0], NULL, calls_first, NULL);
    pthread_create(&threads[1], NULL, calls_second, NULL);
    pthread_join(threads[0], NULL);
    pthread_join(threads[1], NULL);
    pid_t pid = fork();
    if (pid == 0) {
        for (long i = 0; i < calls; i++) child();
        _exit(0);
    }
    waitpid(pid, NULL, 0);
    return 0;
}
