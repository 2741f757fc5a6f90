/* Files that are mapped at one address in turn.
 *
 * -DLIBRARY=N -shared: a library whose entry() works in library_N().
 * -DPROGRAM=N: a program that works in program_N(), and then executes OTHER with ROUNDS - 1 and
 *     itself: in_turn ROUNDS OTHER SELF
 * neither: loads two libraries in turn, 80 times each, and calls their entry() in calls_N():
 *     in_turn MODE LIBRARY_1 LIBRARY_2
 *     paths: by their paths; links: by the path of a link that is replaced each time; copies: by a
 *     path in the current directory, to which they are copied; waits: as paths, after a byte of
 *     standard input.
 * The work is 3 ms of CPU time; in library_1, program_1, 9 ms. Then 100 kB are allocated.
 */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#define FUNCTION(KIND, N) FUNCTION_OF(KIND, N)
#define FUNCTION_OF(KIND, N) KIND##_##N
/* Each call has work behind it, so that it is no tail call. */
#define APART __attribute__((noinline, noclone))
/* So that both libraries have their functions at the same addresses. */
#define PLACED __attribute__((aligned(1024)))

volatile unsigned long sink;

static inline double cpu(void) {
    struct timespec t;
    clock_gettime(CLOCK_THREAD_CPUTIME_ID, &t);
    return t.tv_sec + t.tv_nsec / 1e9;
}

#if defined LIBRARY || defined PROGRAM

/* The frames of the two differ: one's unwind table is wrong in the other. */
#if LIBRARY + 0 == 2 || PROGRAM + 0 == 2
#define MILLISECONDS 3
#define WORDS 2
#else
#define MILLISECONDS 9
#define WORDS 40
#endif

#ifdef LIBRARY
#define WORK FUNCTION(library, LIBRARY)
#else
#define WORK FUNCTION(program, PROGRAM)
#endif

APART PLACED void WORK(void) {
    volatile unsigned long words[WORDS];
    double end = cpu() + MILLISECONDS / 1e3;
    do
        for (int i = 0; i < 20000; i++) words[i % WORDS] = sink += i * sink + 1;
    while (cpu() < end);
    void *block = malloc(100000);
    sink += (unsigned long)block + words[0];
    free(block);
}
#endif

#ifdef LIBRARY
PLACED void entry(void) {
    WORK();
    sink++;
}
#elif defined PROGRAM
int main(int argc, char **argv) {
    WORK();
    int rounds = argc > 1 ? atoi(argv[1]) - 1 : 0;
    if (rounds <= 0) return 0;
    char left[16];
    snprintf(left, sizeof left, "%d", rounds);
    execl(argv[2], argv[2], left, argv[3], argv[2], (char *)0);
    return 127;
}
#else

APART void calls_1(void (*entry)(void)) {
    entry();
    sink++;
}

APART void calls_2(void (*entry)(void)) {
    entry();
    sink++;
}

static void copy(const char *from, const char *to) {
    static char bytes[1 << 20];
    FILE *in = fopen(from, "r"), *out = fopen("copy.new", "w");
    size_t size = in && out ? fread(bytes, 1, sizeof bytes, in) : 0;
    if (!size || fwrite(bytes, 1, size, out) != size || fclose(out) || rename("copy.new", to))
        perror(from);
    fclose(in);
}

int main(int argc, char **argv) {
    if (argc < 4) return 2;
    const char *mode = argv[1];
    char byte;
    if (!strcmp(mode, "waits") && read(0, &byte, 1) < 0) return 1;
    int same = 0;
    void *before = 0;
    for (int i = 0; i < 160; i++) {
        const char *path = argv[2 + i % 2];
        if (!strcmp(mode, "links")) {
            unlink("link.so");
            if (symlink(path, "link.so")) perror("symlink");
            path = "./link.so";
        } else if (!strcmp(mode, "copies")) {
            copy(path, "copy.so");
            path = "./copy.so";
        }
        void *library = dlopen(path, RTLD_NOW);
        if (!library) return fprintf(stderr, "%s\n", dlerror()), 1;
        void (*entry)(void) = (void (*)(void))dlsym(library, "entry");
        same += (void *)entry == before;
        before = (void *)entry;
        (i % 2 ? calls_2 : calls_1)(entry);
        dlclose(library);
    }
    printf("same address: %d of 159\n", same);
}
#endif
