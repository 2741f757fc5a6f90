// Leaves memory behind as C++ programs do. Functions lost_... leave blocks that no pointer leads
// to, kept_... blocks that a pointer leads to at exit.

#include <cstdlib>
#include <cstring>
#include <list>
#include <map>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#define FUNCTION __attribute__((noipa))

struct Base {
  virtual ~Base() = default;
  long a = 1;
};

struct Other {
  virtual ~Other() = default;
  long b = 2;
};

// A pointer to it as an Other points to its middle.
struct Both : Base, Other {
  char more[1000] = {};
};

static std::map<int, std::string> *texts;
static std::vector<std::unique_ptr<Other>> others;
static std::shared_ptr<std::list<std::vector<char>>> shared;

FUNCTION static void kept_texts() {
  texts = new std::map<int, std::string>;
  for (int i = 0; i < 20; i++) texts->emplace(i, std::string(500, 'a'));
}

FUNCTION static void kept_others() {
  auto *all = new std::vector<std::unique_ptr<Other>>;
  for (int i = 0; i < 20; i++) all->push_back(std::make_unique<Both>());
  others.swap(*all);
  delete all;
}

FUNCTION static void kept_shared() {
  shared = std::make_shared<std::list<std::vector<char>>>();
  for (int i = 0; i < 20; i++) shared->emplace_back(300);
}

FUNCTION static void lost_released() {
  for (int i = 0; i < 20; i++) {
    Both *both = std::make_unique<Both>().release();
    __asm__ volatile("" ::"r"(both) : "memory");
  }
}

struct Cycle {
  std::shared_ptr<Cycle> next;
  char more[200] = {};
};

FUNCTION static void lost_cycles() {
  for (int i = 0; i < 20; i++) {
    auto a = std::make_shared<Cycle>(), b = std::make_shared<Cycle>();
    a->next = b;
    b->next = a;
  }
}

// Their owner is destroyed, but they are not.
FUNCTION static void lost_members() {
  for (int i = 0; i < 20; i++) {
    auto *all = new std::vector<char *>;
    for (int j = 0; j < 3; j++) all->push_back(new char[400]);
    delete all;
  }
}

FUNCTION static void wipe() {
  volatile char old[32 << 10];
  for (size_t i = 0; i < sizeof old; i++) old[i] = 0;
}

int main() {
  lost_released();
  wipe();
  lost_cycles();
  wipe();
  lost_members();
  wipe();
  kept_texts();
  kept_others();
  kept_shared();
  std::thread([] { lost_released(); }).join();
  wipe();
  return 0;
}
