/* Waits in a function below others for return probes: main -> upper -> lower -> wait_here.
 *
 * usage: probed_waits N     (waits of a millisecond)
 */
#include <stdlib.h>
#include <unistd.h>

static volatile int sink;

__attribute__((noipa)) int wait_here(int n) {
    usleep(1000);
    return n + sink;
}

__attribute__((noipa)) int lower(int n) { return wait_here(n) + 1; }

__attribute__((noipa)) int upper(int n) { return lower(n) + 1; }

int main(int argc, char **argv) {
    for (int i = argc > 1 ? atoi(argv[1]) : 1; i > 0; i--)
        sink += upper(i);
    return 0;
}
