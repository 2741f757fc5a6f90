/* A waiter and the thread that lets it wait: the second one learns when the first one sleeps. */
#include <fcntl.h>
#include <string.h>
#include <unistd.h>

static int waiter_stat;

/* To be called by the waiter, before the other thread goes on. */
static inline void waiter_begins(void) { waiter_stat = open("/proc/thread-self/stat", O_RDONLY); }

/* Returns when the waiter sleeps, in the call to which it was woken before. */
static inline void until_waiter_sleeps(void) {
    char text[512];
    for (;;) {
        ssize_t n = pread(waiter_stat, text, sizeof text - 1, 0);
        text[n > 0 ? n : 0] = 0;
        const char *name_end = strrchr(text, ')');
        if (name_end && strncmp(name_end, ") S", 3) == 0) return;
        usleep(1000);
    }
}
