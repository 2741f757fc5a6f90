/* Does two jobs in turn, each under a name of its own, and measures them.
 *
 * usage: renames thread|exec|vfork
 *
 * thread: the thread gives itself another name, ten times; exec: the process executes itself again;
 * vfork: so do ten children, one after the other. Each job works 40 ms of CPU time in work_one() or
 * 20 ms in work_two(), naps as long in nap_one() or nap_two(), and waits for a lock for half of it
 * in take_one() or take_two(). Their times are printed in seconds: `NAME FUNCTION SECONDS`.
 */
#define _GNU_SOURCE
#include <fcntl.h>
#include <pthread.h>
#include <stdio.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

static int asks[2], answers[2];
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;

/* Seconds of a job's functions. */
struct times {
    double worked, napped, taken;
};
static struct times one, two;

static double now(clockid_t clock) {
    struct timespec t;
    clock_gettime(clock, &t);
    return t.tv_sec + t.tv_nsec / 1e9;
}

/* Each call has work behind it, so that it is no tail call. */
#define JOB(NAME)                                                                                  \
    __attribute__((noinline, noclone)) static void work_##NAME(double seconds) {                   \
        double begin = now(CLOCK_THREAD_CPUTIME_ID), end = begin + seconds;                        \
        volatile unsigned long x = 1;                                                              \
        do                                                                                         \
            for (int i = 0; i < 10000; i++) x = x * 5 + 1;                                         \
        while (now(CLOCK_THREAD_CPUTIME_ID) < end);                                                \
        NAME.worked += now(CLOCK_THREAD_CPUTIME_ID) - begin;                                       \
    }                                                                                              \
    __attribute__((noinline, noclone)) static void nap_##NAME(double seconds) {                    \
        double begin = now(CLOCK_MONOTONIC);                                                       \
        usleep(seconds * 1e6);                                                                     \
        NAME.napped += now(CLOCK_MONOTONIC) - begin;                                               \
    }                                                                                              \
    __attribute__((noinline, noclone)) static void take_##NAME(double seconds) {                   \
        if (write(asks[1], &seconds, sizeof seconds) < 0 || read(answers[0], &seconds, 1) < 0)     \
            perror("pipe");                                                                        \
        double begin = now(CLOCK_MONOTONIC);                                                       \
        pthread_mutex_lock(&lock);                                                                 \
        NAME.taken += now(CLOCK_MONOTONIC) - begin;                                                \
        pthread_mutex_unlock(&lock);                                                               \
    }                                                                                              \
    static void job_##NAME(double seconds) {                                                       \
        prctl(PR_SET_NAME, #NAME);                                                                 \
        work_##NAME(seconds);                                                                      \
        nap_##NAME(seconds);                                                                       \
        take_##NAME(seconds / 2);                                                                  \
    }

JOB(one)
JOB(two)

static void report(const char *name, struct times t) {
    printf("%s work_%s %f\n%s nap_%s %f\n%s take_%s %f\n", name, name, t.worked, name, name,
           t.napped, name, name, t.taken);
    fflush(stdout);
}

/* Holds the lock as long as it is asked to. */
static void *holds(void *unused) {
    double seconds;
    while (read(asks[0], &seconds, sizeof seconds) == sizeof seconds) {
        pthread_mutex_lock(&lock);
        if (write(answers[1], "", 1) != 1) perror("write");
        usleep(seconds * 1e6);
        pthread_mutex_unlock(&lock);
    }
    return unused;
}

int main(int argc, char **argv) {
    const char *mode = argc > 1 ? argv[1] : "thread";
    pthread_t holder;
    if (pipe2(asks, O_CLOEXEC) || pipe2(answers, O_CLOEXEC)) return 1;
    pthread_create(&holder, NULL, holds, NULL);
    if (!strcmp(mode, "second")) {
        for (int i = 0; i < (argc > 2 ? 1 : 10); i++) job_two(0.02);
        report("two", two);
        return 0;
    }
    for (int i = 0; i < 10; i++) {
        job_one(0.04);
        if (!strcmp(mode, "thread")) job_two(0.02);
        if (!strcmp(mode, "vfork")) {
            pid_t child = vfork();
            if (child == 0) {
                execl("/proc/self/exe", argv[0], "second", "once", (char *)0);
                _exit(127);
            }
            waitpid(child, NULL, 0);
        }
    }
    report("one", one);
    if (!strcmp(mode, "thread")) report("two", two);
    if (!strcmp(mode, "exec")) execl("/proc/self/exe", argv[0], "second", (char *)0);
    return !strcmp(mode, "exec");
}
