/* Runs BPF programs in the kernel: `first` for MS milliseconds of CPU time, unloads it, then
 * `second`, of the same size, for twice as long. With `for-ever`, runs `first` until it is killed.
 *
 * usage: bpf MS|for-ever
 */
#include <linux/bpf.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

enum { LENGTH = 3000 };

static int load(const char *name, int factor) {
    static struct bpf_insn code[LENGTH];
    memset(code, 0, sizeof code);
    code[0] = (struct bpf_insn){.code = BPF_ALU64 | BPF_MOV | BPF_K, .imm = 1};
    for (int n = 1; n < LENGTH - 1; n++)
        code[n] = (struct bpf_insn){.code = BPF_ALU64 | BPF_MUL | BPF_K, .imm = factor};
    code[LENGTH - 1] = (struct bpf_insn){.code = BPF_JMP | BPF_EXIT};
    union bpf_attr attr;
    memset(&attr, 0, sizeof attr);
    attr.prog_type = BPF_PROG_TYPE_SOCKET_FILTER;
    attr.insns = (uint64_t)code;
    attr.insn_cnt = LENGTH;
    attr.license = (uint64_t)"GPL";
    strcpy(attr.prog_name, name);
    return syscall(SYS_bpf, BPF_PROG_LOAD, &attr, sizeof attr);
}

static double seconds(void) {
    struct timespec t;
    clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &t);
    return t.tv_sec + t.tv_nsec * 1e-9;
}

static int run(int program, double until) {
    static char packet[64];
    while (until == 0 || seconds() < until) {
        union bpf_attr attr;
        memset(&attr, 0, sizeof attr);
        attr.test.prog_fd = program;
        attr.test.data_in = (uint64_t)packet;
        attr.test.data_size_in = sizeof packet;
        attr.test.repeat = 1000;
        if (syscall(SYS_bpf, BPF_PROG_TEST_RUN, &attr, sizeof attr) != 0) {
            perror("BPF_PROG_TEST_RUN");
            return 1;
        }
    }
    return 0;
}

int main(int argc, char **argv) {
    int for_ever = argc > 1 && !strcmp(argv[1], "for-ever");
    double part = argc > 1 ? atol(argv[1]) * 1e-3 : 0.3;
    int program = load("first", 3);
    if (program < 0) {
        perror("BPF_PROG_LOAD");
        return 3;
    }
    puts("ready");
    fflush(stdout);
    if (run(program, for_ever ? 0 : seconds() + part)) return 1;
    close(program);
    program = load("second", 5);
    if (program < 0 || run(program, seconds() + 2 * part)) return 1;
    close(program);
    return 0;
}
