// Coroutines, variants, optionals and a function that throws from a cold part.
#include <coroutine>
#include <exception>
#include <functional>
#include <iostream>
#include <optional>
#include <string>
#include <tuple>
#include <utility>
#include <variant>
#include <vector>

template <typename T>
struct Generator {
    struct promise_type {
        T value{};
        std::exception_ptr error;
        Generator get_return_object() {
            return Generator{std::coroutine_handle<promise_type>::from_promise(*this)};
        }
        std::suspend_always initial_suspend() noexcept { return {}; }
        std::suspend_always final_suspend() noexcept { return {}; }
        std::suspend_always yield_value(T next) {
            value = std::move(next);
            return {};
        }
        void return_void() {}
        void unhandled_exception() { error = std::current_exception(); }
    };

    explicit Generator(std::coroutine_handle<promise_type> handle) : handle(handle) {}
    Generator(Generator &&other) noexcept : handle(std::exchange(other.handle, {})) {}
    ~Generator() {
        if (handle) handle.destroy();
    }
    std::optional<T> next() {
        if (!handle || handle.done()) return std::nullopt;
        handle.resume();
        if (handle.promise().error) std::rethrow_exception(handle.promise().error);
        if (handle.done()) return std::nullopt;
        return handle.promise().value;
    }
    std::coroutine_handle<promise_type> handle;
};

Generator<int> numbers(int from, int to) {
    for (int i = from; i < to; i++) co_yield i;
}

Generator<std::string> words(int count) {
    auto ints = numbers(0, count);
    while (auto i = ints.next()) {
        if (*i == 13) throw std::runtime_error("thirteen");
        co_yield std::string(*i, 'w');
    }
}

using Value = std::variant<int, double, std::string, std::vector<int>>;

template <class... F> struct Overloaded : F... { using F::operator()...; };
template <class... F> Overloaded(F...) -> Overloaded<F...>;

double measure(const Value &value) {
    return std::visit(Overloaded{[](int i) { return i * 1.0; }, [](double d) { return d; },
                                 [](const std::string &s) { return s.size() * 2.0; },
                                 [](const std::vector<int> &v) {
                                     double sum = 0;
                                     for (int i : v) sum += i;
                                     return sum;
                                 }},
                      value);
}

template <typename... T> std::string joined(const T &...parts) {
    std::string out;
    ((out += std::to_string(parts), out += ','), ...);
    return out;
}

static int inner(int x) { return x * 3 + 1; }

__attribute__((noinline)) int hot(int x) {
    int y = inner(x);
    if (__builtin_expect(y == 70001, 0)) {
        std::string text = joined(x, y, 2.5);
        std::cerr << text << std::endl;
        throw std::runtime_error(text);
    }
    return y ^ x;
}

int main() {
    double sum = 0;
    auto all = words(20);
    try {
        while (auto word = all.next()) sum += measure(*word);
    } catch (const std::exception &error) {
        sum += measure(std::string(error.what()));
    }
    std::vector<Value> values{1, 2.5, std::string("three"), std::vector<int>{4, 5}};
    for (const auto &value : values) sum += measure(value);
    std::function<int(int)> f = [&](int x) { return hot(x) + static_cast<int>(values.size()); };
    for (int i = 0; i < 1000; i++) sum += f(i);
    std::cout << sum << ' ' << joined(1, 2u, 3.0) << '\n';
}
