// SPDX-License-Identifier: Apache-2.0
// Persistent worker threads. One pool per backend; the calling thread is worker 0, so a pool of one thread starts none.
//
// The caller splits the work into tasks whose results do not depend on the worker that runs them, so pools of any size
// give the same bytes. Workers spin briefly between calls (a forward pass makes a call every few tens of microseconds),
// then sleep.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>

namespace weir {

class ThreadPool {
 public:
  // n_threads >= 1; 0 means one per physical core that this process may use, within its container's CPU quota. When the
  // system cannot start that many, the pool is smaller: see n_threads().
  explicit ThreadPool(int n_threads = 0);
  ~ThreadPool();
  ThreadPool(const ThreadPool&) = delete;
  ThreadPool& operator=(const ThreadPool&) = delete;

  int n_threads() const { return n_threads_; }

  // Calls fn(task, worker) for every task in [0, n_tasks), worker in [0, n_threads()), and returns when all are done.
  // Tasks are handed out one by one. Not reentrant: one caller at a time. `fn` must not throw.
  template <typename F>
  void For(int64_t n_tasks, const F& fn) {
    Run(
        n_tasks, [](const void* f, int64_t task, int worker) { (*static_cast<const F*>(f))(task, worker); }, &fn);
  }

 private:
  using TaskFn = void (*)(const void* closure, int64_t task, int worker);
  void Run(int64_t n_tasks, TaskFn fn, const void* closure);

  struct Shared;
  int n_threads_;
  std::unique_ptr<Shared> shared_;
};

}  // namespace weir
