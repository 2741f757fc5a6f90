// Virtual calls, threads, futures and type-erased functions.
#include <atomic>
#include <chrono>
#include <condition_variable>
#include <functional>
#include <future>
#include <iostream>
#include <memory>
#include <mutex>
#include <queue>
#include <shared_mutex>
#include <thread>
#include <vector>

struct Shape {
    virtual ~Shape() = default;
    virtual double area() const = 0;
    virtual Shape *clone() const = 0;
};

struct Named {
    virtual ~Named() = default;
    virtual std::string name() const { return "named"; }
};

struct Square final : Shape, Named {
    explicit Square(double side) : side(side) {}
    double area() const override { return side * side; }
    Square *clone() const override { return new Square(*this); }
    std::string name() const override { return "square"; }
    double side;
};

struct Circle : virtual Named, Shape {
    explicit Circle(double r) : r(r) {}
    double area() const override { return 3.14159 * r * r; }
    Circle *clone() const override { return new Circle(r); }
    std::string name() const override { return "circle " + std::to_string(r); }
    double r;
};

class Pool {
  public:
    explicit Pool(unsigned count) {
        for (unsigned i = 0; i < count; i++) threads.emplace_back([this] { run(); });
    }
    ~Pool() {
        {
            std::lock_guard<std::mutex> lock(mutex);
            over = true;
        }
        changed.notify_all();
        for (auto &thread : threads) thread.join();
    }
    template <typename F> auto submit(F f) -> std::future<decltype(f())> {
        auto task = std::make_shared<std::packaged_task<decltype(f())()>>(std::move(f));
        auto result = task->get_future();
        std::lock_guard<std::mutex> lock(mutex);
        tasks.emplace([task] { (*task)(); });
        changed.notify_one();
        return result;
    }

  private:
    void run() {
        for (;;) {
            std::function<void()> task;
            {
                std::unique_lock<std::mutex> lock(mutex);
                changed.wait(lock, [this] { return over || !tasks.empty(); });
                if (tasks.empty()) return;
                task = std::move(tasks.front());
                tasks.pop();
            }
            task();
        }
    }

    std::vector<std::thread> threads;
    std::queue<std::function<void()>> tasks;
    std::mutex mutex;
    std::condition_variable changed;
    bool over = false;
};

double sum(const std::vector<std::unique_ptr<Shape>> &shapes) {
    double all = 0;
    for (const auto &shape : shapes) {
        if (auto *named = dynamic_cast<const Named *>(shape.get())) all += named->name().size();
        all += shape->area();
    }
    return all;
}

int main() {
    std::vector<std::unique_ptr<Shape>> shapes;
    for (int i = 0; i < 100; i++) {
        if (i % 3) shapes.push_back(std::make_unique<Square>(i));
        else shapes.push_back(std::make_unique<Circle>(i));
        shapes.emplace_back(shapes.back()->clone());
    }
    Pool pool(3);
    std::vector<std::future<double>> results;
    std::shared_mutex guard;
    std::atomic<long> count{0};
    for (int i = 0; i < 8; i++) {
        results.push_back(pool.submit([&] {
            std::shared_lock<std::shared_mutex> lock(guard);
            count += 1;
            return sum(shapes);
        }));
    }
    double all = 0;
    for (auto &result : results) all += result.get();
    auto later = std::async(std::launch::async, [] { return std::string("done"); });
    std::cout << all << ' ' << count << ' ' << later.get() << '\n';
}
