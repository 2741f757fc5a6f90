// Allocates one MiB at a time by each form of operator new, and frees half of it.

#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <new>
#include <vector>

#define FUNCTION __attribute__((noinline, noclone))

constexpr std::size_t MIB = 1 << 20;

struct alignas(256) Wide {
  char bytes[MIB];
};

struct Plain {
  char bytes[MIB];
};

static void *volatile sink;
template <typename T> static T *use(T *p) {
  sink = p;
  asm volatile("" ::: "memory");
  return p;
}

FUNCTION static void by_new() {
  for (int i = 0; i < 8; i++) {
    auto p = use(new Plain);
    if (i % 2) delete p;
  }
}

FUNCTION static void by_new_array() {
  for (int i = 0; i < 8; i++) {
    auto p = use(new char[MIB]);
    if (i % 2) delete[] p;
  }
}

FUNCTION static void by_aligned_new() {
  for (int i = 0; i < 8; i++) {
    auto p = use(new Wide);
    if (reinterpret_cast<std::uintptr_t>(p) % 256) std::abort();
    if (i % 2) delete p;
  }
}

FUNCTION static void by_nothrow_new() {
  for (int i = 0; i < 8; i++) {
    auto p = use(new (std::nothrow) Plain);
    if (i % 2) delete p;
  }
}

FUNCTION static void by_vector() {
  // Space for those that are never destroyed: a small allocation is sampled now and then.
  alignas(std::vector<char>) static unsigned char kept[4][sizeof(std::vector<char>)];
  for (int i = 0; i < 8; i++) {
    std::vector<char> v;
    v.reserve(MIB);
    use(v.data());
    if (i % 2 == 0) use(new (kept[i / 2]) std::vector<char>)->swap(v);
  }
}

int main(int argc, char **) {
  by_new();
  by_new_array();
  by_aligned_new();
  by_nothrow_new();
  by_vector();
  if (argc > 1) {
    // An exception passes through any function in front of operator new.
    try {
      volatile std::size_t huge = SIZE_MAX / 4;
      use(new char[huge]);
      return 1;
    } catch (const std::bad_alloc &) {
      std::puts("bad_alloc");
    }
  }
  return 0;
}
