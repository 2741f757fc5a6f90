// Leaves memory behind in ways with known answers: leaks MODE. Functions lost_... leave blocks that
// no pointer leads to, kept_... blocks that a pointer leads to at exit, freed frees its blocks.

#define _GNU_SOURCE
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <pthread.h>
#include <signal.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#define FUNCTION __attribute__((noipa))

struct node {
  struct node *next;
  void *data;
  char more[SIZE - 2 * sizeof(void *)];
};

// A block with content.
FUNCTION static struct node *block(struct node *next) {
  struct node *n = malloc(sizeof *n);
  memset(n->more, 1, sizeof n->more);
  n->next = next;
  n->data = NULL;
  return n;
}

// Clears the pointers that are left on the stack below, and in registers.
FUNCTION static void wipe(void) {
  volatile char old[32 << 10];
  for (size_t i = 0; i < sizeof old; i++) old[i] = 0;
  __asm__ volatile("xor %%eax, %%eax\n xor %%ecx, %%ecx\n xor %%edx, %%edx\n xor %%esi, %%esi\n"
                   "xor %%edi, %%edi\n xor %%r8d, %%r8d\n xor %%r9d, %%r9d\n xor %%r10d, %%r10d\n"
                   "xor %%r11d, %%r11d\n xor %%ebx, %%ebx\n xor %%r12d, %%r12d\n"
                   "xor %%r13d, %%r13d\n xor %%r14d, %%r14d\n xor %%r15d, %%r15d"
                   ::: "rax", "rcx", "rdx", "rsi", "rdi", "r8", "r9", "r10", "r11", "rbx", "r12",
                       "r13", "r14", "r15", "memory");
}

static struct node *volatile global;
static struct node *volatile inner;
static struct node *volatile behind;
static __thread struct node *volatile own;

FUNCTION static void lost_alone(void) {
  for (int i = 0; i < 10; i++) {
    struct node *volatile n = block(NULL);
    n = NULL;
  }
}

// Each points to the one before, no pointer leads to the last.
FUNCTION static void lost_chain(void) {
  struct node *volatile n = NULL;
  for (int i = 0; i < 6; i++) n = block(n);
  n = NULL;
}

// Two that point to each other.
FUNCTION static void lost_circle(void) {
  struct node *volatile n = block(NULL);
  n->next = block(n);
  n = NULL;
}

// The block that points to it is freed, and may be reused or not.
FUNCTION static void lost_inside(void) {
  struct node *volatile n[12];
  for (int i = 0; i < 12; i++) n[i] = block(NULL), n[i]->data = block(NULL);
  for (int i = 0; i < 12; i++) free(n[i]), n[i] = NULL;
}

// The same with a small block, which the C library keeps for the next allocation.
FUNCTION static void lost_inside_small(void) {
  void **volatile small[5];
  for (int i = 0; i < 5; i++) small[i] = malloc(40), small[i][3] = block(NULL);
  for (int i = 0; i < 5; i++) free(small[i]), small[i] = NULL;
}

FUNCTION static void kept_by_global(void) {
  for (int i = 0; i < 8; i++) global = block(global);
}

// By pointers into the middle alone.
FUNCTION static void kept_inside(void) {
  struct node *volatile n = block(NULL);
  inner = (struct node *)((char *)n + SIZE / 2);
  n = NULL;
}

// Through a block that is normally not sampled.
FUNCTION static void kept_behind_small(void) {
  struct node **small = malloc(24);
  small[2] = block(NULL);
  behind = (struct node *)small;
}

FUNCTION static void freed(void) {
  for (int i = 0; i < 5; i++) {
    struct node *volatile n = block(NULL);
    free(n);
    n = NULL;
  }
}

FUNCTION static void kept_by_mapping(void) {
  void **p = mmap(NULL, 4096, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  p[7] = block(NULL);
}

static void all(void) {
  lost_alone();
  wipe();
  lost_chain();
  wipe();
  lost_circle();
  lost_inside();
  lost_inside_small();
  wipe();
  kept_by_global();
  kept_inside();
  kept_behind_small();
  kept_by_mapping();
  freed();
  wipe();
}

// Blocks that are freed by exit handlers of the program, or later by a library, count as freed.
static struct node *volatile late;
FUNCTION static void freed_at_exit(void) {
  free(late);
  late = NULL;
}

FUNCTION static void freed_late(void) {
  late = block(NULL);
  atexit(freed_at_exit);
}

static pthread_barrier_t ready;

FUNCTION static struct node *kept_by_thread(void) { return block(NULL); }
FUNCTION static struct node *kept_by_own(void) { return block(NULL); }
FUNCTION static struct node *kept_by_register(void) { return block(NULL); }

// Waits forever, with one block on its stack, one in its own variables, one in a register alone.
static void *waits(void *unused) {
  (void)unused;
  struct node *volatile n = kept_by_thread();
  own = kept_by_own();
  lost_alone();
  register struct node *in_register __asm__("r12") = kept_by_register();
  wipe();
  __asm__ volatile("" : "+r"(in_register));
  pthread_barrier_wait(&ready);
  for (;;) {
    // pause(2), without touching r12.
    long call = 34;
    __asm__ volatile("syscall" : "+a"(call), "+r"(in_register)::"rcx", "r11", "memory");
    if (n == (void *)1) return n;
  }
}

// Runs forever.
static void *runs(void *unused) {
  (void)unused;
  struct node *volatile n = kept_by_thread();
  pthread_barrier_wait(&ready);
  while (n != (void *)1) {
  }
  return NULL;
}

// Leaves blocks with pointers only on its stack, which the C library keeps for the next thread.
static void *ends(void *unused) {
  (void)unused;
  lost_chain();
  return NULL;
}

static void threads(void) {
  pthread_t thread;
  pthread_barrier_init(&ready, NULL, 4);
  if (pthread_create(&thread, NULL, ends, NULL) || pthread_join(thread, NULL)) abort();
  if (pthread_create(&thread, NULL, waits, NULL)) abort();
  if (pthread_create(&thread, NULL, waits, NULL)) abort();
  if (pthread_create(&thread, NULL, runs, NULL)) abort();
  pthread_barrier_wait(&ready);
  struct timespec t = {0, 20000000};
  nanosleep(&t, NULL);
}

// One child exits, another one becomes another program.
static void children(char *self) {
  kept_by_global();
  wipe();
  for (int i = 0; i < 2; i++) {
    pid_t child = fork();
    if (child == 0) {
      lost_alone();
      wipe();
      kept_inside();
      wipe();
      if (i == 0) exit(0);
      execl(self, self, "all", NULL);
      _exit(1);
    }
    int status;
    if (waitpid(child, &status, 0) != child || status) abort();
  }
}

#define MANY 30000
static struct node *volatile table[1024];

// In the lists of a table.
FUNCTION static void kept_many(void) {
  for (int i = 0; i < MANY; i++) table[i % 1024] = block(table[i % 1024]);
}

FUNCTION static void lost_many(void) {
  struct node *volatile n = NULL;
  for (int i = 0; i < MANY; i++) n = block(n);
  n = NULL;
}

static char state_of(pid_t pid) {
  char path[64], state = 0;
  snprintf(path, sizeof path, "/proc/%d/stat", pid);
  FILE *f = fopen(path, "r");
  if (!f || fscanf(f, "%*d (%*[^)]) %c", &state) != 1) abort();
  fclose(f);
  return state;
}

// Stops its parent, which is to search for leaks. A child continues the parent when this process
// has ended, and prints the milliseconds until then.
static void stops_parent(void) {
  pid_t parent = getppid();
  int ends[2];
  if (pipe(ends)) abort();
  if (fork() == 0) {
    close(ends[1]);
    struct timespec before, after;
    clock_gettime(CLOCK_MONOTONIC, &before);
    char byte;
    if (read(ends[0], &byte, 1) != 0) abort();
    clock_gettime(CLOCK_MONOTONIC, &after);
    kill(parent, SIGCONT);
    printf("%ld\n", (after.tv_sec - before.tv_sec) * 1000 +
                        (after.tv_nsec - before.tv_nsec) / 1000000);
    fflush(stdout);
    _exit(0);
  }
  close(ends[0]);
  kill(parent, SIGSTOP);
  while (state_of(parent) != 'T') usleep(1000);
}

// Only exit_group is permitted from now on: all other calls kill the process.
static void confine(void) {
  struct sock_filter filter[] = {
      BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, nr)),
      BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, SYS_exit_group, 1, 0),
      BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_KILL_PROCESS),
      BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW),
  };
  struct sock_fprog program = {sizeof filter / sizeof *filter, filter};
  if (prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0)) abort();
  if (prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &program)) abort();
}

int main(int argc, char **argv) {
  const char *mode = argc > 1 ? argv[1] : "";
  if (!strcmp(mode, "all")) {
    freed_late();
    all();
  } else if (!strcmp(mode, "threads")) {
    threads();
    wipe();
  } else if (!strcmp(mode, "children")) {
    children(argv[0]);
  } else if (!strcmp(mode, "many")) {
    kept_many();
    lost_many();
    wipe();
  } else if (!strcmp(mode, "stops")) {
    lost_alone();
    stops_parent();
  } else if (!strcmp(mode, "confined")) {
    all();
    confine();
  } else if (!strcmp(mode, "killed")) {
    all();
    raise(SIGKILL);
  } else if (!strcmp(mode, "_exit")) {
    all();
    _exit(0);
  } else if (!strcmp(mode, "long")) {
    if (!freopen("/dev/null", "w", stdout) || !freopen("/dev/null", "w", stderr)) abort();
    all();
    for (;;) pause();
  } else {
    return 2;
  }
  return 0;
}
