// Functions that share a readable name, and one with its own. usage: overloads N
#include <cstdlib>

namespace shop {
struct Cart {
    long sum = 0;
    __attribute__((noinline)) void add(int price) { sum += price; asm volatile(""); }
    __attribute__((noinline)) void add(double price) { sum += static_cast<long>(price); asm volatile(""); }
    __attribute__((noinline)) long total() const { asm volatile(""); return sum; }
};
}

int main(int argc, char **argv) {
    long n = argc > 1 ? std::atol(argv[1]) : 100;
    shop::Cart cart;
    long sum = 0;
    for (long i = 0; i < n; i++) {
        cart.add(1);
        cart.add(2.0);
        cart.add(3.0);
        sum += cart.total();
    }
    return sum == 0;
}
