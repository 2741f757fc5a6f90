// Ordinary C++ for the benches: maps, sorting, virtual calls, templates, recursion.
//
// usage: busy ROUNDS           (about 7 ms each; 0: forever)
//
// Prints "ready", waits for a line on standard input or its end, works, and prints the CPU time and
// the wall time of the work, in nanoseconds.

#include <algorithm>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <ctime>
#include <functional>
#include <map>
#include <memory>
#include <string>
#include <vector>

namespace {

int64_t now(clockid_t clock) {
    timespec t;
    clock_gettime(clock, &t);
    return t.tv_sec * 1000000000LL + t.tv_nsec;
}

struct Random {
    uint64_t state = 1;
    uint64_t next() {
        state = state * 6364136223846793005u + 1442695040888963407u;
        return state >> 33;
    }
};

struct Shape {
    virtual ~Shape() = default;
    virtual double area() const = 0;
};

struct Square : Shape {
    double side;
    explicit Square(double s) : side(s) {}
    __attribute__((noinline)) double area() const override { return side * side; }
};

struct Polygon : Shape {
    std::vector<double> sides;
    explicit Polygon(size_t n) : sides(n, 1.5) {}
    __attribute__((noinline)) double area() const override {
        double sum = 0;
        for (double s : sides) sum += s / (sum + 1);
        return sum;
    }
};

struct Node {
    uint64_t key;
    std::unique_ptr<Node> left, right;
};

__attribute__((noinline)) void insert(std::unique_ptr<Node> &at, uint64_t key) {
    if (!at) {
        at = std::make_unique<Node>();
        at->key = key;
    } else {
        insert(key < at->key ? at->left : at->right, key);
        __asm__ volatile("");  // no tail call: a stack as deep as the tree
    }
}

__attribute__((noinline)) uint64_t sum(const Node *at) {
    return at ? at->key + sum(at->left.get()) + sum(at->right.get()) : 0;
}

template <typename Key>
__attribute__((noinline)) uint64_t count_words(Random &random, std::function<Key(uint64_t)> make) {
    std::map<Key, uint64_t> counts;
    for (int n = 0; n < 12000; n++) counts[make(random.next() % 3000)]++;
    uint64_t most = 0;
    for (auto &[key, count] : counts) most = std::max(most, count);
    return most;
}

__attribute__((noinline)) uint64_t sort_numbers(Random &random) {
    std::vector<uint64_t> numbers(40000);
    for (auto &n : numbers) n = random.next();
    std::sort(numbers.begin(), numbers.end(), [](uint64_t a, uint64_t b) { return a % 4099 < b % 4099; });
    return numbers[numbers.size() / 2];
}

__attribute__((noinline)) double shapes(Random &random) {
    std::vector<std::unique_ptr<Shape>> all;
    for (int n = 0; n < 2000; n++) {
        if (random.next() % 2) all.push_back(std::make_unique<Square>(n));
        else all.push_back(std::make_unique<Polygon>(random.next() % 100));
    }
    double total = 0;
    for (auto &shape : all) total += shape->area();
    return total;
}

__attribute__((noinline)) uint64_t tree(Random &random) {
    std::unique_ptr<Node> root;
    for (int n = 0; n < 8000; n++) insert(root, random.next());
    return sum(root.get());
}

}  // namespace

int main(int argc, char **argv) {
    long rounds = argc > 1 ? std::atol(argv[1]) : 100;
    std::puts("ready");
    std::fflush(stdout);
    while (int c = std::getchar())
        if (c == '\n' || c == EOF) break;
    int64_t cpu = now(CLOCK_PROCESS_CPUTIME_ID), wall = now(CLOCK_MONOTONIC);
    Random random;
    uint64_t result = 0;
    for (long n = 0; rounds == 0 || n < rounds; n++) {
        result += count_words<uint64_t>(random, [](uint64_t n) { return n; });
        result += count_words<std::string>(random, [](uint64_t n) { return "word" + std::to_string(n); });
        result += sort_numbers(random) + (uint64_t)shapes(random) + tree(random);
    }
    cpu = now(CLOCK_PROCESS_CPUTIME_ID) - cpu;
    wall = now(CLOCK_MONOTONIC) - wall;
    std::printf("%lld %lld %llu\n", (long long)cpu, (long long)wall, (unsigned long long)result);
}
