// As locks.c, for C++'s standard library: KIND is mutex, read, write or condition.
#include <chrono>
#include <condition_variable>
#include <cstdio>
#include <cstdlib>
#include <mutex>
#include <shared_mutex>
#include <string>
#include <thread>
#include <unistd.h>

#include "waiter.h"

static std::mutex mutex, guard;
static std::shared_mutex shared;
static std::condition_variable condition;
static bool signaled;
static std::string kind;

using Clock = std::chrono::steady_clock;
static std::chrono::duration<double> waited;

__attribute__((noinline)) static void take() {
    auto since = Clock::now();
    if (kind == "mutex") {
        std::lock_guard<std::mutex> held(mutex);
    } else if (kind == "read") {
        std::shared_lock<std::shared_mutex> held(shared);
    } else if (kind == "write") {
        std::unique_lock<std::shared_mutex> held(shared);
    } else {
        std::unique_lock<std::mutex> held(guard);
        condition.wait(held, [] { return signaled; });
        signaled = false;
    }
    waited += Clock::now() - since;
}

static int go[2], back[2];

int main(int argc, char **argv) {
    kind = argc > 1 ? argv[1] : "mutex";
    int rounds = argc > 2 ? std::atoi(argv[2]) : 20;
    if (pipe(go) || pipe(back)) return 1;
    char byte = 0;
    std::thread waiter([rounds] {
        char byte = 0;
        waiter_begins();
        if (write(back[1], &byte, 1) != 1) perror("write");
        for (int n = 0; n < rounds; n++) {
            if (read(go[0], &byte, 1) != 1) perror("read");
            take();
            if (write(back[1], &byte, 1) != 1) perror("write");
        }
    });
    if (read(back[0], &byte, 1) != 1) perror("read");
    for (int n = 0; n < rounds; n++) {
        if (kind == "mutex") mutex.lock();
        if (kind == "read" || kind == "write") shared.lock();
        if (write(go[1], &byte, 1) != 1) perror("write");
        until_waiter_sleeps();
        usleep(10000);
        if (kind == "mutex") mutex.unlock();
        if (kind == "read" || kind == "write") shared.unlock();
        if (kind == "condition") {
            std::lock_guard<std::mutex> held(guard);
            signaled = true;
            condition.notify_one();
        }
        if (read(back[0], &byte, 1) != 1) perror("read");
    }
    waiter.join();
    std::printf("%f 0\n", waited.count());
}
