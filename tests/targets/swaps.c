// swaps DIRECTORY TRAP: maps a file with code, runs in it, unmaps it, and puts a FIFO ("fifo"), or
// a link to TRAP, in its place; again and again until killed.
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

int main(int argc, char **argv) {
    // mov rcx, 0x2000000; 1: dec rcx; jnz 1b; ret
    static const unsigned char code[] = {0x48, 0xc7, 0xc1, 0, 0, 0x40, 0,
                                         0x48, 0xff, 0xc9, 0x75, 0xfb, 0xc3};
    if (argc < 3)
        return 2;
    alarm(60);
    for (long i = 0;; i++) {
        char path[4096], trap[4096];
        snprintf(path, sizeof path, "%s/code%ld", argv[1], i % 50);
        snprintf(trap, sizeof trap, "%s/trap", argv[1]);
        unlink(path);
        int fd = open(path, O_RDWR | O_CREAT | O_TRUNC, 0755);
        if (fd < 0 || ftruncate(fd, 4096) || pwrite(fd, code, sizeof code, 0) < 0)
            return 1;
        void *at = (void *)(0x200000000000UL + i * 0x10000UL);
        void *map = mmap(at, 4096, PROT_READ | PROT_EXEC, MAP_PRIVATE, fd, 0);
        close(fd);
        if (map == MAP_FAILED)
            return 1;
        ((void (*)(void))map)();
        munmap(map, 4096);
        unlink(trap);
        if (strcmp(argv[2], "fifo") ? symlink(argv[2], trap) : mkfifo(trap, 0666))
            return 1;
        rename(trap, path);
    }
}
