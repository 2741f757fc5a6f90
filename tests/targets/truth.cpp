// The program of truth.c in C++: virtual calls, std::thread, the standard library's generators.
//
// usage: truth THREADS MILLISECONDS      (of CPU time of each thread)

#include <algorithm>
#include <array>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <ctime>
#include <iterator>
#include <memory>
#include <random>
#include <thread>
#include <vector>

namespace {

int64_t now(clockid_t clock) {
    timespec t;
    clock_gettime(clock, &t);
    return t.tv_sec * 1000000000LL + t.tv_nsec;
}

// About 15 µs.
__attribute__((noipa)) uint64_t burn(uint64_t x) {
    for (int n = 0; n < 10000; n++) {
        x = x * 6364136223846793005u + 1442695040888963407u;
        __asm__ volatile("" : "+r"(x));
    }
    return x;
}

struct Work {
    virtual ~Work() = default;
    // Works until this thread has used the quota of CPU time; returns the time used.
    virtual int64_t run(int64_t quota) = 0;
};

#define SPIN(name, salt)                                                                       \
    struct name final : Work {                                                                 \
        __attribute__((noipa)) int64_t run(int64_t quota) override {                           \
            int64_t start = now(CLOCK_THREAD_CPUTIME_ID), used;                                \
            do burn(salt);                                                                     \
            while ((used = now(CLOCK_THREAD_CPUTIME_ID) - start) < quota);                     \
            return used;                                                                       \
        }                                                                                      \
    };

SPIN(spin_alpha, 1)
SPIN(spin_beta, 2)
SPIN(spin_gamma, 3)
SPIN(spin_delta, 4)
SPIN(spin_epsilon, 5)

struct Kind {
    const char *name;
    // Percent of a cycle, which is 100 ms on average.
    int weight;
    std::unique_ptr<Work> work;
};

const Kind kinds[] = {
    {"spin_alpha", 35, std::make_unique<spin_alpha>()},
    {"spin_beta", 25, std::make_unique<spin_beta>()},
    {"spin_gamma", 20, std::make_unique<spin_gamma>()},
    {"spin_delta", 12, std::make_unique<spin_delta>()},
    {"spin_epsilon", 8, std::make_unique<spin_epsilon>()},
};

using Used = std::array<int64_t, std::size(kinds)>;

// Cycles of all functions, in a random order and for a random time: in step with nothing.
void work(unsigned seed, int64_t quota, Used &used) {
    std::mt19937 random(seed);
    std::array<size_t, std::size(kinds)> order;
    for (size_t i = 0; i < order.size(); i++) order[i] = i;
    for (int64_t done = 0; done < quota;) {
        for (size_t i = order.size() - 1; i > 0; i--) std::swap(order[i], order[random() % (i + 1)]);
        for (size_t kind : order) {
            // From half to one and a half of its part.
            int64_t part = kinds[kind].weight * (500000 + (int64_t)(random() % 1000000));
            int64_t spent = kinds[kind].work->run(part);
            used[kind] += spent, done += spent;
        }
    }
}

}  // namespace

int main(int argc, char **argv) {
    size_t threads = argc > 1 ? std::strtoul(argv[1], nullptr, 10) : 1;
    int64_t quota = (argc > 2 ? std::atoi(argv[2]) : 1000) * 1000000LL;
    std::puts("ready");
    std::fflush(stdout);
    while (std::getchar() != EOF) {
    }
    int64_t process = now(CLOCK_PROCESS_CPUTIME_ID);
    std::vector<Used> used(threads, Used{});
    std::vector<std::thread> others;
    for (size_t i = 1; i < threads; i++) others.emplace_back([&, i] { work(i + 1, quota, used[i]); });
    work(1, quota, used[0]);
    for (auto &thread : others) thread.join();
    process = now(CLOCK_PROCESS_CPUTIME_ID) - process;
    for (size_t kind = 0; kind < std::size(kinds); kind++) {
        int64_t sum = 0;
        for (auto &one : used) sum += one[kind];
        std::printf("%s %lld\n", kinds[kind].name, (long long)sum);
    }
    std::printf("process %lld\n", (long long)process);
}
