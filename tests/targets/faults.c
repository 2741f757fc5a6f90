/* Causes FAULTS page faults in `touch`, spread over some tenths of a second.
 *
 * usage: faults FAULTS
 */
#define _GNU_SOURCE
#include <stdlib.h>
#include <sys/mman.h>

enum { PAGES = 1000, PAGE = 4096 };

__attribute__((noinline)) static void touch(volatile char *pages) {
    for (int i = 0; i < PAGES; i++) pages[i * PAGE] = 1;
}

int main(int argc, char **argv) {
    long faults = argc > 1 ? atol(argv[1]) : 100000;
    char *pages = mmap(NULL, PAGES * PAGE, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (pages == MAP_FAILED) return 1;
    madvise(pages, PAGES * PAGE, MADV_NOHUGEPAGE);
    for (long done = 0; done < faults; done += PAGES) {
        touch(pages);
        madvise(pages, PAGES * PAGE, MADV_DONTNEED);
    }
    return 0;
}
