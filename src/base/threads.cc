#include "base/threads.h"

#include <sched.h>

#include <algorithm>
#include <atomic>
#include <thread>
#include <vector>

namespace weir {
namespace {

// About 50 microseconds of spinning: longer than the gap between two products of a decode step, short enough that an
// idle session costs nothing.
constexpr int kSpins = 20000;

inline void Pause() {
#if defined(__x86_64__)
  __builtin_ia32_pause();
#elif defined(__aarch64__)
  asm volatile("yield");
#endif
}

int UsableCores() {
  cpu_set_t set;
  CPU_ZERO(&set);
  if (sched_getaffinity(0, sizeof(set), &set) == 0) return std::max(1, CPU_COUNT(&set));
  return std::max(1u, std::thread::hardware_concurrency());
}

}  // namespace

struct ThreadPool::Shared {
  // A call publishes its fields, then bumps `epoch`. A worker that sees a new epoch takes tasks until none are left,
  // then counts itself out of `busy`. Run() returns at busy == 0, so no worker can touch a finished call's closure.
  std::atomic<uint32_t> epoch{0};
  std::atomic<int64_t> next{0};
  std::atomic<int> busy{0};
  std::atomic<bool> stop{false};
  int64_t n_tasks = 0;
  TaskFn fn = nullptr;
  const void* closure = nullptr;
  std::vector<std::thread> workers;

  void Drain(int worker) {
    for (int64_t task; (task = next.fetch_add(1, std::memory_order_relaxed)) < n_tasks;) fn(closure, task, worker);
  }

  void Work(int worker) {
    uint32_t seen = 0;
    for (;;) {
      int spins = 0;
      while (epoch.load(std::memory_order_acquire) == seen) {
        if (++spins < kSpins) {
          Pause();
        } else {
          epoch.wait(seen, std::memory_order_acquire);
        }
      }
      seen = epoch.load(std::memory_order_acquire);
      if (stop.load(std::memory_order_relaxed)) return;
      Drain(worker);
      busy.fetch_sub(1, std::memory_order_release);
    }
  }
};

ThreadPool::ThreadPool(int n_threads)
    : n_threads_(n_threads > 0 ? n_threads : UsableCores()), shared_(std::make_unique<Shared>()) {
  for (int i = 1; i < n_threads_; ++i) shared_->workers.emplace_back([s = shared_.get(), i] { s->Work(i); });
}

ThreadPool::~ThreadPool() {
  shared_->stop.store(true, std::memory_order_relaxed);
  shared_->epoch.fetch_add(1, std::memory_order_release);
  shared_->epoch.notify_all();
  for (std::thread& worker : shared_->workers) worker.join();
}

void ThreadPool::Run(int64_t n_tasks, TaskFn fn, const void* closure) {
  if (n_threads_ == 1 || n_tasks <= 1) {
    for (int64_t task = 0; task < n_tasks; ++task) fn(closure, task, 0);
    return;
  }
  Shared& s = *shared_;
  s.n_tasks = n_tasks;
  s.fn = fn;
  s.closure = closure;
  s.next.store(0, std::memory_order_relaxed);
  s.busy.store(n_threads_ - 1, std::memory_order_relaxed);
  s.epoch.fetch_add(1, std::memory_order_release);
  s.epoch.notify_all();
  s.Drain(0);
  int spins = 0;
  while (s.busy.load(std::memory_order_acquire) != 0) {
    if (++spins < kSpins) {
      Pause();
    } else {
      std::this_thread::yield();
    }
  }
}

}  // namespace weir
