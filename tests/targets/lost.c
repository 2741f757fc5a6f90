/* Busy in assembly from which no unwinder can find its caller: it moves its stack pointer by
 * a number that is not on the stack. usage: lost SECONDS */
#include <stdint.h>
#include <stdlib.h>
#include <time.h>

void lost(uint64_t rounds, uint64_t room);

__asm__(".text\n"
        ".globl lost\n"
        ".type lost, @function\n"
        "lost:\n"
        "    sub %rsi, %rsp\n"
        "1:  dec %rdi\n"
        "    jnz 1b\n"
        "    add %rsi, %rsp\n"
        "    ret\n"
        ".size lost, . - lost\n");

int main(int argc, char **argv) {
    double seconds = argc > 1 ? atof(argv[1]) : 1;
    struct timespec t;
    do {
        lost(1000000, (uint64_t)(argc + 6) / 8 * 64);
        clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &t);
    } while ((double)t.tv_sec + (double)t.tv_nsec * 1e-9 < seconds);
    return 0;
}
