// Checks that waiting system calls are neither interrupted nor end too early, whatever is done to
// the process in the meantime. Prints "ready", then works until its standard input ends, and prints
// the number of calls and the number of those that went wrong.
//
// usage: interrupted all|CALL MILLISECONDS
//
// all: each call in a thread of its own; CALL: that one alone, in the only thread.

#define _GNU_SOURCE
#include <errno.h>
#include <linux/aio_abi.h>
#include <linux/futex.h>
#include <poll.h>
#include <pthread.h>
#include <semaphore.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/ipc.h>
#include <sys/msg.h>
#include <sys/select.h>
#include <sys/sem.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <sys/un.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

static long milliseconds;
static atomic_long made, wrong;
static atomic_int over;

static double now(clockid_t clock) {
    struct timespec t;
    clock_gettime(clock, &t);
    return (double)t.tv_sec * 1e3 + (double)t.tv_nsec / 1e6;
}

static struct timespec after(clockid_t clock) {
    struct timespec t;
    clock_gettime(clock, &t);
    t.tv_nsec += milliseconds * 1000000;
    t.tv_sec += t.tv_nsec / 1000000000;
    t.tv_nsec %= 1000000000;
    return t;
}

static struct timespec span(void) {
    struct timespec t = {milliseconds / 1000, milliseconds % 1000 * 1000000};
    return t;
}

// Objects for each thread to wait for, which never become ready.
struct Things {
    int pipe[2], set, sockets[2], listens, semaphores, queue;
    aio_context_t aio;
    sem_t sem;
    pthread_mutex_t mutex;
    pthread_cond_t condition;
    uint32_t word;
    sigset_t usr1, every;
};

static void make(struct Things *t) {
    memset(t, 0, sizeof *t);
    struct timeval limit = {milliseconds / 1000, milliseconds % 1000 * 1000};
    if (pipe(t->pipe) || socketpair(AF_UNIX, SOCK_STREAM, 0, t->sockets)) abort();
    setsockopt(t->sockets[0], SOL_SOCKET, SO_RCVTIMEO, &limit, sizeof limit);
    t->set = epoll_create1(0);
    struct sockaddr_un any = {.sun_family = AF_UNIX};
    t->listens = socket(AF_UNIX, SOCK_STREAM, 0);
    // Without a name, the kernel assigns one.
    if (bind(t->listens, (struct sockaddr *)&any, sizeof any.sun_family) || listen(t->listens, 1)) abort();
    setsockopt(t->listens, SOL_SOCKET, SO_RCVTIMEO, &limit, sizeof limit);
    t->semaphores = semget(IPC_PRIVATE, 1, 0600);
    t->queue = msgget(IPC_PRIVATE, 0600);
    syscall(SYS_io_setup, 1, &t->aio);
    sem_init(&t->sem, 0, 0);
    pthread_mutex_init(&t->mutex, NULL);
    pthread_cond_init(&t->condition, NULL);
    sigemptyset(&t->usr1);
    sigaddset(&t->usr1, SIGUSR1);
    sigfillset(&t->every);
    pthread_sigmask(SIG_BLOCK, &t->usr1, NULL);
}

static void unmake(struct Things *t) {
    semctl(t->semaphores, 0, IPC_RMID);
    msgctl(t->queue, IPC_RMID, NULL);
}

// The expected results: 0 for an elapsed time, which the caller checks.
static int failed_with(long result, int error) { return result == -1 && errno == error ? 0 : 1; }

static int by_epoll(struct Things *t) {
    struct epoll_event e;
    return epoll_wait(t->set, &e, 1, (int)milliseconds);
}
static int by_epoll_pwait(struct Things *t) {
    // The signals are blocked except during the call.
    struct epoll_event e;
    sigset_t before, none;
    sigemptyset(&none);
    pthread_sigmask(SIG_BLOCK, &t->every, &before);
    int result = epoll_pwait(t->set, &e, 1, (int)milliseconds, &none), error = errno;
    pthread_sigmask(SIG_SETMASK, &before, NULL);
    errno = error;
    return result;
}
static int by_poll(struct Things *t) {
    struct pollfd fd = {t->pipe[0], POLLIN, 0};
    return poll(&fd, 1, (int)milliseconds);
}
static int by_ppoll(struct Things *t) {
    struct pollfd fd = {t->pipe[0], POLLIN, 0};
    struct timespec time = span();
    sigset_t none;
    sigemptyset(&none);
    return ppoll(&fd, 1, &time, &none);
}
static int by_select(struct Things *t) {
    struct timeval time = {milliseconds / 1000, milliseconds % 1000 * 1000};
    fd_set set;
    FD_ZERO(&set);
    FD_SET(t->pipe[0], &set);
    return select(t->pipe[0] + 1, &set, NULL, NULL, &time);
}
static int by_pselect(struct Things *t) {
    struct timespec time = span();
    fd_set set;
    FD_ZERO(&set);
    FD_SET(t->pipe[0], &set);
    return pselect(t->pipe[0] + 1, &set, NULL, NULL, &time, NULL);
}
static int by_nanosleep(struct Things *t) {
    struct timespec time = span();
    (void)t;
    return nanosleep(&time, NULL);
}
static int by_clock(struct Things *t) {
    struct timespec time = after(CLOCK_MONOTONIC);
    (void)t;
    return clock_nanosleep(CLOCK_MONOTONIC, TIMER_ABSTIME, &time, NULL);
}
static int by_futex(struct Things *t) {
    struct timespec time = span();
    return failed_with(syscall(SYS_futex, &t->word, FUTEX_WAIT, 0, &time, NULL, 0), ETIMEDOUT);
}
static int by_sem(struct Things *t) {
    struct timespec time = after(CLOCK_REALTIME);
    return failed_with(sem_timedwait(&t->sem, &time), ETIMEDOUT);
}
static int by_condition(struct Things *t) {
    struct timespec time = after(CLOCK_REALTIME);
    pthread_mutex_lock(&t->mutex);
    int result = pthread_cond_timedwait(&t->condition, &t->mutex, &time);
    pthread_mutex_unlock(&t->mutex);
    return result == ETIMEDOUT ? 0 : 1;
}
static int by_sigtimedwait(struct Things *t) {
    struct timespec time = span();
    return failed_with(sigtimedwait(&t->usr1, NULL, &time), EAGAIN);
}
static int by_any_signal(struct Things *t) {
    // No process sends any of them, nor one that would be ignored.
    struct timespec time = span();
    sigset_t before;
    pthread_sigmask(SIG_BLOCK, &t->every, &before);
    int result = failed_with(sigtimedwait(&t->every, NULL, &time), EAGAIN), error = errno;
    pthread_sigmask(SIG_SETMASK, &before, NULL);
    errno = error;
    return result;
}
static int by_recv(struct Things *t) {
    char byte;
    return failed_with(recv(t->sockets[0], &byte, 1, 0), EAGAIN);
}
static int by_accept(struct Things *t) { return failed_with(accept(t->listens, NULL, NULL), EAGAIN); }
static int by_semop(struct Things *t) {
    struct timespec time = span();
    struct sembuf take = {0, -1, 0};
    return failed_with(semtimedop(t->semaphores, &take, 1, &time), EAGAIN);
}
static int by_aio(struct Things *t) {
    struct timespec time = span();
    struct io_event event;
    return (int)syscall(SYS_io_getevents, t->aio, 1, 1, &event, &time);
}
// A child that ends raises a signal that is ignored: it must not interrupt anything.
static int by_children(struct Things *t) {
    pid_t child = fork();
    if (child == 0) {
        struct timespec half = {milliseconds / 2000, milliseconds * 500000 % 1000000000};
        nanosleep(&half, NULL);
        _exit(0);
    }
    int result = by_epoll(t), error = errno;
    waitpid(child, NULL, 0);
    errno = error;
    return result;
}
// These calls have no time-out: the end of a child, or a message, ends them.
static int by_read(struct Things *t) {
    pid_t child = fork();
    if (child == 0) {
        struct timespec time = span();
        nanosleep(&time, NULL);
        struct {
            long kind;
            char text;
        } message = {1, 'x'};
        _exit(write(t->pipe[1], "x", 1) != 1 || msgsnd(t->queue, &message, 1, 0));
    }
    char byte;
    struct {
        long kind;
        char text[8];
    } message;
    int result = read(t->pipe[0], &byte, 1) == 1 && byte == 'x' ? 0 : 1;
    if (!result) result = msgrcv(t->queue, &message, 8, 0, 0) == 1 ? 0 : 2;
    int error = errno, status = 0;
    if (!result) result = waitpid(child, &status, 0) == child && status == 0 ? 0 : 3;
    if (result != 3) errno = error;
    return result;
}

struct Call {
    const char *name;
    int (*make)(struct Things *);
    int by_date;
};

static const struct Call calls[] = {
    {"epoll_wait", by_epoll},   {"epoll_pwait", by_epoll_pwait},
    {"poll", by_poll},          {"ppoll", by_ppoll},
    {"select", by_select},      {"pselect", by_pselect},
    {"nanosleep", by_nanosleep}, {"clock_nanosleep", by_clock},
    {"futex", by_futex},        {"sem_timedwait", by_sem, 1},
    {"condition", by_condition, 1}, {"sigtimedwait", by_sigtimedwait},
    {"any_signal", by_any_signal}, {"recv", by_recv},
    {"accept", by_accept},      {"semtimedop", by_semop},
    {"io_getevents", by_aio},   {"children", by_children},
    {"read", by_read},
};
enum { CALLS = sizeof calls / sizeof *calls };

static void once(const struct Call *call, struct Things *things) {
    void *volatile block = malloc(1000);
    free(block);
    errno = 0;
    double began = now(CLOCK_MONOTONIC), date = now(CLOCK_REALTIME);
    int result = call->make(things), error = errno;
    double took = now(CLOCK_MONOTONIC) - began;
    // Some wait for a time of day, which may be set in the meantime.
    if (call->by_date && now(CLOCK_REALTIME) - date > took) took = now(CLOCK_REALTIME) - date;
    made++;
    // A millisecond: clocks of different kinds differ, and some waits round.
    if (result != 0 || took < (double)milliseconds - 1) {
        wrong++;
        fprintf(stderr, "wrong: %s: %d (errno %d) after %.3f ms\n", call->name, result, error, took);
    }
}

static void *works(void *argument) {
    struct Things things;
    make(&things);
    while (!over) once(argument, &things);
    unmake(&things);
    return NULL;
}

static int input_ends(int wait) {
    struct pollfd fd = {0, POLLIN, 0};
    return poll(&fd, 1, wait) > 0;
}

int main(int argc, char **argv) {
    if (argc != 3 || (milliseconds = atol(argv[2])) <= 0) return 2;
    const struct Call *alone = NULL;
    for (int i = 0; i < CALLS; i++) {
        if (!strcmp(argv[1], calls[i].name)) alone = &calls[i];
    }
    if (alone) {
        struct Things things;
        make(&things);
        puts("ready");
        fflush(stdout);
        while (!input_ends(0)) once(alone, &things);
        unmake(&things);
    } else {
        pthread_t threads[CALLS];
        for (int i = 0; i < CALLS; i++) {
            if (pthread_create(&threads[i], NULL, works, (void *)&calls[i])) return 1;
        }
        puts("ready");
        fflush(stdout);
        while (!input_ends(1000)) continue;
        over = 1;
        for (int i = 0; i < CALLS; i++) pthread_join(threads[i], NULL);
    }
    printf("%ld calls, %ld wrong\n", made, wrong);
    return wrong != 0;
}
