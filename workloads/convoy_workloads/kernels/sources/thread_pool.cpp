// A pool of threads that sleep while they have no work. Kernels hold no threads of their own: the pool gets a
// kernel function, its arguments and a number of items, and gives chunks of the items to its threads.
#include <algorithm>
#include <atomic>
#include <condition_variable>
#include <mutex>
#include <system_error>
#include <thread>
#include <vector>

#include "common.h"

namespace {

class Pool {
public:
    // Starts threads - 1 workers, because the caller of run() works too. Starts fewer if the system refuses.
    explicit Pool(int64_t threads) {
        try {
            for (int64_t i = 1; i < threads; ++i) workers_.emplace_back([this] { work(); });
        } catch (const std::system_error&) {
            // Fewer threads give the same results.
        }
    }

    ~Pool() {
        {
            std::lock_guard<std::mutex> hold(mutex_);
            stopping_ = true;
        }
        wake_.notify_all();
        for (auto& worker : workers_) worker.join();
    }

    int64_t threads() const { return static_cast<int64_t>(workers_.size()) + 1; }

    // Returns when all items are done. Calls from several threads run one after another.
    void run(convoy_kernel kernel, const void* arguments, int64_t items, int64_t chunk) {
        if (items <= 0) return;
        if (chunk < 1) chunk = 1;
        std::lock_guard<std::mutex> one_at_a_time(callers_);
        const int64_t chunks = (items - 1) / chunk + 1;
        if (workers_.empty() || chunks == 1) {
            kernel(arguments, 0, items);
            return;
        }
        const int64_t helpers = std::min<int64_t>(static_cast<int64_t>(workers_.size()), chunks - 1);
        {
            std::lock_guard<std::mutex> hold(mutex_);
            kernel_ = kernel;
            arguments_ = arguments;
            items_ = items;
            chunk_ = chunk;
            next_.store(0, std::memory_order_relaxed);
            invited_ = helpers;
        }
        for (int64_t i = 0; i < helpers; ++i) wake_.notify_one();
        compute(kernel, arguments, items, chunk);
        std::unique_lock<std::mutex> hold(mutex_);
        invited_ = 0;  // The items are all given out: a worker that has not woken yet is not needed.
        done_.wait(hold, [this] { return running_ == 0; });
    }

private:
    void compute(convoy_kernel kernel, const void* arguments, int64_t items, int64_t chunk) {
        for (;;) {
            const int64_t begin = next_.fetch_add(chunk, std::memory_order_relaxed);
            if (begin >= items) return;
            kernel(arguments, begin, std::min(begin + chunk, items));
        }
    }

    void work() {
        std::unique_lock<std::mutex> hold(mutex_);
        for (;;) {
            wake_.wait(hold, [this] { return stopping_ || invited_ > 0; });
            if (stopping_) return;
            --invited_;
            ++running_;
            const auto kernel = kernel_;
            const auto arguments = arguments_;
            const auto items = items_;
            const auto chunk = chunk_;
            hold.unlock();
            compute(kernel, arguments, items, chunk);
            hold.lock();
            if (--running_ == 0) done_.notify_one();
        }
    }

    std::vector<std::thread> workers_;
    std::mutex callers_;
    std::mutex mutex_;
    std::condition_variable wake_;
    std::condition_variable done_;
    bool stopping_ = false;
    int64_t invited_ = 0;  // workers that may still join this run
    int64_t running_ = 0;  // workers inside this run
    convoy_kernel kernel_ = nullptr;
    const void* arguments_ = nullptr;
    int64_t items_ = 0;
    int64_t chunk_ = 1;
    std::atomic<int64_t> next_{0};
};

}  // namespace

CONVOY_EXPORT void* convoy_pool_create(int64_t threads) {
    try {
        return new Pool(threads);
    } catch (...) {
        return nullptr;
    }
}

CONVOY_EXPORT int64_t convoy_pool_threads(const void* pool) { return static_cast<const Pool*>(pool)->threads(); }

CONVOY_EXPORT void convoy_pool_run(void* pool, convoy_kernel kernel, const void* arguments, int64_t items,
                                   int64_t chunk) {
    static_cast<Pool*>(pool)->run(kernel, arguments, items, chunk);
}

CONVOY_EXPORT void convoy_pool_destroy(void* pool) { delete static_cast<Pool*>(pool); }
