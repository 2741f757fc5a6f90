/* Busy in assembly without unwind information; the lowest words of its stack are left from others:
 * the word at the stack pointer is a return address, but a stale one. usage: stale SECONDS */
#include <stdlib.h>
#include <time.h>

#define NI __attribute__((noinline))
#define LOOP                                                                                       \
    "    mov %rdi, %rcx\n"                                                                         \
    "1:  imul $0x5851f42d, %rax, %rax\n"                                                           \
    "    add $1, %rax\n"                                                                           \
    "    dec %rcx\n"                                                                               \
    "    jnz 1b\n"
#define FUNCTION(name, enter, leave)                                                               \
    ".globl " #name "\n.type " #name ", @function\n" #name ":\n" enter LOOP leave                  \
    "    ret\n.size " #name ", . - " #name "\n"

void small(long n), large(long n), saves(long n), aligns(long n), inner(void);

__asm__(".text\n"
        FUNCTION(small, "    sub $16, %rsp\n", "    add $16, %rsp\n")
        FUNCTION(large, "    sub $24, %rsp\n", "    lea 24(%rsp), %rsp\n")
        FUNCTION(saves, "    push %rbx\n    push %rbp\n    sub $8, %rsp\n",
                 "    pop %rbp\n    pop %rbp\n    pop %rbx\n")
        FUNCTION(aligns,
                 "    mov %rsp, %r10\n    sub $96, %rsp\n    and $-32, %rsp\n"
                 "    mov %r10, 64(%rsp)\n    xor %r10d, %r10d\n",
                 "    mov 64(%rsp), %rsp\n")
        ".globl inner\n.type inner, @function\ninner:\n    nop\n    ret\n.size inner, . - inner\n");

volatile long sink;

NI void prepares(void) {
    inner();
    sink++;
}

/* Leaves return addresses in all the words that the next function will have. */
NI void fills(int depth) {
    prepares();
    if (depth > 0)
        fills(depth - 1);
    sink++;
}

#define CALLS(name)                                                                                \
    NI void calls_##name(void) {                                                                   \
        fills(3);                                                                                  \
        name(20000);                                                                               \
        sink++;                                                                                    \
    }
CALLS(small)
CALLS(large)
CALLS(saves)
CALLS(aligns)

int main(int argc, char **argv) {
    double seconds = argc > 1 ? atof(argv[1]) : 1;
    struct timespec t;
    do {
        calls_small();
        calls_large();
        calls_saves();
        calls_aligns();
        clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &t);
    } while ((double)t.tv_sec + (double)t.tv_nsec * 1e-9 < seconds);
    return 0;
}
