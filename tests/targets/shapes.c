/* Functions with frames of all shapes, and a C library that calls back. To be built without
 * unwind information. usage: shapes SECONDS [thread] */
#include <alloca.h>
#include <pthread.h>
#include <regex.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#define NI __attribute__((noinline))

static volatile long sink;
static double until;

NI static void spin(long n) {
    for (long i = 0; i < n; i++)
        sink = sink * 31 + i;
}

static int compare(const void *a, const void *b) {
    spin(3);
    return *(const int *)a - *(const int *)b;
}

NI static void sorts(void) {
    int all[200];
    for (int i = 0; i < 200; i++)
        all[i] = i * 7919 % 200;
    qsort(all, 200, sizeof *all, compare);
    sink += all[0];
}

NI static void prints(void) {
    char text[200];
    snprintf(text, sizeof text, "%f %s %d %g", (double)sink / 7, "some text", 42, 1e-300);
    sink += text[1];
}

NI static void matches(void) {
    regex_t r;
    regmatch_t m[2];
    if (regcomp(&r, "(a|b)*c[0-9]+x", REG_EXTENDED) != 0)
        abort();
    sink += regexec(&r, "abababababababc123456789abababcc1x", 2, m, 0);
    regfree(&r);
}

/* The stack pointer has no constant distance from the frame. */
NI static void room(long n) {
    char *all = alloca((size_t)n);
    memset(all, 1, (size_t)n);
    spin(200);
    sink += all[n / 2];
}

NI static void aligned(void) {
    _Alignas(64) volatile char all[256];
    for (int i = 0; i < 256; i++)
        all[i] = (char)i;
    spin(200);
    sink += all[3];
}

/* A table of jumps. */
NI static long chooses(int which) {
    char text[64];
    switch (which) {
    case 0: spin(50); return 1;
    case 1: spin(60); sink++; return 2;
    case 2: prints(); return 3;
    case 3: memset(text, which, 64); spin(70); return text[5];
    case 4: spin(80); sink--; return 9;
    case 5: spin(90); return sink;
    case 6: spin(95); sink += 4; return sink;
    case 7: spin(20); spin(30); return 4;
    case 8: sorts(); return 5;
    case 9: spin(10); return 6;
    default: return 0;
    }
}

/* Calls that never return are in the middle and at the end. */
NI static void checks(long n) {
    if (n < 0)
        abort();
    spin(n);
    if (sink == 123456789)
        exit((int)n);
    spin(n + 1);
    if (sink == 987654321) {
        spin(1);
        abort();
    }
}

/* Nothing is saved before it is needed. */
NI static long early(long a, long b, long c) {
    if (a == 0)
        return b;
    for (long i = 0; i < a; i++) {
        spin(b + i);
        c += b * i;
    }
    return c + a;
}

NI static double now(void) {
    struct timespec t;
    clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &t);
    return (double)t.tv_sec + (double)t.tv_nsec * 1e-9;
}

NI static void all(void) {
    sorts();
    prints();
    matches();
    for (long n = 16; n < 2000; n *= 3)
        room(n);
    aligned();
    for (int i = 0; i < 11; i++)
        sink += chooses(i);
    checks(100);
    sink += early(10, 30, 5) + early(0, 1, 2);
}

static void *works(void *unused) {
    while (now() < until)
        all();
    return unused;
}

int main(int argc, char **argv) {
    until = argc > 1 ? atof(argv[1]) : 1;
    pthread_t thread;
    if (argc > 2 && pthread_create(&thread, NULL, works, NULL) == 0)
        pthread_join(thread, NULL);
    else
        works(NULL);
    return 0;
}
