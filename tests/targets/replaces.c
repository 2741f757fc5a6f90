// A thread that is not the first calls execve after a while; the program then naps.
#include <pthread.h>
#include <string.h>
#include <unistd.h>

static char *self;

static void *replaces(void *unused) {
    usleep(300000);
    execl(self, self, "nap", (char *)0);
    return unused;
}

int main(int argc, char **argv) {
    if (argc > 1 && !strcmp(argv[1], "nap")) return usleep(400000);
    self = argv[0];
    pthread_t thread;
    pthread_create(&thread, NULL, replaces, NULL);
    pthread_join(thread, NULL);
}
