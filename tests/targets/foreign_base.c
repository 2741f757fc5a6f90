/* Runs on a stack of its own, with a base of thread-local memory (`fs`) that lies above it in the
 * same memory and is not the C library's: nothing states where the stack ends.
 *
 * usage: foreign_base ROUNDS
 */
#define _GNU_SOURCE
#include <asm/prctl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <unistd.h>

enum { SIZE = 4 << 20, STACK = 1 << 20, BASE = 3 << 20 };

/* About 300 KiB of stack, then the given rounds. It uses no thread-local memory. */
__attribute__((noinline, used)) static long descend(long depth, long rounds) {
    volatile long room[128];
    room[depth % 128] = depth;
    if (depth > 0) {
        room[0] += descend(depth - 1, rounds);
    } else {
        for (long i = 0; i < rounds; i++) __asm__ volatile("" : "+r"(i));
    }
    return room[0] + room[depth % 128];
}

__attribute__((noinline)) static void run(long rounds, void *stack, void *base, long own) {
    register long r12 __asm__("r12") = (long)stack;
    register long r13 __asm__("r13") = own;
    register long r14 __asm__("r14") = rounds;
    register long r15 __asm__("r15") = (long)base;
    __asm__ volatile(
        "xchg %%rsp, %%r12\n"
        "mov %%r15, %%rsi\n"
        "mov %[set], %%edi\n"
        "mov %[call], %%eax\n"
        "syscall\n"
        "mov $300, %%edi\n"
        "mov %%r14, %%rsi\n"
        "call descend\n"
        "mov %%r13, %%rsi\n"
        "mov %[set], %%edi\n"
        "mov %[call], %%eax\n"
        "syscall\n"
        "mov %%r12, %%rsp\n"
        : "+r"(r12), "+r"(r13), "+r"(r14), "+r"(r15)
        : [set] "i"(ARCH_SET_FS), [call] "i"(SYS_arch_prctl)
        : "rax", "rcx", "rdx", "rsi", "rdi", "r8", "r9", "r10", "r11", "memory", "cc");
}

int main(int argc, char **argv) {
    (void)argc;
    char *memory = mmap(NULL, SIZE, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (memory == MAP_FAILED) return 1;
    memset(memory, 0x11, SIZE);
    long own;
    if (syscall(SYS_arch_prctl, ARCH_GET_FS, &own) != 0) return 1;
    run(atol(argv[1]), memory + STACK, memory + BASE, own);
    return 0;
}
