// Containers, algorithms and strings of the standard library.
#include <algorithm>
#include <deque>
#include <iostream>
#include <list>
#include <map>
#include <memory>
#include <numeric>
#include <queue>
#include <set>
#include <stdexcept>
#include <string>
#include <unordered_map>
#include <vector>

namespace {

struct Item {
    std::string name;
    int rank = 0;
    std::vector<double> values;
    bool operator<(const Item &other) const { return rank < other.rank; }
};

unsigned next(unsigned &seed) { return seed = seed * 1103515245u + 12345u; }

std::vector<Item> items(unsigned count) {
    std::vector<Item> all;
    unsigned seed = 7;
    for (unsigned i = 0; i < count; i++) {
        Item item;
        item.name = "item " + std::to_string(next(seed) % 1000);
        item.rank = static_cast<int>(next(seed) % 100);
        item.values.assign(next(seed) % 8, 0.5 * i);
        all.push_back(std::move(item));
    }
    return all;
}

double total(const std::vector<Item> &all) {
    return std::accumulate(all.begin(), all.end(), 0.0, [](double sum, const Item &item) {
        return std::accumulate(item.values.begin(), item.values.end(), sum);
    });
}

}  // namespace

int lookup(const std::map<std::string, std::set<int>> &ranks, const std::string &name) {
    auto found = ranks.find(name);
    if (found == ranks.end()) throw std::out_of_range("no " + name);
    return *found->second.rbegin();
}

int main(int argc, char **) {
    auto all = items(200 + argc);
    std::sort(all.begin(), all.end());
    std::stable_sort(all.begin(), all.end(),
                     [](const Item &a, const Item &b) { return a.name < b.name; });
    std::map<std::string, std::set<int>> ranks;
    std::unordered_map<int, std::list<std::string>> names;
    std::deque<std::unique_ptr<Item>> queue;
    std::priority_queue<int> best;
    for (const auto &item : all) {
        ranks[item.name].insert(item.rank);
        names[item.rank].push_front(item.name);
        queue.push_back(std::make_unique<Item>(item));
        if (queue.size() > 50) queue.pop_front();
        best.push(item.rank);
    }
    int missing = 0, sum = 0;
    for (int i = 0; i < 1000; i++) {
        try {
            sum += lookup(ranks, "item " + std::to_string(i));
        } catch (const std::out_of_range &) {
            missing++;
        }
    }
    for (auto &[rank, list] : names) {
        list.sort();
        list.unique();
        sum += rank * static_cast<int>(list.size());
    }
    std::cout << total(all) << ' ' << sum << ' ' << missing << ' ' << best.top() << '\n';
}
