/* Puts values into a BPF map for SECONDS of CPU time.
 *
 * usage: bpf_maps SECONDS
 */
#include <linux/bpf.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

enum { KEYS = 1000, VALUE = 4096 };

static double seconds(void) {
    struct timespec t;
    clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &t);
    return t.tv_sec + t.tv_nsec * 1e-9;
}

int main(int argc, char **argv) {
    double until = argc > 1 ? atof(argv[1]) : 1;
    union bpf_attr attr;
    memset(&attr, 0, sizeof attr);
    attr.map_type = BPF_MAP_TYPE_HASH;
    attr.key_size = sizeof(uint32_t);
    attr.value_size = VALUE;
    attr.max_entries = KEYS;
    int map = syscall(SYS_bpf, BPF_MAP_CREATE, &attr, sizeof attr);
    if (map < 0) {
        perror("BPF_MAP_CREATE");
        return 1;
    }
    static char value[VALUE];
    while (seconds() < until)
        for (uint32_t key = 0; key < KEYS; key++) {
            memset(&attr, 0, sizeof attr);
            attr.map_fd = map;
            attr.key = (uint64_t)&key;
            attr.value = (uint64_t)value;
            syscall(SYS_bpf, BPF_MAP_UPDATE_ELEM, &attr, sizeof attr);
        }
}
