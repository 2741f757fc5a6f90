/* Ends its first thread; another one is busy in burn(), until it is killed. */
#include <pthread.h>
#include <stdint.h>
#include <stdio.h>

static volatile uint64_t x = 1;

__attribute__((noinline)) static void burn(void) {
    for (;;) x = x * 3 + 1;
}

static void *run(void *leader) {
    pthread_join(*(pthread_t *)leader, NULL);
    puts("ready");
    fflush(stdout);
    burn();
    return NULL;
}

int main(void) {
    static pthread_t leader, other;
    leader = pthread_self();
    pthread_create(&other, NULL, run, &leader);
    pthread_exit(NULL);
}
