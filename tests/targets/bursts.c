// Allocates known amounts faster than any reader can follow: bursts MODE.

#include <poll.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#define FUNCTION __attribute__((noinline, noclone))

static void *volatile sink;

static void pause_us(int us) {
  struct timespec t = {0, us * 1000L};
  nanosleep(&t, NULL);
}

// 150,000 bytes at once, before prof has polled.
FUNCTION static void first(void) {
  for (int i = 0; i < 1500; i++) sink = malloc(100);
}

// 40,000,000 bytes.
FUNCTION static void later(void) {
  for (int i = 0; i < 20000; i++) {
    sink = malloc(2000);
    if (i % 100 == 0) pause_us(1000);
  }
}

// 64,000,000 bytes each time.
FUNCTION static void bursts(void) {
  for (int i = 0; i < 1000000; i++) {
    void *p = malloc(64);
    sink = p;
    free(p);
  }
}

// 64,000,000 bytes, throughout the run.
FUNCTION static void trickles(void) {
  for (int i = 0; i < 1000; i++) {
    void *p = malloc(64000);
    sink = p;
    free(p);
    pause_us(200);
  }
}

// 64,000,000 bytes that are kept.
FUNCTION static void keeps(void) {
  for (int i = 0; i < 1000000; i++) sink = malloc(64);
}

// 104,857,600,000 bytes.
FUNCTION static void large(void) {
  for (int i = 0; i < 100000; i++) {
    void *p = malloc(1 << 20);
    sink = p;
    free(p);
  }
}

static void *in_thread(void *unused) {
  bursts();
  return unused;
}

int main(int argc, char **argv) {
  const char *mode = argc > 1 ? argv[1] : "";
  pthread_t threads[8];
  if (!strcmp(mode, "early")) {
    first();
    later();
  } else if (!strcmp(mode, "asked")) {
    // Allocates for each line that it reads, and never waits for long.
    setvbuf(stdout, NULL, _IOLBF, 0);
    puts("ready");
    for (char line = '\n'; line == '\n';) {
      struct pollfd input = {0, POLLIN, 0};
      if (poll(&input, 1, 20) <= 0) continue;
      if (read(0, &line, 1) != 1) break;
      first();
      puts("done");
    }
  } else if (!strcmp(mode, "threads")) {
    for (int i = 0; i < 8; i++) pthread_create(&threads[i], NULL, in_thread, NULL);
    trickles();
    for (int i = 0; i < 8; i++) pthread_join(threads[i], NULL);
  } else if (!strcmp(mode, "large")) {
    large();
  } else if (!strcmp(mode, "keeps")) {
    keeps();
  }
  return 0;
}
