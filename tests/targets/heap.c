// Allocates in ways with known answers: heap MODE. Memory that is kept is in use at the end.

#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <malloc.h>
#include <pthread.h>
#include <signal.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <sys/time.h>
#include <sys/wait.h>
#include <time.h>
#include <ucontext.h>
#include <unistd.h>

#define MIB (1 << 20)
#define FUNCTION __attribute__((noinline, noclone))

// Keeps allocations from being optimized away.
static void *volatile sink;
static void use(void *p) {
  sink = p;
  __asm__ volatile("" ::: "memory");
}

static void pause_ms(int ms) {
  struct timespec t = {0, ms * 1000000L};
  while (nanosleep(&t, &t)) {
  }
}

// One MiB, half of the time.
FUNCTION static void breathes(void) {
  void *p = malloc(MIB);
  use(p);
  pause_ms(10);
  free(p);
  pause_ms(10);
}

FUNCTION static void keeps_one(void) { use(malloc(MIB)); }

static void steps(int n) {
  for (int i = 0; i < n; i++) breathes();
}

FUNCTION static void many_small(void) {
  for (int i = 0; i < 300000; i++) {
    void *p = malloc(48);
    use(p);
    free(p);
  }
}

FUNCTION static void medium_kept(void) {
  for (int i = 0; i < 2000; i++) use(calloc(10, 500));
}

FUNCTION static void aligned(void) {
  for (int i = 0; i < 20; i++) {
    void *p = NULL, *q = aligned_alloc(4096, MIB);
    if (posix_memalign(&p, 64, MIB) || (uintptr_t)p % 64 || (uintptr_t)q % 4096) abort();
    use(p);
    use(q);
    free(p);
    free(q);
  }
}

// 1000 + 2000 + ... + 500,000 bytes.
FUNCTION static void grows(void) {
  char *p = NULL;
  for (int i = 1; i <= 500; i++) {
    p = i % 2 ? realloc(p, i * 1000) : reallocarray(p, i, 1000);
    p[i * 1000 - 1] = 1;
    use(p);
  }
}

// Impossible requests are refused as usual.
FUNCTION static void refused(void) {
  volatile size_t huge = SIZE_MAX / 2;
  errno = 0;
  if (malloc(huge) || errno != ENOMEM) abort();
  if (calloc(huge, 16) || errno != ENOMEM) abort();
  if (reallocarray(NULL, huge, 16) || errno != ENOMEM) abort();
  char *p = strdup("kept");
  if (realloc(p, huge) || strcmp(p, "kept")) abort();
  free(p);
  void *q = NULL;
  if (posix_memalign(&q, 3, 8) != EINVAL) abort();
  free(NULL);
}

FUNCTION static void in_parent(void **p) {
  for (int i = 0; i < 16; i++) p[i] = malloc(MIB), use(p[i]);
}

FUNCTION static void in_child(void) {
  for (int i = 0; i < 8; i++) use(malloc(MIB));
}

FUNCTION static void after_exec(void) {
  for (int i = 0; i < 4; i++) use(malloc(MIB));
}

// The child frees its copies of its parent's blocks, which the parent still has.
static void forks(char *self) {
  void *p[16];
  in_parent(p);
  pid_t child = fork();
  if (child == 0) {
    for (int i = 0; i < 16; i++) free(p[i]);
    in_child();
    execl(self, self, "exec", NULL);
    _exit(1);
  }
  int status;
  if (waitpid(child, &status, 0) != child || status) abort();
}

static pthread_key_t key;

FUNCTION static void ending_thread(void *unused) {
  (void)unused;
  void *p = malloc(MIB);
  use(p);
  free(p);
}

// The next thread frees the block of this one.
FUNCTION static void *in_thread(void *before) {
  pthread_setspecific(key, &key);
  free(before);
  void *p = NULL;
  for (int i = 0; i < 8; i++) {
    free(p);
    p = malloc(MIB);
    use(p);
  }
  return p;
}

FUNCTION static void at_end(void) {
  void *p = malloc(MIB);
  use(p);
  free(p);
}

static volatile sig_atomic_t handled;

FUNCTION static void in_handler(int signal) {
  (void)signal;
  void *p = malloc(MIB);
  use(p);
  free(p);
  handled++;
}

static void odd_places(void) {
  atexit(at_end);
  pthread_key_create(&key, ending_thread);
  void *p = NULL;
  for (int i = 0; i < 4; i++) {
    pthread_t thread;
    if (pthread_create(&thread, NULL, in_thread, p) || pthread_join(thread, &p)) abort();
  }
  free(p);
  signal(SIGALRM, in_handler);
  struct itimerval each = {{0, 5000}, {0, 5000}};
  setitimer(ITIMER_REAL, &each, NULL);
  while (handled < 10) pause();
  memset(&each, 0, sizeof each);
  setitimer(ITIMER_REAL, &each, NULL);
  printf("%d\n", (int)handled);
}

// The function `allocates` of a library.
static void plugin(const char *path) {
  void *library = dlopen(path, RTLD_NOW | RTLD_LOCAL);
  if (!library) abort();
  void (*allocates)(void) = (void (*)(void))dlsym(library, "allocates");
  allocates();
}

FUNCTION static void maps(void) {
  for (int i = 0; i < 8; i++) {
    void *p = mmap(NULL, MIB, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (p == MAP_FAILED) abort();
    if (i % 2) munmap(p, MIB);
  }
}

static void *kept[32];

FUNCTION static void at_the_peak(void) {
  for (int i = 0; i < 8; i++) use(kept[i] = malloc(MIB));
}

FUNCTION static void before_the_peak(void) {
  for (int i = 8; i < 12; i++) use(kept[i] = malloc(MIB));
}

FUNCTION static void after_the_peak(void) {
  for (int i = 12; i < 18; i++) use(kept[i] = malloc(MIB));
}

static void peaks(void) {
  before_the_peak();
  at_the_peak();
  for (int i = 0; i < 12; i++) free(kept[i]);
  after_the_peak();
  breathes();
}

FUNCTION static void confined(void) {
  for (int i = 0; i < 8; i++) {
    void *p = malloc(MIB);
    use(p);
    free(p);
  }
}

// Only write and exit are permitted from now on: all other calls kill the process.
static void confine(void) {
  struct sock_filter filter[] = {
      BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, nr)),
      BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, SYS_write, 2, 0),
      BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, SYS_exit, 1, 0),
      BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_KILL_PROCESS),
      BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW),
  };
  struct sock_fprog program = {sizeof filter / sizeof *filter, filter};
  mallopt(M_MMAP_THRESHOLD, 64 * MIB);
  mallopt(M_TRIM_THRESHOLD, 64 * MIB);
  void *p = malloc(16 * MIB);
  use(p);
  free(p);
  if (prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0)) abort();
  if (prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &program)) abort();
  confined();
  if (write(1, "confined\n", 9) != 9) syscall(SYS_exit, 1);
  syscall(SYS_exit, 0);
}

// A copy of this stack would reach beyond the memory that the program made for it.
static void *small_stack;
FUNCTION static void on_small_stack(void) {
  for (int i = 0; i < 7; i++) {
    void *p = malloc(MIB);
    use(p);
    free(p);
  }
}

static void coroutine(void) {
  static ucontext_t here, there;
  size_t page = 4096;
  small_stack = mmap(NULL, 6 * page, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (mprotect((char *)small_stack + page, 4 * page, PROT_READ | PROT_WRITE)) abort();
  getcontext(&there);
  there.uc_stack.ss_sp = (char *)small_stack + page;
  there.uc_stack.ss_size = 4 * page;
  there.uc_link = &here;
  makecontext(&there, on_small_stack, 0);
  if (swapcontext(&here, &there)) abort();
}

int main(int argc, char **argv) {
  const char *mode = argc > 1 ? argv[1] : "";
  if (!strcmp(mode, "steps")) {
    steps(10);
    keeps_one();
  } else if (!strcmp(mode, "long")) {
    // A reader that waits for the end of the output does not wait for the end of the process.
    if (!freopen("/dev/null", "w", stdout) || !freopen("/dev/null", "w", stderr)) abort();
    steps(100000);
  } else if (!strcmp(mode, "daemon")) {
    void *p[16];
    in_parent(p);
    if (daemon(1, 0)) abort();
    steps(100000);
  } else if (!strcmp(mode, "idle_daemon")) {
    if (daemon(1, 0)) abort();
    pause();
  } else if (!strcmp(mode, "sizes")) {
    medium_kept();
    aligned();
    grows();
    refused();
  } else if (!strcmp(mode, "small")) {
    many_small();
  } else if (!strcmp(mode, "fork")) {
    forks(argv[0]);
  } else if (!strcmp(mode, "exec")) {
    after_exec();
  } else if (!strcmp(mode, "odd")) {
    odd_places();
  } else if (!strcmp(mode, "plugin")) {
    plugin(argv[2]);
  } else if (!strcmp(mode, "maps")) {
    maps();
  } else if (!strcmp(mode, "peaks")) {
    peaks();
  } else if (!strcmp(mode, "confined")) {
    confine();
  } else if (!strcmp(mode, "coroutine")) {
    coroutine();
  } else {
    return 2;
  }
  return 0;
}
