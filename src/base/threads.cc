// SPDX-License-Identifier: Apache-2.0
#include "base/threads.h"

#include <sched.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <exception>
#include <fstream>
#include <set>
#include <string>
#include <thread>
#include <vector>

#include "base/clock.h"

namespace weir {
namespace {

// How long a waiting thread spins before it releases the core: longer than the gap between two products of a decode
// step, short enough that an idle session costs nothing.
constexpr std::chrono::microseconds kSpinTime{100};
constexpr int kPausesPerLook = 32;

inline void Pause() {
#if defined(__x86_64__)
  __builtin_ia32_pause();
#elif defined(__aarch64__)
  asm volatile("yield");
#endif
}

// Spins until done() or until kSpinTime is over.
template <typename Done>
void SpinUntil(const Done& done) {
  const auto end = Clock::now() + kSpinTime;
  do {
    for (int i = 0; i < kPausesPerLook; ++i) {
      if (done()) return;
      Pause();
    }
  } while (Clock::now() < end);
}

// Physical cores this process may run on: two threads of one core share its vector units, so a second one only adds
// waiting. A container's CPU quota counts too.
int UsableCores() {
  cpu_set_t set;
  CPU_ZERO(&set);
  int cores = static_cast<int>(std::thread::hardware_concurrency());
  if (sched_getaffinity(0, sizeof(set), &set) == 0) {
    std::set<std::string> siblings;
    for (int cpu = 0; cpu < CPU_SETSIZE; ++cpu) {
      if (!CPU_ISSET(cpu, &set)) continue;
      std::ifstream file("/sys/devices/system/cpu/cpu" + std::to_string(cpu) + "/topology/thread_siblings_list");
      std::string list = std::to_string(cpu);
      std::getline(file, list);
      siblings.insert(list.empty() ? std::to_string(cpu) : list);
    }
    cores = static_cast<int>(siblings.size());
  }
  std::ifstream quota_file("/sys/fs/cgroup/cpu.max");
  double quota = 0, period = 0;
  if (quota_file >> quota >> period && period > 0) cores = std::min(cores, static_cast<int>(quota / period + 0.5));
  return std::max(1, cores);
}

}  // namespace

// A call publishes its fields, then stores `state`: the call's number in the upper bits, the number of untaken tasks in
// the lower ones. Taking a task is one compare-and-swap on that word, so a thread that succeeds knows that its call is
// still running and that the fields belong to it: Run() returns only when every task was counted in `done`. A worker
// that wakes late finds no task and accesses nothing, so no thread ever waits for a worker that the system has not
// scheduled: on a busy machine the caller does all the work itself.
struct ThreadPool::Shared {
  static constexpr uint64_t kTasksMask = 0xffffffff;
  std::atomic<uint64_t> state{0};
  std::atomic<int64_t> done{0};
  std::atomic<uint32_t> wake{0};
  std::atomic<bool> stop{false};
  TaskFn fn = nullptr;
  const void* closure = nullptr;
  int64_t n_tasks = 0;
  std::vector<std::thread> workers;

  // Takes and runs tasks until none are left.
  void Drain(int worker) {
    uint64_t now = state.load(std::memory_order_acquire);
    while ((now & kTasksMask) != 0) {
      if (!state.compare_exchange_weak(now, now - 1, std::memory_order_acq_rel, std::memory_order_acquire)) continue;
      fn(closure, n_tasks - static_cast<int64_t>(now & kTasksMask), worker);
      done.fetch_add(1, std::memory_order_release);
      now = state.load(std::memory_order_acquire);
    }
  }

  void Work(int worker) {
    for (;;) {
      const uint32_t seen = wake.load(std::memory_order_acquire);
      if (stop.load(std::memory_order_relaxed)) return;
      Drain(worker);
      SpinUntil([&] { return wake.load(std::memory_order_acquire) != seen; });
      while (wake.load(std::memory_order_acquire) == seen) wake.wait(seen, std::memory_order_acquire);
    }
  }
};

ThreadPool::ThreadPool(int n_threads)
    : n_threads_(n_threads > 0 ? n_threads : UsableCores()), shared_(std::make_unique<Shared>()) {
  // If the system provides fewer threads than requested (a process limit), the pool is smaller; it does not crash.
  try {
    for (int i = 1; i < n_threads_; ++i) shared_->workers.emplace_back([s = shared_.get(), i] { s->Work(i); });
  } catch (const std::exception&) {
    n_threads_ = static_cast<int>(shared_->workers.size()) + 1;
  }
}

ThreadPool::~ThreadPool() {
  shared_->stop.store(true, std::memory_order_relaxed);
  shared_->wake.fetch_add(1, std::memory_order_release);
  shared_->wake.notify_all();
  for (std::thread& worker : shared_->workers) worker.join();
}

void ThreadPool::Run(int64_t n_tasks, TaskFn fn, const void* closure) {
  if (n_threads_ == 1 || n_tasks <= 1 || n_tasks > static_cast<int64_t>(Shared::kTasksMask)) {
    for (int64_t task = 0; task < n_tasks; ++task) fn(closure, task, 0);
    return;
  }
  Shared& s = *shared_;
  s.fn = fn;
  s.closure = closure;
  s.n_tasks = n_tasks;
  s.done.store(0, std::memory_order_relaxed);
  const uint64_t call = (s.state.load(std::memory_order_relaxed) >> 32) + 1;
  s.state.store(call << 32 | static_cast<uint64_t>(n_tasks), std::memory_order_release);
  s.wake.fetch_add(1, std::memory_order_release);
  s.wake.notify_all();
  s.Drain(0);
  SpinUntil([&] { return s.done.load(std::memory_order_acquire) == n_tasks; });
  // Another thread needs this core: perhaps the worker that runs the last task.
  while (s.done.load(std::memory_order_acquire) != n_tasks) std::this_thread::yield();
}

}  // namespace weir
