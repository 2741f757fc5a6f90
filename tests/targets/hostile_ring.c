// Attacks the memory that it shares with prof: hostile_ring MODE. The offsets of its parts come
// from the test, as macros.

#define _GNU_SOURCE
#include <dirent.h>
#include <fcntl.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <time.h>
#include <unistd.h>

static void *volatile sink;
static char *base;

// 100 MiB before the attack.
__attribute__((noinline, noclone)) static void honest(void) {
  for (int i = 0; i < 100; i++) sink = malloc(1 << 20);
}

static void find(void) {
  FILE *maps = fopen("/proc/self/maps", "r");
  char line[600];
  while (!base && fgets(line, sizeof line, maps)) {
    unsigned long from, to;
    if (strstr(line, "rw-s") && sscanf(line, "%lx-%lx", &from, &to) == 2 &&
        !memcmp((void *)from, "profhp", 6)) {
      base = (char *)from;
    }
  }
  fclose(maps);
  if (!base) abort();
}

static volatile uint64_t *at(size_t offset) { return (volatile uint64_t *)(base + offset); }

static uint64_t word(uint64_t position, uint64_t granules, uint64_t state) {
  return state << 56 | granules << 32 | (position & 0xffffffff);
}

static double now(void) {
  struct timespec t;
  clock_gettime(CLOCK_MONOTONIC, &t);
  return t.tv_sec + t.tv_nsec / 1e9;
}

// All descriptors and paths that may lead to the file.
static void truncate_it(void) {
  const char *path = getenv("PROF_HEAP_RING");
  char copy[300] = "";
  if (path) snprintf(copy, sizeof copy, "%s", path);
  char *number = strchr(copy, ';');
  if (number) *number++ = 0;
  int fd = open(copy, O_RDWR);
  int tried = 0;
  if (fd >= 0) tried++, printf("%d\n", ftruncate(fd, 0));
  if (number) tried++, printf("%d\n", ftruncate(atoi(number), 1 << 20));
  if (!tried) printf("nothing to cut\n");
  fflush(stdout);
}

int main(int argc, char **argv) {
  const char *mode = argc > 1 ? argv[1] : "";
  honest();
  // Prof has polled by then.
  usleep(500000);
  find();
  uint64_t next = *at(NEXT);
  double end = now() + 1;
  if (!strcmp(mode, "cut")) {
    truncate_it();
  } else if (!strcmp(mode, "lost")) {
    for (uint64_t i = 0; i < GRANULES; i++) *at(WORDS + 8 * i) = word(i, 1, 4);
    *at(NEXT) = 1ull << 62;
  } else if (!strcmp(mode, "frees")) {
    for (int i = 0; i < FREES; i++) *at(FREES_AT + 32 * i) = ~0ull;
    *at(FREES_NEXT) = 1ull << 62;
  } else if (!strcmp(mode, "endless")) {
    // Records as fast as they are read.
    for (uint64_t p = next; now() < end; p++) {
      for (int i = 0; i < 16; i++) *at(RING + p % GRANULES * 256 + 8 * i) = i == 1;
      *at(WORDS + 8 * (p % GRANULES)) = word(p, 1, 2);
      *at(NEXT) = p + 1;
    }
  } else if (!strcmp(mode, "others")) {
    // Allocations of an unrelated process.
    int32_t pid = argc > 2 ? atoi(argv[2]) : 1;
    for (uint64_t p = next; p < next + 1000; p++) {
      volatile uint64_t *record = at(RING + p % GRANULES * 256);
      for (int i = 0; i < 16; i++) record[i] = 0;
      record[0] = 1ull << 62 | p;
      record[1] = 1;
      record[3] = 1 << 20;
      record[4] = 1;
      // Without a number; with the process and the thread.
      ((volatile int32_t *)record)[11] = pid;
      ((volatile int32_t *)record)[12] = pid;
      *at(WORDS + 8 * (p % GRANULES)) = word(p, 1, 2);
      *at(NEXT) = p + 1;
    }
  } else if (!strcmp(mode, "random")) {
    unsigned seed = 7;
    while (now() < end) {
      for (int i = 0; i < 64; i++) base[rand_r(&seed) % 4096] = rand_r(&seed);
      for (int i = 0; i < 4096; i++) {
        *at(WORDS + 8 * (rand_r(&seed) % GRANULES)) = (uint64_t)rand_r(&seed) << 32 | rand_r(&seed);
        *at(RING + 8 * (rand_r(&seed) % (32 * GRANULES))) = rand_r(&seed) * 0x100000001ull;
      }
      *at(NEXT) += rand_r(&seed) % 5;
    }
  }
  usleep(200000);
  _exit(0);
}
