/* Busy in assembly that no table describes: no unwind information, no frame pointer, and more on
 * the stack than the return address. usage: uncovered SECONDS */
#include <stdint.h>
#include <stdlib.h>
#include <time.h>

void bare(uint64_t rounds);

__asm__(".text\n"
        ".globl bare\n"
        ".type bare, @function\n"
        "bare:\n"
        "    push %rbp\n"
        "    push $0\n"
        "    xor %ebp, %ebp\n"
        "1:  dec %rdi\n"
        "    jnz 1b\n"
        "    pop %rbp\n"
        "    pop %rbp\n"
        "    ret\n"
        ".size bare, . - bare\n");

int main(int argc, char **argv) {
    double seconds = argc > 1 ? atof(argv[1]) : 1;
    struct timespec t;
    do {
        bare(1000000);
        clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &t);
    } while ((double)t.tv_sec + (double)t.tv_nsec * 1e-9 < seconds);
    return 0;
}
