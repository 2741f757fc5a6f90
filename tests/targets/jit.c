/* A JIT compiler with a known answer: generates loops at run time, runs them and names them in the
 * files that profilers read.
 *
 * usage: jit MODE [MS]     (MS: CPU time of a part, 300)
 *
 *   map        `jitted` for one part, named in /tmp/perf-PID.map before it runs
 *   late       the same, but named after it has run, as by Java
 *   python     `py::hot:/app/hot.py`, as CPython 3.12 with -X perf
 *   reuse-map  at the same addresses `phase_a` for one part and `phase_b` for two, in the map
 *   reuse-dump the same in a jitdump, ten times by turns
 *   lines      `jitted` of /src/jit.src with source lines, in a jitdump: the loop is line 8
 *   move       `moved` for one part; it moves, `other` takes its place; then two parts of `moved`
 *              at its new place and one of `other`
 *   cut        as lines, but the jitdump ends within a record
 *   garbage    no map at all, but a file that looks like one
 *   littered   as map, but with seven additional lines that are invalid, one of them of an
 *              impossible size, at the same address
 *   remade     as map, but with a line of older code, `old`, before it
 *   pipe       a pipe where the map should be
 *   none       the loop for one part, and no file
 */
#define _GNU_SOURCE
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

static const unsigned char loop[] = {
    0x55,                   /* push rbp */
    0x48, 0x89, 0xe5,       /* mov rbp, rsp */
    0x48, 0x89, 0xf9,       /* mov rcx, rdi */
    0x48, 0xff, 0xc9,       /* dec rcx */
    0x75, 0xfb,             /* jnz dec */
    0x5d,                   /* pop rbp */
    0xc3,                   /* ret */
};

static uint64_t now(clockid_t clock) {
    struct timespec t;
    clock_gettime(clock, &t);
    return t.tv_sec * 1000000000ULL + t.tv_nsec;
}

static FILE *map, *dump;

static void in_map(const void *code, const char *name) {
    fprintf(map, "%lx %zx %s\n", (long)code, sizeof loop, name);
    fflush(map);
}

static void words(const uint64_t *words, size_t count) { fwrite(words, 8, count, dump); }

static void prefix(uint32_t kind, uint32_t body) {
    uint32_t prefix[] = {kind, body + 16};
    uint64_t time = now(CLOCK_MONOTONIC);
    fwrite(prefix, sizeof prefix, 1, dump);
    words(&time, 1);
}

static void in_dump(const void *code, const char *name) {
    uint64_t body[] = {(uint64_t)getpid() | (uint64_t)getpid() << 32, (uint64_t)code,
                       (uint64_t)code, sizeof loop, 1};
    prefix(0, sizeof body + strlen(name) + 1 + sizeof loop);
    words(body, 5);
    fwrite(name, strlen(name) + 1, 1, dump);
    fwrite(loop, sizeof loop, 1, dump);
    fflush(dump);
}

static void lines_in_dump(const void *code) {
    const char *file = "/src/jit.src";
    uint64_t at = (uint64_t)code;
    uint64_t head[] = {at, 2}, first[] = {at, 7}, second[] = {at + 7, 8};
    prefix(2, 16 + 2 * 16 + strlen(file) + 1 + 2);
    words(head, 2);
    words(first, 2);
    fwrite(file, strlen(file) + 1, 1, dump);
    words(second, 2);
    fwrite("\xff", 2, 1, dump);
}

static void open_dump(void) {
    char name[64];
    snprintf(name, sizeof name, "jit-%d.dump", getpid());
    dump = fopen(name, "w+");
    uint32_t head[] = {0x4a695444, 1, 40, 62, 0, getpid()};
    uint64_t tail[] = {now(CLOCK_MONOTONIC), 0};
    fwrite(head, sizeof head, 1, dump);
    words(tail, 2);
    fflush(dump);
    /* A mapping that profilers notice. */
    if (mmap(NULL, 4096, PROT_READ | PROT_EXEC, MAP_PRIVATE, fileno(dump), 0) == MAP_FAILED)
        perror("mmap");
}

/* Runs code for some CPU time. */
__attribute__((noinline)) static void run(void *code, double parts, long ms) {
    uint64_t end = now(CLOCK_PROCESS_CPUTIME_ID) + (uint64_t)(parts * ms * 1e6);
    while (now(CLOCK_PROCESS_CPUTIME_ID) < end) ((void (*)(long))code)(100000);
}

int main(int argc, char **argv) {
    const char *mode = argc > 1 ? argv[1] : "map";
    long ms = argc > 2 ? atol(argv[2]) : 300;
    char name[64];
    char *page = mmap(NULL, 8192, PROT_READ | PROT_WRITE | PROT_EXEC,
                      MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    char *code = page + 64, *there = page + 4096;
    memcpy(code, loop, sizeof loop);
    int with_map = strstr("map late python reuse-map garbage littered remade", mode) != NULL;
    if (with_map) {
        snprintf(name, sizeof name, "/tmp/perf-%d.map", getpid());
        map = fopen(name, "w");
    } else if (!strcmp(mode, "pipe")) {
        snprintf(name, sizeof name, "/tmp/perf-%d.map", getpid());
        if (mkfifo(name, 0600)) perror("mkfifo");
    } else if (strcmp(mode, "none")) {
        open_dump();
    }
    if (!strcmp(mode, "remade")) in_map(code, "old");
    if (!strcmp(mode, "map") || !strcmp(mode, "remade")) in_map(code, "jitted");
    if (!strcmp(mode, "littered")) {
        in_map(code, "jitted");
        for (int n = 0; n < 6; n++) fprintf(map, "no line %d\n", n);
        fprintf(map, "%lx ffffffffffffffff huge\n", (long)code);
        fflush(map);
    }
    if (!strcmp(mode, "python")) in_map(code, "py::hot:/app/hot.py");
    if (!strcmp(mode, "garbage")) {
        for (int n = 0; n < 1000; n++) fprintf(map, "%c%cgarbage\n\n%x", n, 255 - n % 100, n);
        fflush(map);
    }
    if (!strcmp(mode, "lines") || !strcmp(mode, "cut")) {
        lines_in_dump(code);
        in_dump(code, "jitted");
    }
    if (!strcmp(mode, "cut")) {
        prefix(0, 4000);
        fflush(dump);
    }
    if (!strcmp(mode, "reuse-map")) {
        in_map(code, "phase_a");
        run(code, 1, ms);
        in_map(code, "phase_b");
        run(code, 2, ms);
    } else if (!strcmp(mode, "reuse-dump")) {
        for (int n = 0; n < 10; n++) {
            in_dump(code, "phase_a");
            run(code, 1, ms);
            in_dump(code, "phase_b");
            run(code, 2, ms);
        }
    } else if (!strcmp(mode, "move")) {
        in_dump(code, "moved");
        run(code, 1, ms);
        uint64_t body[] = {(uint64_t)getpid() | (uint64_t)getpid() << 32, (uint64_t)there,
                           (uint64_t)code, (uint64_t)there, sizeof loop, 1};
        memcpy(there, loop, sizeof loop);
        prefix(1, sizeof body);
        words(body, 6);
        in_dump(code, "other");
        run(there, 2, ms);
        run(code, 1, ms);
    } else {
        run(code, 1, ms);
    }
    if (!strcmp(mode, "late")) in_map(code, "jitted");
    return 0;
}
