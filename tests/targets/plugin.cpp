// A plug-in of stacks.cpp: does its own work, and calls back.

#include <cstdint>
#include <string>
#include <vector>

__attribute__((noinline)) static uint64_t own(uint64_t x) {
    std::vector<std::string> names;
    for (int i = 0; i < 100; i++) names.push_back(std::to_string(x * i));
    for (auto &name : names) x = x * 31 + name.size();
    return x;
}

extern "C" uint64_t plugin_work(uint64_t (*call_back)(void *, uint64_t), void *of) {
    return own(call_back(of, 3)) + 1;
}
