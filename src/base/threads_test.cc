// SPDX-License-Identifier: Apache-2.0
#include "base/threads.h"

#include <atomic>
#include <chrono>
#include <cstdint>
#include <thread>
#include <vector>

#include "gtest/gtest.h"

namespace weir {
namespace {

TEST(ThreadPool, EveryTaskOnceAndWorkersInRange) {
  for (const int n_threads : {1, 2, 3, 7}) {
    ThreadPool pool(n_threads);
    ASSERT_EQ(pool.n_threads(), n_threads);
    for (const int64_t n_tasks : {0, 1, 2, 3, 100, 1000}) {
      std::vector<std::atomic<int>> runs(static_cast<size_t>(n_tasks));
      std::atomic<bool> in_range{true};
      pool.For(n_tasks, [&](int64_t task, int worker) {
        if (task < 0 || task >= n_tasks || worker < 0 || worker >= n_threads) {
          in_range = false;
          return;
        }
        runs[static_cast<size_t>(task)].fetch_add(1, std::memory_order_relaxed);
      });
      EXPECT_TRUE(in_range);
      for (const std::atomic<int>& n : runs) ASSERT_EQ(n.load(), 1) << n_tasks << " tasks, " << n_threads << " threads";
    }
  }
}

TEST(ThreadPool, ZeroMeansAtLeastOne) {
  ThreadPool pool;
  EXPECT_GE(pool.n_threads(), 1);
}

// Plain (not atomic) writes of the tasks are visible to the caller afterwards, and the caller's to the tasks: under
// ThreadSanitizer this fails if an ordering is missing.
TEST(ThreadPool, PublishesMemoryBothWays) {
  ThreadPool pool(3);
  std::vector<int64_t> values(64, 0);
  int64_t add = 0;
  for (int round = 1; round <= 2000; ++round) {
    add = round;
    pool.For(64, [&](int64_t task, int) { values[static_cast<size_t>(task)] += add; });
  }
  for (const int64_t v : values) ASSERT_EQ(v, int64_t{2000} * 2001 / 2);
}

// A worker number belongs to one thread at a time: scratch indexed by it needs no lock.
TEST(ThreadPool, WorkerNumbersAreExclusive) {
  ThreadPool pool(4);
  std::vector<int64_t> counts(4, 0);
  for (int round = 0; round < 200; ++round) {
    pool.For(50, [&](int64_t, int worker) { ++counts[static_cast<size_t>(worker)]; });
  }
  int64_t sum = 0;
  for (const int64_t n : counts) sum += n;
  EXPECT_EQ(sum, 200 * 50);
}

TEST(ThreadPool, WorkersWakeAfterSleeping) {
  ThreadPool pool(3);
  for (int round = 0; round < 5; ++round) {
    std::atomic<int> n{0};
    pool.For(10, [&](int64_t, int) { n.fetch_add(1); });
    ASSERT_EQ(n.load(), 10);
    std::this_thread::sleep_for(std::chrono::milliseconds(30));  // far longer than workers spin
  }
}

TEST(ThreadPool, SeveralPoolsInOneProcess) {
  // A server runs one pool per model, each from its own thread.
  std::vector<std::thread> callers;
  std::vector<int64_t> sums(3, 0);
  for (size_t i = 0; i < 3; ++i) {
    callers.emplace_back([&sums, i] {
      ThreadPool pool(2);
      std::atomic<int64_t> sum{0};
      for (int round = 0; round < 300; ++round) pool.For(20, [&](int64_t task, int) { sum.fetch_add(task); });
      sums[i] = sum.load();
    });
  }
  for (std::thread& caller : callers) caller.join();
  for (const int64_t sum : sums) EXPECT_EQ(sum, 300 * 190);
}

TEST(ThreadPool, StartsAndStopsWithoutWork) {
  for (int i = 0; i < 50; ++i) ThreadPool pool(1 + i % 4);
}

}  // namespace
}  // namespace weir
