// The library's own threads: N - 1 workers that take numbered pieces of a job beside the caller.
//
// A worker joins a job only while it is open, so one that sleeps (or was descheduled) never delays the caller, who does
// its pieces instead. Workers spin for some tens of microseconds between jobs, since a decoder step is a few hundred
// small jobs in a row, then sleep on a condition variable.
#pragma once

#include <pthread.h>

#include <atomic>
#include <condition_variable>
#include <cstdint>
#include <mutex>
#include <thread>
#include <utility>
#include <vector>

namespace plait {

inline void relax() {
#if defined(__x86_64__) || defined(__i386__)
    __builtin_ia32_pause();
#elif defined(__aarch64__)
    asm volatile("yield");
#endif
}

class Pool {
  public:
    // Never destroyed: joining threads while the process exits is where pools hang.
    static Pool &get() {
        Pool *pool = instance().load(std::memory_order_acquire);
        if (!pool) {
            static std::once_flag once;
            std::call_once(once, [] { pthread_atfork(nullptr, nullptr, [] { instance().store(nullptr); }); });
            pool = new Pool;
            Pool *none = nullptr;
            if (!instance().compare_exchange_strong(none, pool)) {
                delete pool;
                pool = none;
            }
        }
        return *pool;
    }

    int threads() const { return 1 + static_cast<int>(workers_.size()); }

    void resize(int threads) {
        std::lock_guard<std::mutex> turn(turn_);
        if (threads < 1) threads = 1;
        if (threads == this->threads()) return;
        {
            std::lock_guard<std::mutex> lock(sleep_);
            stop_.store(true);
        }
        wake_.notify_all();
        for (auto &worker : workers_) worker.join();
        workers_.clear();
        stop_.store(false);
        uint64_t seen = state_.load() >> 32;
        for (int i = 1; i < threads; i++) workers_.emplace_back([this, seen] { work(seen); });
    }

    // Calls body(i) for every i in [0, count), in any order, on any thread; returns when all have returned.
    template <class Body> void run(int count, Body &&body) {
        std::unique_lock<std::mutex> turn(turn_, std::try_to_lock);
        // Another thread of this process is in a job: do ours alone rather than wait.
        if (count <= 1 || !turn.owns_lock() || workers_.empty()) {
            for (int i = 0; i < count; i++) body(i);
            return;
        }
        using Plain = std::remove_reference_t<Body>;
        call_ = [](void *arg, int i) { (*static_cast<Plain *>(arg))(i); };
        arg_ = const_cast<void *>(static_cast<const void *>(&body));
        count_ = count;
        next_.store(0, std::memory_order_relaxed);
        uint64_t epoch = (state_.load(std::memory_order_relaxed) >> 32) + 1;
        state_.store(epoch << 32 | kOpen);
        if (sleepers_.load() > 0) {
            { std::lock_guard<std::mutex> lock(sleep_); }
            wake_.notify_all();
        }
        take();
        state_.fetch_and(~kOpen);
        for (int spins = 0; (state_.load(std::memory_order_acquire) & kActive) != 0; spins++) {
            if (spins < 4000) relax();
            else std::this_thread::yield();
        }
    }

  private:
    static constexpr uint64_t kOpen = 1u << 31;
    static constexpr uint64_t kActive = kOpen - 1;
    static constexpr int kSpins = 1500;

    static std::atomic<Pool *> &instance() {
        static std::atomic<Pool *> pool{nullptr};
        return pool;
    }

    void take() {
        for (int i; (i = next_.fetch_add(1, std::memory_order_relaxed)) < count_;) call_(arg_, i);
    }

    bool fresh(uint64_t state, uint64_t seen) const { return (state & kOpen) && (state >> 32) != seen; }

    void work(uint64_t seen) {
        for (;;) {
            uint64_t state = state_.load(std::memory_order_acquire);
            for (int spins = 0; !fresh(state, seen) && spins < kSpins && !stop_.load(std::memory_order_relaxed); spins++) {
                relax();
                state = state_.load(std::memory_order_acquire);
            }
            if (!fresh(state, seen)) {
                std::unique_lock<std::mutex> lock(sleep_);
                sleepers_.fetch_add(1);
                wake_.wait(lock, [&] { return stop_.load() || fresh(state = state_.load(), seen); });
                sleepers_.fetch_sub(1);
            }
            if (stop_.load()) return;
            // Join while it is open; the job's fields were written before it was opened.
            while (fresh(state, seen)) {
                if (state_.compare_exchange_weak(state, state + 1, std::memory_order_acq_rel)) {
                    seen = state >> 32;
                    take();
                    state_.fetch_sub(1, std::memory_order_release);
                    break;
                }
            }
        }
    }

    std::mutex turn_;
    std::vector<std::thread> workers_;
    void (*call_)(void *, int) = nullptr;
    void *arg_ = nullptr;
    int count_ = 0;
    alignas(64) std::atomic<int> next_{0};
    alignas(64) std::atomic<uint64_t> state_{0};  // epoch << 32 | open | workers inside
    alignas(64) std::atomic<int> sleepers_{0};
    std::atomic<bool> stop_{false};
    std::mutex sleep_;
    std::condition_variable wake_;
};

template <class Body> void parallel(int count, Body &&body) { Pool::get().run(count, std::forward<Body>(body)); }

}  // namespace plait
