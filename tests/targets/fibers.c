// A stack that begins as those of boost's fibers do (`make_fcontext`): its first function is entered
// by a jump, and returns to code that no call is before. Without call frame information.
//
// usage: fibers SECONDS
#include <stdlib.h>
#include <time.h>

// enter(TOP, FUNCTION): runs FUNCTION on the stack that ends at TOP.
__asm__(".text\n"
        ".type enter, @function\n"
        "enter:\n"
        "mov %rdi, %rsp\n"
        "mov %rsi, %rbx\n"
        "lea 1f(%rip), %rbp\n"
        "push %rbp\n"
        "jmp *%rbx\n"
        "1:\n"
        "xor %edi, %edi\n"
        "call _exit@PLT\n"
        "hlt\n"
        ".size enter, . - enter\n");
void enter(void *top, void (*function)(void));

static double seconds;
static volatile unsigned long sink;

__attribute__((noinline)) static void work(void) {
    for (int i = 0; i < 20000; i++)
        sink += i * sink + 1;
}

static void in_fiber(void) {
    clock_t end = clock() + (clock_t)(seconds * CLOCKS_PER_SEC);
    while (clock() < end)
        work();
    sink++;
}

int main(int argc, char **argv) {
    const size_t size = 256 << 10;
    char *stack = aligned_alloc(4096, size);
    seconds = argc > 1 ? atof(argv[1]) : 1;
    enter(stack + size, in_fiber);
}
