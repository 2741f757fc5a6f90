// A program that checks itself all the time, whatever is done to it in the meantime: threads that
// sleep and wait (they must not be woken early, nor get an error), that compute with floating point
// numbers, and THREADS that fill blocks of memory, and check whether their contents are unchanged
// when they free them.
//
// usage: inject THREADS
//
// It reads words from its standard input, and answers each with a line:
//   go   500 blocks of 1,000 bytes are allocated and kept, 300 of 2,000 allocated by new and
//        deleted, and 100 are freed that are as old as the program
//   load a library is loaded by dlopen (PLUGIN in the environment) and allocates
//   end  the number of failed checks; the program ends

#include <poll.h>
#include <sys/epoll.h>
#include <time.h>
#include <unistd.h>

#include <atomic>
#include <cerrno>
#include <chrono>
#include <cmath>
#include <condition_variable>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <dlfcn.h>
#include <mutex>
#include <string>
#include <thread>
#include <vector>

static std::atomic<long> wrong{0};
static std::atomic<bool> over{false};

static void check(bool holds, const char *what) {
    if (holds) return;
    wrong++;
    fprintf(stderr, "wrong: %s (errno %d)\n", what, errno);
}

static double now() {
    timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + (double)t.tv_nsec * 1e-9;
}

static const double NAP = 0.02;

static void sleeps() {
    while (!over) {
        timespec nap{0, (long)(NAP * 1e9)};
        double began = now();
        check(nanosleep(&nap, nullptr) == 0, "nanosleep");
        check(now() - began >= NAP * 0.999, "nanosleep's time");
    }
}

static void polls() {
    int pipes[2];
    check(pipe(pipes) == 0, "pipe");
    while (!over) {
        pollfd fd{pipes[0], POLLIN, 0};
        double began = now();
        check(poll(&fd, 1, (int)(NAP * 1e3)) == 0, "poll");
        check(now() - began >= NAP * 0.999, "poll's time");
    }
}

static void waits_for_events() {
    int set = epoll_create1(0);
    while (!over) {
        epoll_event event;
        double began = now();
        check(epoll_wait(set, &event, 1, (int)(NAP * 1e3)) == 0, "epoll_wait");
        check(now() - began >= NAP * 0.999, "epoll_wait's time");
    }
}

static std::mutex mutex;
static std::condition_variable condition;
static int turn;

static void takes_turns(int mine) {
    std::unique_lock<std::mutex> lock(mutex);
    while (!over) {
        condition.wait_for(lock, std::chrono::milliseconds(100), [=] { return turn == mine || over; });
        if (turn != mine) continue;
        turn = 1 - mine;
        lock.unlock();
        condition.notify_all();
        usleep(1000);
        lock.lock();
    }
}

static int bytes[2];

static void reads() {
    for (unsigned char expected = 0;; expected++) {
        unsigned char got;
        errno = 0;
        check(read(bytes[0], &got, 1) == 1 && errno == 0, "read");
        if (over) return;
        check(got == expected, "the data read");
    }
}

static void writes() {
    for (unsigned char next = 0; !over; next++) {
        check(write(bytes[1], &next, 1) == 1, "write");
        usleep(2000);
    }
    check(write(bytes[1], "", 1) == 1, "write");
}

static double sum_of_roots() {
    double sum = 0;
    for (int i = 1; i < 5000; i++) sum += std::sin(i) * std::sqrt(i);
    return sum;
}

static void computes() {
    double expected = sum_of_roots();
    while (!over) {
        check(sum_of_roots() == expected, "a sum");
        usleep(5000);
    }
}

__attribute__((noinline)) static char *fills(unsigned size) {
    char *block = (char *)malloc(size);
    memset(block, (int)(size & 0xff), size);
    return block;
}

static void churns(unsigned seed) {
    std::vector<char *> blocks(256);
    std::vector<unsigned> sizes(256);
    while (!over) {
        seed = seed * 1664525 + 1013904223;
        unsigned i = seed >> 8 & 255;
        if (blocks[i]) {
            char is = (char)(sizes[i] & 0xff);
            check(blocks[i][0] == is && blocks[i][sizes[i] - 1] == is, "a block's contents");
            free(blocks[i]);
        }
        sizes[i] = (seed >> 16 & 8191) + 1;
        blocks[i] = fills(sizes[i]);
    }
}

static std::vector<char *> kept, old;

__attribute__((noinline)) static void keeps() {
    for (int i = 0; i < 500; i++) kept.push_back((char *)malloc(1000));
}

__attribute__((noinline)) static void gives_back() {
    for (int i = 0; i < 300; i++) {
        char *volatile block = new char[2000];
        delete[] block;
    }
}

static void loads() {
    void *plugin = dlopen(getenv("PLUGIN"), RTLD_NOW);
    check(plugin, "dlopen");
    // The injected code has time to see the library, also where CPUs are scarce.
    usleep(6000000);
    auto run = (void (*)())dlsym(plugin, "plugin_allocates");
    check(run, "dlsym");
    if (run) run();
}

int main(int argc, char **argv) {
    int churning = argc > 1 ? atoi(argv[1]) : 0;
    kept.reserve(100000);
    for (int i = 0; i < 100; i++) old.push_back(fills(5000));
    check(pipe(bytes) == 0, "pipe");
    std::vector<std::thread> threads;
    for (int i = 0; i < churning; i++) threads.emplace_back(churns, i + 1);
    for (auto run : {sleeps, polls, waits_for_events, reads, writes, computes}) threads.emplace_back(run);
    for (int mine : {0, 1}) threads.emplace_back(takes_turns, mine);
    puts("ready");
    fflush(stdout);
    char word[16];
    while (scanf("%15s", word) == 1 && strcmp(word, "end")) {
        if (!strcmp(word, "go")) {
            keeps();
            gives_back();
            for (char *block : old) free(block);
            old.clear();
        } else if (!strcmp(word, "load")) {
            loads();
        }
        puts("done");
        fflush(stdout);
    }
    over = true;
    for (auto &thread : threads) thread.join();
    printf("%ld wrong\n", wrong.load());
    return wrong != 0;
}
