// SPDX-License-Identifier: Apache-2.0
// The overhead of running a piece of work on the thread pool, compared with an OpenMP region. A decode step has some
// 200 such regions, most of them tens of microseconds long.
//
//   pool/GAP, openmp/GAP   one region of n_threads tasks of about 2 microseconds, GAP microseconds of serial work
//   between
#include <benchmark/benchmark.h>
#ifdef _OPENMP
#include <omp.h>
#endif

#include <chrono>
#include <cstdint>

#include "base/clock.h"
#include "base/threads.h"

namespace weir {
namespace {

void Spin(double microseconds) {
  const auto until = Clock::now() + std::chrono::duration<double, std::micro>(microseconds);
  while (Clock::now() < until) {
  }
}

// Time of the region alone; the gap is left out.
template <typename Region>
void Measure(benchmark::State& state, const Region& region) {
  const auto gap = static_cast<double>(state.range(0));
  for (auto _ : state) {
    if (gap > 0) Spin(gap);
    const auto start = Clock::now();
    region();
    state.SetIterationTime(SecondsSince(start));
  }
}

void Pool(benchmark::State& state) {
  ThreadPool pool;
  Measure(state, [&] { pool.For(pool.n_threads(), [](int64_t, int) { Spin(2); }); });
}
BENCHMARK(Pool)->Name("pool")->Arg(0)->Arg(10)->Arg(50)->Arg(500)->UseManualTime();

#ifdef _OPENMP
void OpenMp(benchmark::State& state) {
  const int n = omp_get_max_threads();
  Measure(state, [&] {
#pragma omp parallel for schedule(dynamic, 1)
    for (int i = 0; i < n; ++i) Spin(2);
  });
}
BENCHMARK(OpenMp)->Name("openmp")->Arg(0)->Arg(10)->Arg(50)->Arg(500)->UseManualTime();
#endif

}  // namespace
}  // namespace weir

BENCHMARK_MAIN();
