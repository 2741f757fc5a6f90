/* Stacks that do not begin where threads begin: of signal handlers, `vfork` children and
 * coroutines, each busy for SECONDS.
 *
 * usage: switches signals|altstack|vfork|ucontext|coroutine SECONDS
 */
#define _GNU_SOURCE
#include <signal.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/time.h>
#include <sys/wait.h>
#include <time.h>
#if !defined(WITHOUT_UCONTEXT)
#include <ucontext.h>
#endif
#include <unistd.h>

static double seconds;

static double cpu_seconds(void) {
    struct timespec t;
    clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &t);
    return (double)t.tv_sec + (double)t.tv_nsec * 1e-9;
}

__attribute__((noinline, noclone)) static uint64_t spin(long rounds) {
    uint64_t x = 1;
    for (long n = 0; n < rounds; n++) {
        x = x * 6364136223846793005u + 1442695040888963407u;
        __asm__ volatile("" : "+r"(x));
    }
    return x;
}

/* Signals: a timer's handler, which interrupts the running code. */
__attribute__((noinline)) static void handler_work(void) {
    spin(300000);
    __asm__ volatile(""); /* no tail call */
}

static void on_alarm(int number) {
    handler_work();
    (void)number;
}

static void signals(int flags) {
    struct sigaction action = {.sa_handler = on_alarm, .sa_flags = flags};
    static char other_stack[1 << 16];
    stack_t stack = {.ss_sp = other_stack, .ss_size = sizeof other_stack};
    sigaltstack(&stack, NULL);
    sigaction(SIGPROF, &action, NULL);
    struct itimerval every = {{0, 2000}, {0, 2000}};
    setitimer(ITIMER_PROF, &every, NULL);
    char from[4096], to[4096];
    memset(from, 1, sizeof from);
    while (cpu_seconds() < seconds) {
        spin(1000);
        memcpy(to, from, sizeof to);
        __asm__ volatile("" : : "r"(to) : "memory");
    }
}

/* vfork: a child on its parent's stack. */
__attribute__((noinline)) static void child_work(void) {
    spin(3000000);
    __asm__ volatile(""); /* no tail call */
}

static double children_seconds(void) {
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + (double)t.tv_nsec * 1e-9;
}

static void vforks(void) {
    double end = children_seconds() + seconds;
    while (children_seconds() < end) {
        pid_t child = vfork();
        if (child == 0) {
            child_work();
            _exit(0);
        }
        waitpid(child, NULL, 0);
        spin(300000);
    }
}

__attribute__((noinline)) static void coroutine_work(void) { spin(100000); }

#if !defined(WITHOUT_UCONTEXT)
/* ucontext: coroutines on stacks of their own, as the C library switches them. */
static ucontext_t outside, inside;

static void coroutine(void) {
    for (;;) {
        coroutine_work();
        swapcontext(&inside, &outside);
    }
}

static void contexts(void) {
    static char stack[1 << 16];
    getcontext(&inside);
    inside.uc_stack.ss_sp = stack;
    inside.uc_stack.ss_size = sizeof stack;
    inside.uc_link = NULL;
    makecontext(&inside, coroutine, 0);
    while (cpu_seconds() < seconds) {
        spin(10000);
        swapcontext(&outside, &inside);
    }
}

#endif

/* The same by a few instructions, as in Boost.Context and related libraries: no unwind information
 * states where the stack of a coroutine begins, and stale words lie there. */
void switch_stack(void **save, void *to);
__asm__(".text\n"
        ".type switch_stack, @function\n"
        "switch_stack:\n"
        "  push %rbp\n  push %rbx\n  push %r12\n  push %r13\n  push %r14\n  push %r15\n"
        "  mov %rsp, (%rdi)\n"
        "  mov %rsi, %rsp\n"
        "  pop %r15\n  pop %r14\n  pop %r13\n  pop %r12\n  pop %rbx\n  pop %rbp\n"
        "  ret\n"
        ".size switch_stack, . - switch_stack\n");

static void *main_stack, *own_stack;

static void bare_coroutine(void) {
    for (;;) {
        coroutine_work();
        switch_stack(&own_stack, main_stack);
    }
}

static void switched(void) {
    static uint64_t stack[1 << 13] __attribute__((aligned(16)));
    /* Left from before: words that look like return addresses, and some that do not. */
    for (size_t i = 0; i < sizeof stack / sizeof *stack; i++)
        stack[i] = i % 3 ? (uint64_t)(uintptr_t)&vforks + i % 32 : i;
    uint64_t *top = &stack[sizeof stack / sizeof *stack - 64];
    top[0] = 0; /* where bare_coroutine would return to: nowhere */
    *--top = (uint64_t)(uintptr_t)&bare_coroutine;
    top -= 6;
    memset(top, 0, 6 * sizeof *top);
    own_stack = top;
    while (cpu_seconds() < seconds) {
        spin(10000);
        switch_stack(&main_stack, own_stack);
    }
}

int main(int argc, char **argv) {
    if (argc < 3) return 2;
    seconds = atof(argv[2]);
    if (!strcmp(argv[1], "signals")) signals(SA_RESTART);
    else if (!strcmp(argv[1], "altstack")) signals(SA_RESTART | SA_ONSTACK);
    else if (!strcmp(argv[1], "vfork")) vforks();
#if !defined(WITHOUT_UCONTEXT)
    else if (!strcmp(argv[1], "ucontext")) contexts();
#endif
    else if (!strcmp(argv[1], "coroutine")) switched();
    else return 2;
    return 0;
}
