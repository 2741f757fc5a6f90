// Templates: matrices, expression trees, visitors and recursion at compile time.
#include <array>
#include <cmath>
#include <complex>
#include <cstdio>
#include <iterator>
#include <random>
#include <string>
#include <type_traits>
#include <utility>
#include <valarray>

template <typename T, std::size_t R, std::size_t C> struct Matrix {
    std::array<std::array<T, C>, R> cells{};
    T &at(std::size_t r, std::size_t c) { return cells.at(r).at(c); }
    const T &at(std::size_t r, std::size_t c) const { return cells.at(r).at(c); }
};

template <typename T, std::size_t R, std::size_t K, std::size_t C>
Matrix<T, R, C> operator*(const Matrix<T, R, K> &a, const Matrix<T, K, C> &b) {
    Matrix<T, R, C> out;
    for (std::size_t r = 0; r < R; r++)
        for (std::size_t c = 0; c < C; c++)
            for (std::size_t k = 0; k < K; k++) out.at(r, c) += a.at(r, k) * b.at(k, c);
    return out;
}

template <typename T> T power(const T &base, unsigned n) {
    if (n == 0) {
        T one{};
        for (std::size_t i = 0; i < 4; i++) one.at(i, i) = 1;
        return one;
    }
    T half = power(base, n / 2);
    return n % 2 ? half * half * base : half * half;
}

template <typename L, typename R> struct Sum {
    const L &l;
    const R &r;
    double operator()(double x) const { return l(x) + r(x); }
};
template <typename F> struct Scaled {
    F f;
    double by;
    double operator()(double x) const { return by * f(x); }
};
template <typename L, typename R> Sum<L, R> operator+(const L &l, const R &r) { return {l, r}; }

template <typename F, std::size_t... I> double apply(F f, std::index_sequence<I...>) {
    return (f(static_cast<double>(I)) + ...);
}

namespace {
struct Sine {
    double operator()(double x) const { return std::sin(x); }
};
struct Line {
    double operator()(double x) const { return x > 1e6 ? throw "too large" : x * 2; }
};
}  // namespace

template <int N> struct Fold {
    static long run(long x) { return Fold<N - 1>::run(x * N % 1000003) + N; }
};
template <> struct Fold<0> {
    static long run(long x) { return x; }
};

int main(int argc, char **) {
    Matrix<double, 4, 4> m;
    Matrix<std::complex<double>, 4, 4> z;
    std::mt19937 random(argc);
    std::normal_distribution<> normal;
    for (std::size_t r = 0; r < 4; r++)
        for (std::size_t c = 0; c < 4; c++) {
            m.at(r, c) = normal(random) / 4;
            z.at(r, c) = {normal(random) / 8, 0.25};
        }
    Scaled<Sine> sine{{}, 3};
    Line line;
    double x = apply(sine + line, std::make_index_sequence<12>());
    std::valarray<double> all(64);
    for (auto &v : all) v = normal(random);
    all = std::sqrt(std::abs(all)) + all.cshift(3);
    auto cell = power(z, 9).at(1, 2);
    std::printf("%f %f %f %f %ld\n", power(m, 21).at(2, 3), cell.real(), x, all.sum(),
                Fold<24>::run(argc));
}
