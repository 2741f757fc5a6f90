/* Deep stacks that change all the time, and whose permitted shapes are known: rounds of some
 * hundred microseconds are red and blue by turns. A stack has functions of one colour only.
 *
 * usage: deep_stacks SHAPE DEPTH SECONDS [thread]
 *
 * SHAPE: buffers      large buffers that are not written to
 *        recursion    a recursion of each colour
 *        parents      one recursion under parents of both colours
 *        dispatcher   one dispatcher that calls handlers of a colour through pointers
 *        parser       a parser by recursive descent, brackets of a colour
 */
#include <pthread.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#define NOINLINE __attribute__((noinline, noclone))
#ifdef INLINED
#define STEP static inline __attribute__((always_inline)) void
#else
#define STEP NOINLINE static void
#endif

/* A frame of some hundred bytes that lives until the function returns. */
#define FRAME                                                                                      \
    volatile char frame[400];                                                                      \
    frame[0] = 1
#define KEEP __asm__ volatile("" ::"r"(frame) : "memory")

static volatile uint64_t sink;

static double seconds(clockid_t clock) {
    struct timespec t;
    clock_gettime(clock, &t);
    return (double)t.tv_sec + (double)t.tv_nsec * 1e-9;
}

typedef void leaf(void);
typedef void handler(long depth, int colour);

static leaf *const leaves[2];
static handler *const handlers[2][3];

NOINLINE static void shared(long depth, int colour) {
    FRAME;
    if (depth > 1) shared(depth - 1, colour);
    else leaves[colour]();
    KEEP;
}

NOINLINE static void dispatch(long depth, int colour) {
    static unsigned turn;
    if (depth > 1) handlers[colour][turn++ % 3](depth, colour);
    else leaves[colour]();
    sink++;
}

static const char *at;
static void expression(void);
static void bracket_red(void), bracket_blue(void), number_red(void), number_blue(void);

NOINLINE static void factor(void) {
    FRAME;
    switch (*at++) {
    case '(': bracket_red(); break;
    case '[': bracket_blue(); break;
    case 'r': number_red(); break;
    default: number_blue();
    }
    KEEP;
}

NOINLINE static void term(void) {
    FRAME;
    factor();
    if (*at == '*') at++, term();
    KEEP;
}

NOINLINE static void expression(void) {
    FRAME;
    term();
    if (*at == '+') at++, expression();
    KEEP;
}

#define COLOUR(c, number, open, close)                                                             \
    NOINLINE static void spin_##c(void) {                                                          \
        double end = seconds(CLOCK_THREAD_CPUTIME_ID) + 3e-4;                                      \
        do                                                                                         \
            for (int i = 0; i < 3000; i++) sink += (uint64_t)i * sink;                             \
        while (seconds(CLOCK_THREAD_CPUTIME_ID) < end);                                            \
    }                                                                                              \
    STEP work_##c(void) { spin_##c(), sink++; }                                                    \
    NOINLINE static void leaf_##c(void) { work_##c(), sink++; }                                    \
    NOINLINE static void buffer_##c(void) {                                                        \
        char large[100000];                                                                        \
        memset(large, 1, 64);                                                                      \
        __asm__ volatile("" ::"r"(large) : "memory");                                              \
        work_##c();                                                                                \
        sink += (uint64_t)large[9];                                                                \
    }                                                                                              \
    STEP buffers_##c(long depth) { buffer_##c(), sink += (uint64_t)depth; }                        \
    NOINLINE static void dive_##c(long depth) {                                                    \
        FRAME;                                                                                     \
        if (depth > 1) dive_##c(depth - 1);                                                        \
        else work_##c();                                                                           \
        KEEP;                                                                                      \
    }                                                                                              \
    STEP recursion_##c(long depth) { dive_##c(depth), sink++; }                                    \
    STEP parents_##c(long depth) { shared(depth, number), sink++; }                                \
    NOINLINE static void first_##c(long depth, int colour) {                                       \
        FRAME;                                                                                     \
        dispatch(depth - 1, colour);                                                               \
        KEEP;                                                                                      \
    }                                                                                              \
    NOINLINE static void second_##c(long depth, int colour) {                                      \
        FRAME;                                                                                     \
        dispatch(depth - 1, colour), sink++;                                                       \
        KEEP;                                                                                      \
    }                                                                                              \
    /* Calls the dispatcher at its end: it has no frame then. */                                   \
    NOINLINE static void third_##c(long depth, int colour) {                                       \
        sink++;                                                                                    \
        dispatch(depth - 1, colour);                                                               \
    }                                                                                              \
    STEP dispatcher_##c(long depth) { dispatch(depth, number), sink++; }                           \
    NOINLINE static void number_##c(void) { work_##c(), sink++; }                                  \
    NOINLINE static void bracket_##c(void) {                                                       \
        expression();                                                                              \
        at++, sink++;                                                                              \
    }                                                                                              \
    STEP parser_##c(long depth) {                                                                  \
        static char text[1 << 16];                                                                 \
        if (depth > 10000) depth = 10000;                                                          \
        memset(text, open, (size_t)depth);                                                         \
        text[depth] = #c[0];                                                                       \
        memset(text + depth + 1, close, (size_t)depth);                                            \
        at = text;                                                                                 \
        expression();                                                                              \
        sink++;                                                                                    \
    }

COLOUR(red, 0, '(', ')')
COLOUR(blue, 1, '[', ']')

static leaf *const leaves[2] = {leaf_red, leaf_blue};
static handler *const handlers[2][3] = {{first_red, second_red, third_red},
                                        {first_blue, second_blue, third_blue}};

static char **arguments;

NOINLINE static void *drive(void *unused) {
    (void)unused;
    long depth = atol(arguments[2]);
    double end = seconds(CLOCK_PROCESS_CPUTIME_ID) + atof(arguments[3]);
#define SHAPE(name)                                                                                \
    if (!strcmp(arguments[1], #name))                                                              \
        while (seconds(CLOCK_PROCESS_CPUTIME_ID) < end) name##_red(depth), name##_blue(depth)
    SHAPE(buffers);
    SHAPE(recursion);
    SHAPE(parents);
    SHAPE(dispatcher);
    SHAPE(parser);
    return 0;
}

int main(int argc, char **argv) {
    if (argc < 4) return 2;
    arguments = argv;
    if (argc == 4) {
        drive(0);
        return sink == 1;
    }
    pthread_t thread;
    pthread_create(&thread, 0, drive, 0);
    pthread_join(thread, 0);
    return sink == 1;
}
