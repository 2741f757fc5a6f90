/* Threads that map and unmap memory all the time: mappers THREADS. They compete for the lock of
 * their process's address space. */
#include <pthread.h>
#include <stdlib.h>
#include <sys/mman.h>

static void *work(void *unused) {
    for (;;) {
        char *at = mmap(NULL, 1 << 16, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
        if (at == MAP_FAILED) abort();
        at[0] = 1;
        munmap(at, 1 << 16);
    }
    return unused;
}

int main(int argc, char **argv) {
    int threads = argc > 1 ? atoi(argv[1]) : 2;
    pthread_t thread;
    while (threads-- > 1) pthread_create(&thread, NULL, work, NULL);
    work(NULL);
}
