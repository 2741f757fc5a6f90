/* Creates threads one after the other for SECONDS of CPU time. usage: makes_threads SECONDS */
#include <pthread.h>
#include <stdlib.h>
#include <time.h>

static double now(void) {
    struct timespec t;
    clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &t);
    return (double)t.tv_sec + (double)t.tv_nsec * 1e-9;
}

static void *nothing(void *given) {
    return given;
}

int main(int argc, char **argv) {
    double until = now() + (argc > 1 ? atof(argv[1]) : 1);
    while (now() < until) {
        pthread_t thread;
        if (pthread_create(&thread, NULL, nothing, NULL) != 0)
            abort();
        pthread_join(thread, NULL);
    }
    return 0;
}
