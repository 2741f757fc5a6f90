/* Calls the kernel a known number of times: calls FILE BYTES TIMES [wait].
 *
 * Reads BYTES of FILE directly in fetch(), TIMES times; reads its parent's PID in ask(), TIMES
 * times; sleeps 5 ms in doze(), 20 times. Prints times in seconds: of the three functions, and of the
 * fastest read: FETCH ASK DOZE FASTEST. `wait`: begins when standard input ends.
 */
#define _GNU_SOURCE
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

static int fd, bytes, times;
static char *buffer;
static double fastest = 1e9;

static double now(void) {
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return t.tv_sec + t.tv_nsec / 1e9;
}

/* Each call has work behind it, so that it is no tail call. */
#define FUNCTION __attribute__((noinline, noclone)) static double

FUNCTION fetch(void) {
    double since = now();
    for (int n = 0; n < times; n++) {
        double begin = now();
        if (pread(fd, buffer, bytes, (off_t)n * bytes) != bytes) perror("pread");
        double took = now() - begin;
        if (took < fastest) fastest = took;
    }
    return now() - since;
}

FUNCTION ask(void) {
    double since = now();
    for (int n = 0; n < times; n++) syscall(SYS_getppid);
    return now() - since;
}

FUNCTION doze(void) {
    double since = now();
    struct timespec nap = {0, 5000000};
    for (int n = 0; n < 20; n++) clock_nanosleep(CLOCK_MONOTONIC, 0, &nap, NULL);
    return now() - since;
}

int main(int argc, char **argv) {
    if (argc < 4) return 2;
    bytes = atoi(argv[2]);
    times = atoi(argv[3]);
    fd = open(argv[1], O_RDONLY | O_DIRECT);
    if (fd < 0 || posix_memalign((void **)&buffer, 4096, bytes)) return 1;
    if (argc > 4) {
        puts("ready");
        fflush(stdout);
        while (getchar() != EOF) {}
    }
    double fetched = fetch(), asked = ask(), dozed = doze();
    printf("%f %f %f %.9f\n", fetched, asked, dozed, fastest);
}
