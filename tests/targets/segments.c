// A recursion on a stack in segments: to be built with -fsplit-stack.
//
// usage: segments DEPTH SECONDS
#include <stdlib.h>
#include <time.h>

static volatile unsigned long sink;

__attribute__((noinline)) static void work(void) {
    for (int i = 0; i < 20000; i++)
        sink += i * sink + 1;
}

__attribute__((noinline)) static int descend(int depth, clock_t end) {
    volatile char room[3000];
    room[depth % 3000] = 1;
    if (depth > 0)
        return descend(depth - 1, end) + room[depth % 3000];
    while (clock() < end)
        work();
    return room[0];
}

int main(int argc, char **argv) {
    clock_t end = clock() + (clock_t)(atof(argv[2]) * CLOCKS_PER_SEC);
    sink += descend(atoi(argv[1]), end);
}
