/* Pieces of work for benches/events.rs: events KIND TIMES ROUNDS [DEVICE].
 *
 * TIMES times: works for ROUNDS rounds of a loop, and then causes one event. calls: getppid;
 * emulated, stepped: calls a function of that name; markers: passes the marker `app:step`;
 * faults: touches a page that is not present; switches: wakes another thread on this CPU and waits
 * until it has done the same; reads: 4 KiB of DEVICE, directly. Prints the duration in seconds of
 * wall time and of CPU time.
 */
#define _GNU_SOURCE
#include <fcntl.h>
#include <linux/futex.h>
#include <pthread.h>
#include <sched.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#include "marker.h"

enum { PAGE = 4096, PAGES = 1000, BLOCKS = 1024 };

static long times, rounds;
static int fd;
static char *pages;
static _Atomic unsigned turn;

static double now(clockid_t clock) {
    struct timespec t;
    clock_gettime(clock, &t);
    return t.tv_sec + t.tv_nsec / 1e9;
}

/* The kernel emulates the first instruction of one, and single-steps that of the other. */
void emulated(void);
void stepped(void *);
__asm__(".text\n .globl emulated\n .type emulated,@function\nemulated:\n .cfi_startproc\n"
        " push %rbp\n .cfi_def_cfa_offset 16\n .cfi_offset 6,-16\n pop %rbp\n .cfi_def_cfa 7,8\n"
        " ret\n .cfi_endproc\n .size emulated, .-emulated\n"
        ".globl stepped\n .type stepped,@function\nstepped:\n .cfi_startproc\n"
        " mov (%rdi),%rax\n ret\n .cfi_endproc\n .size stepped, .-stepped\n");

static void call(long n) { syscall(SYS_getppid), (void)n; }
static void calls_emulated(long n) { emulated(), (void)n; }
static void calls_stepped(long n) { stepped(&fd), (void)n; }
static void passes_a_marker(long n) {
    MARKER("step", "0");
    (void)n;
}

static void faults(long n) {
    if (n % PAGES == 0) madvise(pages, PAGES * PAGE, MADV_DONTNEED);
    ((volatile char *)pages)[n % PAGES * PAGE] = 1;
}

static void reads(long n) {
    if (pread(fd, pages, PAGE, n % BLOCKS * PAGE) != PAGE) perror("pread");
}

static void takes_turns(unsigned mine) {
    while (atomic_load(&turn) % 2 != mine)
        syscall(SYS_futex, &turn, FUTEX_WAIT_PRIVATE, mine ^ 1, NULL);
    atomic_store(&turn, mine ^ 1);
    syscall(SYS_futex, &turn, FUTEX_WAKE_PRIVATE, 1);
}

static void switches(long n) { takes_turns(0), (void)n; }

static void works(void (*event)(long), long n_times) {
    for (long n = 0; n < n_times; n++) {
        for (long i = rounds; i > 0; i--) __asm__ volatile("" ::: "memory");
        event(n);
    }
}

static void other(long n) { takes_turns(1), (void)n; }
static void *others(void *unused) {
    works(other, times / 2);
    return unused;
}

int main(int argc, char **argv) {
    if (argc < 4) return 2;
    const char *kind = argv[1];
    times = atol(argv[2]), rounds = atol(argv[3]);
    fd = argc > 4 ? open(argv[4], O_RDONLY | O_DIRECT) : 0;
    pages = mmap(NULL, PAGES * PAGE, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (fd < 0 || pages == MAP_FAILED || madvise(pages, PAGES * PAGE, MADV_NOHUGEPAGE)) return 1;
    struct { const char *name; void (*event)(long); } kinds[] = {
        {"calls", call}, {"emulated", calls_emulated}, {"stepped", calls_stepped},
        {"markers", passes_a_marker}, {"faults", faults}, {"reads", reads},
    };
    double since = now(CLOCK_MONOTONIC), cpu = now(CLOCK_PROCESS_CPUTIME_ID);
    if (strcmp(kind, "switches") == 0) {
        cpu_set_t one;
        CPU_ZERO(&one);
        CPU_SET(sched_getcpu(), &one);
        sched_setaffinity(0, sizeof one, &one);
        pthread_t thread;
        pthread_create(&thread, NULL, others, NULL);
        works(switches, times / 2);
        pthread_join(thread, NULL);
    }
    for (size_t i = 0; i < sizeof kinds / sizeof *kinds; i++)
        if (strcmp(kind, kinds[i].name) == 0) works(kinds[i].event, times);
    cpu = now(CLOCK_PROCESS_CPUTIME_ID) - cpu;
    printf("%f %f\n", now(CLOCK_MONOTONIC) - since, cpu);
}
