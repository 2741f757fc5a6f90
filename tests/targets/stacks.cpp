// C++ stacks, each hard to unwind in one way; every thread is busy for SECONDS.
//
// usage: stacks inlined|deep|exceptions|storm|copies|aligned|plugin SECONDS [PLUGIN.so]
//
// The work of each thread is done below its own function; main's thread works, too.

#include <algorithm>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <ctime>
#include <map>
#include <memory>
#include <stdexcept>
#include <string>
#include <thread>
#include <vector>

#if !defined(WITHOUT_PLUGINS)
#include <dlfcn.h>
#endif

namespace {

double seconds;
const char *plugin;

bool goes_on() {
    timespec t;
    clock_gettime(CLOCK_THREAD_CPUTIME_ID, &t);
    return (double)t.tv_sec + (double)t.tv_nsec * 1e-9 < seconds;
}

struct Random {
    uint64_t state = 1;
    uint64_t next() {
        state = state * 6364136223846793005u + 1442695040888963407u;
        return state >> 33;
    }
};

// Inlined: templates and lambdas of the library, nested.
uint64_t inlined(Random &random) {
    std::map<std::string, std::vector<uint64_t>> words;
    for (int i = 0; i < 200; i++)
        words["word " + std::to_string(random.next() % 97)].push_back(random.next());
    uint64_t sum = 0;
    for (auto &[word, numbers] : words) {
        std::sort(numbers.begin(), numbers.end(), [](auto a, auto b) { return a % 1009 < b % 1009; });
        sum += std::count_if(word.begin(), word.end(), [&](char c) { return c > '4'; }) + numbers[0];
    }
    return sum;
}

// Deep: a thousand frames, each of them busy.
__attribute__((noinline, noclone)) uint64_t deep(Random &random, int depth) {
    volatile uint64_t kept[4] = {random.next(), random.next()};
    uint64_t sum = depth <= 1 ? 0 : deep(random, depth - 1);
    for (int i = 0; i < 300; i++) sum += random.next() ^ kept[i % 2];
    return sum + kept[0];
}

// Exceptions, between other work: through frames with destructors, caught, thrown on, caught.
__attribute__((noinline)) void thrower(Random &random, int depth) {
    std::string text(20 + random.next() % 20, 'x');
    if (depth == 0) throw std::runtime_error(text);
    thrower(random, depth - 1);
    if (text.empty()) puts("never");
}

__attribute__((noinline)) uint64_t rethrower(Random &random) {
    try {
        thrower(random, 5);
    } catch (const std::logic_error &) {
        return 1;
    } catch (...) {
        auto buffer = std::make_unique<char[]>(100);
        throw;
    }
    return 2;
}

uint64_t exceptions(Random &random) {
    uint64_t caught = 0;
    for (int i = 0; i < 10; i++) {
        for (int k = 0; k < 20; k++) caught += inlined(random) & 1;
        try {
            caught += rethrower(random);
        } catch (const std::exception &e) {
            caught += strlen(e.what());
        }
    }
    return caught;
}

// A storm: only exceptions. Just before it returns to a handler, libgcc puts the handler's
// registers into its own frame, in the place of those that lead to its caller. At that moment, no
// unwinder can find the caller.
uint64_t storm(Random &random) {
    uint64_t caught = 0;
    for (int i = 0; i < 200; i++) {
        try {
            caught += rethrower(random);
        } catch (const std::exception &e) {
            caught += strlen(e.what());
        }
    }
    return caught;
}

// Copies: the C library's assembly, in all lengths.
uint64_t copies(Random &random) {
    static thread_local std::vector<char> from(1 << 16, 'a'), to(1 << 16);
    uint64_t sum = 0;
    for (int i = 0; i < 100; i++) {
        size_t length = random.next() % (from.size() - 64), at = random.next() % 64;
        memcpy(&to[at], from.data(), length);
        memmove(&to[at / 2], &to[at], length);
        memset(&to[at], (int)length, length / 2);
        to.back() = 0;
        sum += (uint64_t)memcmp(&to[at], from.data(), length) + strlen(&to[at]);
        sum += (uint64_t)(uintptr_t)memchr(from.data(), 'b', length);
    }
    return sum;
}

// Aligned: objects on the stack need more alignment than the caller gave it, so the compiler keeps
// the caller's stack pointer in another register and describes it by an expression.
__attribute__((noinline, noclone)) uint64_t aligned(Random &random, int depth) {
    struct alignas(128) Block {
        uint64_t words[32];
    };
    volatile Block block = {};
    // Of variable length, so that the frame pointer is needed for the frame itself.
    volatile char *some = (volatile char *)__builtin_alloca(random.next() % 300 + 1);
    some[0] = 1;
    for (int i = 0; i < 500; i++) block.words[i % 32] += random.next();
    return (depth == 0 ? 0 : aligned(random, depth - 1)) + block.words[7] + (uint64_t)some[0];
}

#if !defined(WITHOUT_PLUGINS)
// A plug-in: loaded, called, calls back, and unloaded again.
uint64_t call_back(void *of, uint64_t x) { return inlined(*(Random *)of) + x; }

uint64_t with_plugin(Random &random) {
    void *handle = dlopen(plugin, RTLD_LAZY);
    if (!handle) {
        fprintf(stderr, "%s\n", dlerror());
        exit(1);
    }
    using Work = uint64_t (*)(uint64_t (*)(void *, uint64_t), void *);
    auto work = (Work)dlsym(handle, "plugin_work");
    uint64_t sum = 0;
    for (int i = 0; i < 50; i++) sum += work(call_back, &random);
    dlclose(handle);
    return sum;
}
#endif

uint64_t once(const std::string &mode, Random &random) {
    if (mode == "inlined") return inlined(random);
    if (mode == "deep") return deep(random, 1000);
    if (mode == "exceptions") return exceptions(random);
    if (mode == "storm") return storm(random);
    if (mode == "copies") return copies(random);
    if (mode == "aligned") return aligned(random, 20);
#if !defined(WITHOUT_PLUGINS)
    if (mode == "plugin") return with_plugin(random);
#endif
    exit(2);
}

void work(const std::string &mode, uint64_t seed) {
    Random random{seed};
    uint64_t sum = 0;
    while (goes_on()) sum += once(mode, random);
    if (sum == 1) puts("never");
}

}  // namespace

int main(int argc, char **argv) {
    if (argc < 3) return 2;
    std::string mode = argv[1];
    seconds = atof(argv[2]);
    plugin = argc > 3 ? argv[3] : "";
    std::thread other(work, mode, 7);
    work(mode, 8);
    other.join();
}
