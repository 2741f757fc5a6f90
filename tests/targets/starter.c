/* Starts a thread that stays and two that end, again and again, for ten seconds at most.
 *
 * usage: starter
 */
#define _GNU_SOURCE
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

static void *stays(void *unused) {
    (void)unused;
    pause();
    return NULL;
}

static void *ends(void *unused) {
    return unused;
}

__attribute__((noipa)) static void leaks_a_thread(void) {
    pthread_t thread;
    if (pthread_create(&thread, NULL, stays, NULL)) exit(3);
    pthread_detach(thread);
}

__attribute__((noipa)) static void uses_threads(void) {
    pthread_t threads[2];
    for (int i = 0; i < 2; i++)
        if (pthread_create(&threads[i], NULL, ends, NULL)) exit(3);
    for (int i = 0; i < 2; i++) pthread_join(threads[i], NULL);
}

int main(void) {
    puts("ready");
    fflush(stdout);
    for (int i = 0; i < 1000; i++) {
        leaks_a_thread();
        uses_threads();
        usleep(10000);
    }
    return 0;
}
