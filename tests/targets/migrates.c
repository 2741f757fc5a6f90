/* Moves itself from one CPU to another and back, TIMES in all: there() and back() half of it each.
 *
 * usage: migrates TIMES
 */
#define _GNU_SOURCE
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>

static void moves_to(int cpu) {
    cpu_set_t set;
    CPU_ZERO(&set);
    CPU_SET(cpu, &set);
    if (sched_setaffinity(0, sizeof set, &set)) perror("sched_setaffinity");
}

/* Each call has work of its own behind it, so that it is no tail call and all functions differ. */
#define FUNCTION __attribute__((noinline, noclone)) static void

FUNCTION begins(int cpu) {
    moves_to(cpu);
    __asm__ volatile("# begins");
}

FUNCTION there(int cpu) {
    moves_to(cpu);
    __asm__ volatile("# there");
}

FUNCTION back(int cpu) {
    moves_to(cpu);
    __asm__ volatile("# back");
}

int main(int argc, char **argv) {
    int times = argc > 1 ? atoi(argv[1]) : 100, cpus[2], found = 0;
    cpu_set_t allowed;
    if (sched_getaffinity(0, sizeof allowed, &allowed)) return 1;
    for (int cpu = 0; cpu < CPU_SETSIZE && found < 2; cpu++)
        if (CPU_ISSET(cpu, &allowed)) cpus[found++] = cpu;
    if (found < 2) return 2;
    begins(cpus[0]);
    for (int n = 0; n < times / 2; n++) {
        there(cpus[1]);
        back(cpus[0]);
    }
    return 0;
}
