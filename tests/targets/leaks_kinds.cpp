// Loses blocks in ways of C++ programs, also in a thread that has ended, and keeps others.

#include <cstdlib>
#include <cstring>
#include <memory>
#include <string>
#include <thread>

#define FUNCTION __attribute__((noinline, noclone))

struct Node {
  Node *next;
  char bytes[100];
};

struct Shared {
  std::shared_ptr<Shared> other;
  char bytes[2000];
};

static Node *reachable;
static char *interior;

FUNCTION static void lost_direct() {
  for (int i = 0; i < 100; i++) {
    void *volatile p = malloc(123);
    p = nullptr;
  }
}

FUNCTION static void lost_list() {
  Node *head = nullptr;
  for (int i = 0; i < 50; i++) {
    Node *node = new Node;
    node->next = head;
    head = node;
  }
  asm volatile("" ::"r"(head));
}

FUNCTION static void kept_list() {
  for (int i = 0; i < 50; i++) {
    Node *node = new Node;
    node->next = reachable;
    reachable = node;
  }
}

FUNCTION static void lost_string() { new std::string(5000, 'x'); }

FUNCTION static void lost_cycle() {
  auto a = std::make_shared<Shared>(), b = std::make_shared<Shared>();
  a->other = b;
  b->other = a;
}

FUNCTION static void lost_in_thread() {
  std::thread([] {
    for (int i = 0; i < 10; i++) {
      void *volatile p = malloc(3000);
      p = nullptr;
    }
  }).join();
}

FUNCTION static void kept_interior() { interior = static_cast<char *>(malloc(7000)) + 3500; }

// Overwrites the values that calls have left on the stack.
FUNCTION static void scrub() {
  volatile char bytes[20000];
  memset(const_cast<char *>(bytes), 0, sizeof bytes);
}

int main() {
  lost_direct();
  lost_list();
  kept_list();
  lost_string();
  lost_cycle();
  lost_in_thread();
  kept_interior();
  scrub();
  return 0;
}
