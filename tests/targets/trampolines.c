/* Functions that call each other through run-time code without frame pointers, as CPython with -X perf
 * does: outer -> trampoline -> middle -> trampoline -> inner. The trampolines are named in
 * /tmp/perf-PID.map.
 *
 * usage: trampolines MS     (CPU time of inner)
 */
#define _GNU_SOURCE
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <time.h>
#include <unistd.h>

/* sub $8, %rsp; call *%rcx; add $8, %rsp; ret */
static const unsigned char code[] = {0x48, 0x83, 0xec, 8, 0xff, 0xd1, 0x48, 0x83, 0xc4, 8, 0xc3};

typedef long function(long);
/* Of four arguments, the last is the function that is called. */
typedef long trampoline(long, long, long, function *);

static trampoline *to_middle, *to_inner;
static volatile uint64_t sink;

static uint64_t cpu(void) {
    struct timespec t;
    clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &t);
    return t.tv_sec * 1000ULL + t.tv_nsec / 1000000;
}

__attribute__((noinline)) long inner(long ms) {
    uint64_t end = cpu() + ms;
    while (cpu() < end)
        for (int i = 0; i < 100000; i++) sink += i;
    return 1;
}

__attribute__((noinline)) long middle(long ms) { return to_inner(ms, 0, 0, inner) + 1; }

__attribute__((noinline)) long outer(long ms) { return to_middle(ms, 0, 0, middle) + 1; }

int main(int argc, char **argv) {
    enum { SIZE = 65536 };
    unsigned char *arena =
        mmap(NULL, SIZE, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (argc < 2 || arena == MAP_FAILED) return 1;
    for (size_t at = 0; at + sizeof code <= SIZE; at += sizeof code)
        memcpy(arena + at, code, sizeof code);
    if (mprotect(arena, SIZE, PROT_READ | PROT_EXEC)) return 1;
    char path[64];
    snprintf(path, sizeof path, "/tmp/perf-%d.map", getpid());
    FILE *map = fopen(path, "w");
    if (!map) return 1;
    to_middle = (trampoline *)arena;
    to_inner = (trampoline *)(arena + sizeof code);
    fprintf(map, "%lx %zx py::outer:/app/a.py\n", (long)to_middle, sizeof code);
    fprintf(map, "%lx %zx py::middle:/app/a.py\n", (long)to_inner, sizeof code);
    fclose(map);
    return outer(atol(argv[1])) != 3;
}
