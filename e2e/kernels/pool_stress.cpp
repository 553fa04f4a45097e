// Calls a thread pool from several threads at the same time, and counts how often each item is computed.
#include <cstdio>
#include <cstring>
#include <thread>
#include <vector>

using kernel = void (*)(const void*, int64_t, int64_t);
extern "C" {
void* convoy_pool_create(int64_t threads);
void convoy_pool_run(void* pool, kernel function, const void* arguments, int64_t items, int64_t chunk);
void convoy_pool_destroy(void* pool);
}

namespace {

struct Counts {
    std::vector<int>* of_items;
};

void count(const void* arguments, int64_t begin, int64_t end) {
    // Plain memory: two threads that compute the same item are a data race.
    auto& counts = *static_cast<const Counts*>(arguments)->of_items;
    for (int64_t i = begin; i < end; ++i) ++counts[static_cast<size_t>(i)];
}

}  // namespace

int main() {
    int wrong = 0;
    for (int64_t threads = 1; threads <= 5; ++threads) {
        for (int round = 0; round < 20; ++round) {
            void* pool = convoy_pool_create(threads);
            std::vector<std::thread> callers;
            std::vector<std::vector<int>> counts(3);
            for (size_t caller = 0; caller < counts.size(); ++caller) {
                counts[caller].assign(1 + 37 * caller, 0);
                callers.emplace_back([pool, &own = counts[caller]] {
                    const Counts arguments{&own};
                    for (int64_t call = 0; call < 50; ++call)
                        convoy_pool_run(pool, count, &arguments, static_cast<int64_t>(own.size()), 1 + call % 9);
                });
            }
            for (auto& caller : callers) caller.join();
            convoy_pool_destroy(pool);
            for (const auto& own : counts)
                for (int found : own) wrong += found != 50;
        }
    }
    std::printf("%d items were not computed once a call\n", wrong);
    return wrong != 0;
}
