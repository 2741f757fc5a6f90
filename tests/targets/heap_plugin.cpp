// A library that allocates with C++'s operators, for a program without C++.

#include <cstddef>

static void *volatile sink;

extern "C" __attribute__((noinline)) void allocates() {
  for (int i = 0; i < 8; i++) {
    char *p = new char[1 << 20];
    sink = p;
    if (i % 2) delete[] p;
  }
}
