// Threads that wait for a lock below functions for return probes.
// usage: probed_locks ROUNDS
#include <pthread.h>
#include <stdlib.h>
#include <time.h>

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static volatile int sink;

__attribute__((noinline)) int wait_here(void) {
    pthread_mutex_lock(&lock);
    struct timespec time = {0, 2000000};
    nanosleep(&time, 0);
    pthread_mutex_unlock(&lock);
    return sink + 1;
}

__attribute__((noinline)) int lower(void) { return wait_here() + 1; }

__attribute__((noinline)) int upper(void) { return lower() + 1; }

static void *run(void *rounds) {
    for (long i = 0; i < (long)rounds; i++)
        sink += upper();
    return 0;
}

int main(int argc, char **argv) {
    void *rounds = (void *)(argc > 1 ? atol(argv[1]) : 100);
    pthread_t threads[3];
    for (int i = 0; i < 3; i++)
        pthread_create(&threads[i], 0, run, rounds);
    for (int i = 0; i < 3; i++)
        pthread_join(threads[i], 0);
}
