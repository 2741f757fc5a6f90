// Threads that each have one activity: some wait for a mutex, one for a condition, one reads from a
// pipe, one sleeps, one runs. Prints "ready" when all of them do this, then waits to be killed.
//
// usage: blocked WAITERS

#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/prctl.h>
#include <unistd.h>

static pthread_mutex_t mutex = PTHREAD_MUTEX_INITIALIZER, other = PTHREAD_MUTEX_INITIALIZER;
static pthread_cond_t condition = PTHREAD_COND_INITIALIZER;
static int ends[2];
static volatile unsigned long spun;
static atomic_int there;

__attribute__((noinline)) static void waits_for_the_mutex(void) {
    pthread_mutex_lock(&mutex);
    puts("never");
}

__attribute__((noinline)) static void waits_for_the_condition(void) {
    pthread_mutex_lock(&other);
    for (;;) pthread_cond_wait(&condition, &other);
}

__attribute__((noinline)) static void reads_from_the_pipe(void) {
    char byte;
    if (read(ends[0], &byte, 1) >= 0) puts("never");
}

__attribute__((noinline)) static void sleeps(void) {
    for (;;) sleep(1000);
}

__attribute__((noinline)) static void runs(void) {
    for (;;) spun++;
}

struct Job {
    const char *name;
    void (*work)(void);
};

static void *begin(void *argument) {
    struct Job *job = argument;
    prctl(PR_SET_NAME, job->name);
    there++;
    job->work();
    return NULL;
}

int main(int argc, char **argv) {
    static struct Job waiter = {"waiter", waits_for_the_mutex};
    static struct Job jobs[] = {
        {"conditional", waits_for_the_condition},
        {"reader", reads_from_the_pipe},
        {"sleeper", sleeps},
        {"runner", runs},
    };
    int waiters = argc > 1 ? atoi(argv[1]) : 5;
    pthread_t thread;
    if (pipe(ends)) return 1;
    pthread_mutex_lock(&mutex);
    for (int i = 0; i < waiters; i++) pthread_create(&thread, NULL, begin, &waiter);
    for (int i = 0; i < 4; i++) pthread_create(&thread, NULL, begin, &jobs[i]);
    while (there < waiters + 4) usleep(10000);
    // Each thread has one more step to go.
    usleep(200000);
    puts("ready");
    fflush(stdout);
    pause();
    return 0;
}
