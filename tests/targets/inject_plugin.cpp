// A library that inject.cpp loads while it is recorded.

#include <cstdlib>

static void *volatile kept[200];

extern "C" __attribute__((noinline)) void plugin_allocates() {
    for (auto &block : kept) block = malloc(3000);
}
