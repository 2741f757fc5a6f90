/* A program whose threads wait for locks, and measure their own waits.
 *
 * usage: locks KIND ROUNDS [confined]
 *
 * KIND is mutex, recursive, errorcheck, adaptive, pi, read, write, semaphore, condition or join.
 * The main thread holds the lock for 10 ms, ROUNDS times, from the moment when a second thread,
 * `waiter`, waits for it in take() (for a condition: waits for the signal; for a join: for a
 * thread to end). At the end the waiter's time in take() is printed, in seconds of wall time, and
 * the address of the lock: `SECONDS ADDRESS`. confined: under a seccomp filter that kills it for
 * all but the system calls that it makes itself.
 */
#define _GNU_SOURCE
#include <pthread.h>
#include <semaphore.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "waiter.h"
#ifdef __GLIBC__
#include "confine.h"
#endif

static const char *kind;
static int rounds;
static double waited;
static pthread_mutex_t mutex;
static pthread_rwlock_t rwlock = PTHREAD_RWLOCK_INITIALIZER;
static pthread_mutex_t guard = PTHREAD_MUTEX_INITIALIZER;
static pthread_cond_t condition = PTHREAD_COND_INITIALIZER;
static sem_t semaphore;
static int signaled;

static double now(void) {
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return t.tv_sec + t.tv_nsec / 1e9;
}

static int is(const char *name) { return strcmp(kind, name) == 0; }

static void *address(void) {
    if (is("read") || is("write")) return &rwlock;
    return is("semaphore") ? (void *)&semaphore : &mutex;
}

static void *nap(void *unused) {
    usleep(10000);
    return unused;
}

static void lock(int writes) {
    if (is("semaphore"))
        sem_wait(&semaphore);
    else if (is("read") || is("write"))
        writes ? pthread_rwlock_wrlock(&rwlock) : pthread_rwlock_rdlock(&rwlock);
    else
        pthread_mutex_lock(&mutex);
}

static void unlock(void) {
    if (is("semaphore"))
        sem_post(&semaphore);
    else if (is("read") || is("write"))
        pthread_rwlock_unlock(&rwlock);
    else
        pthread_mutex_unlock(&mutex);
}

/* Waits of other kinds. */
static void other(void) {
    if (is("condition")) {
        pthread_mutex_lock(&guard);
        while (!signaled) pthread_cond_wait(&condition, &guard);
        signaled = 0;
        pthread_mutex_unlock(&guard);
    } else {
        pthread_t napper;
        pthread_create(&napper, NULL, nap, NULL);
        pthread_join(napper, NULL);
    }
}

/* Each call has work behind it, so that it is no tail call. */
__attribute__((noinline, noclone)) static void take(void) {
    double since = now();
    if (is("condition") || is("join"))
        other();
    else
        lock(is("write"));
    waited += now() - since;
}

__attribute__((noinline, noclone)) static void give(void) {
    if (!is("join")) until_waiter_sleeps();
    usleep(10000);
    if (is("condition")) {
        pthread_mutex_lock(&guard);
        signaled = 1;
        pthread_cond_signal(&condition);
        pthread_mutex_unlock(&guard);
    } else if (!is("join")) {
        unlock();
    }
    __asm__ volatile("");
}

/* The lock is free to be held again when the waiter has had it. The two meet at a pipe, which is no
 * futex. */
static int go[2], back[2];

static void *waiter(void *unused) {
    pthread_setname_np(pthread_self(), "waiter");
    waiter_begins();
    char byte = 0;
    if (write(back[1], &byte, 1) != 1) perror("write");
    for (int n = 0; n < rounds; n++) {
        if (read(go[0], &byte, 1) != 1) perror("read");
        take();
        if (!is("condition") && !is("join")) unlock();
        if (write(back[1], &byte, 1) != 1) perror("write");
    }
    return unused;
}

static int type(void) {
    if (is("recursive")) return PTHREAD_MUTEX_RECURSIVE;
    if (is("errorcheck")) return PTHREAD_MUTEX_ERRORCHECK;
#ifdef __GLIBC__
    if (is("adaptive")) return PTHREAD_MUTEX_ADAPTIVE_NP;
#endif
    return PTHREAD_MUTEX_NORMAL;
}

static void confines(void) {
#ifdef __GLIBC__
    static const int calls[] = {
        SYS_read,  SYS_write,      SYS_futex, SYS_clock_nanosleep, SYS_clock_gettime,   SYS_fstat,
        SYS_brk,   SYS_newfstatat, SYS_rseq,  SYS_rt_sigprocmask,  SYS_set_robust_list, SYS_prctl,
        SYS_munmap, SYS_madvise,   SYS_exit,  SYS_exit_group,      SYS_pread64,
    };
    confine(calls, sizeof calls / sizeof *calls);
#endif
}

int main(int argc, char **argv) {
    kind = argc > 1 ? argv[1] : "mutex";
    rounds = argc > 2 ? atoi(argv[2]) : 20;
    pthread_mutexattr_t attr;
    pthread_mutexattr_init(&attr);
    pthread_mutexattr_settype(&attr, type());
    if (is("pi")) pthread_mutexattr_setprotocol(&attr, PTHREAD_PRIO_INHERIT);
    pthread_mutex_init(&mutex, &attr);
    sem_init(&semaphore, 0, 1);
    if (pipe(go) || pipe(back)) return 1;
    pthread_t thread;
    pthread_create(&thread, NULL, waiter, NULL);
    char byte = 0;
    if (read(back[0], &byte, 1) != 1) perror("read");
    if (argc > 3) confines();
    for (int n = 0; n < rounds; n++) {
        if (!is("condition") && !is("join")) lock(1);
        if (write(go[1], &byte, 1) != 1) perror("write");
        give();
        if (read(back[0], &byte, 1) != 1) perror("read");
    }
    pthread_join(thread, NULL);
    printf("%f %p\n", waited, address());
}
