/* Touches pages in one function and computes in another, in two threads and a child process.
 *
 * usage: groups PAGES
 *
 * Each of the three touches PAGES fresh pages in `touches`, and computes for 0.3 s of CPU time in
 * `spins`, which touches none.
 */
#define _GNU_SOURCE
#include <pthread.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

enum { AT_ONCE = 1000, PAGE = 4096 };

static long pages;
static volatile unsigned long sink;

__attribute__((noinline)) static void touches(volatile char *memory) {
    for (long done = 0; done < pages; done += AT_ONCE) {
        for (int i = 0; i < AT_ONCE; i++) memory[i * PAGE] = 1;
        madvise((void *)memory, AT_ONCE * PAGE, MADV_DONTNEED);
    }
}

__attribute__((noinline)) static unsigned long spins(void) {
    struct timespec now;
    clock_gettime(CLOCK_THREAD_CPUTIME_ID, &now);
    double until = now.tv_sec + now.tv_nsec * 1e-9 + 0.3;
    unsigned long sum = 0;
    do {
        for (unsigned long i = 0; i < 1000000; i++) {
            sum += i * i;
            __asm__ volatile("" : "+r"(sum));
        }
        clock_gettime(CLOCK_THREAD_CPUTIME_ID, &now);
    } while (now.tv_sec + now.tv_nsec * 1e-9 < until);
    return sum;
}

static void *works(void *unused) {
    char *memory =
        mmap(NULL, AT_ONCE * PAGE, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (memory == MAP_FAILED) _exit(1);
    madvise(memory, AT_ONCE * PAGE, MADV_NOHUGEPAGE);
    touches(memory);
    sink = spins();
    return unused;
}

int main(int argc, char **argv) {
    pages = argc > 1 ? atol(argv[1]) : 100000;
    pthread_t threads[2];
    for (int i = 0; i < 2; i++) pthread_create(&threads[i], NULL, works, NULL);
    for (int i = 0; i < 2; i++) pthread_join(threads[i], NULL);
    pid_t pid = fork();
    if (pid == 0) {
        works(NULL);
        _exit(0);
    }
    waitpid(pid, NULL, 0);
    return 0;
}
