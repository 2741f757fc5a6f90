// Sleeps below three functions: "ever", or with an argument again and again for so many milliseconds,
// with 48 KiB of stack between them. With -DALLOCA, the innermost one moves its stack pointer by a
// number that is known at run time only.
#include <alloca.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static void use(void *bytes) { __asm__ volatile("" : : "r"(bytes) : "memory"); }

__attribute__((noinline)) static int inner(int milliseconds) {
#ifdef ALLOCA
    char *bytes = alloca(100 + milliseconds);
#else
    char bytes[300];
#endif
    use(bytes);
    int ready = poll(NULL, 0, milliseconds);
    use(bytes);
    return ready;
}

__attribute__((noinline)) static int middle(int milliseconds) {
    char bytes[48 << 10];
    // What is not in memory is not copied.
    memset(bytes, milliseconds, sizeof bytes);
    use(bytes);
    int ready = inner(milliseconds);
    use(bytes);
    return ready + 1;
}

__attribute__((noinline)) static int outer(int milliseconds) {
    do {
        use(&milliseconds);
        if (middle(milliseconds) != 1) abort();
    } while (milliseconds > 0);
    return 0;
}

int main(int argc, char **argv) {
    int milliseconds = argc > 1 ? atoi(argv[1]) : -1;
    puts("ready");
    fflush(stdout);
    return outer(milliseconds);
}
