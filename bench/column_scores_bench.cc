// SPDX-License-Identifier: Apache-2.0
// Attention statistics on the CPU beside the attention call whose weights they are.
//
//   of_attention  time of the statistics / time of one attention call of the same rows and slots, alternating
#include <benchmark/benchmark.h>

#include <cmath>
#include <random>
#include <vector>

#include "backend/cpu/attention.h"
#include "backend/cpu/column_scores.h"
#include "backend/cpu/kv_slots.h"
#include "base/clock.h"
#include "base/memory.h"

namespace weir {
namespace {

struct Bench {
  int64_t n_heads, n_kv_heads, head_dim, n_rows, n_slots, n_declared;
  DType type;
  bool keys_rotated;
};

void Run(benchmark::State& state, const Bench& b, int n_threads) {
  ThreadPool pool(n_threads);
  Ledger ledger;
  RopeConfig config;
  config.n_rot = static_cast<int>(b.head_dim);
  Result<RopeTable> rope = RopeTable::Make(config, b.n_slots);
  const int64_t array_bytes = b.n_slots * SlotBytes(b.type, b.head_dim);
  const AttentionShape shape = {b.n_heads, b.n_kv_heads, b.head_dim, b.n_rows, b.n_slots};
  Result<HostBuffer> slots = HostBuffer::Allocate(ledger, MemTag::kKv, 2 * b.n_kv_heads * array_bytes);
  Result<HostBuffer> attention_scratch =
      HostBuffer::Allocate(ledger, MemTag::kWorkspace, cpu::AttentionScratchBytes(shape, n_threads));
  Result<HostBuffer> scratch =
      HostBuffer::Allocate(ledger, MemTag::kWorkspace, cpu::ColumnScoresScratchBytes(shape, n_threads));
  if (!rope.ok() || !slots.ok() || !attention_scratch.ok() || !scratch.ok()) return state.SkipWithError("no memory");

  std::mt19937 rng(1);
  std::normal_distribution<float> normal;
  std::vector<float> q(b.n_rows * b.n_heads * b.head_dim), out(q.size()), x(b.n_slots * b.head_dim);
  for (float& v : q) v = normal(rng);
  for (float& v : x) v = normal(rng);
  std::vector<StoreSlotsArgs> store(2 * b.n_kv_heads);
  std::vector<const uint8_t*> k(b.n_kv_heads), v(b.n_kv_heads);
  for (size_t i = 0; i < store.size(); ++i) {
    store[i].x = x.data();
    store[i].x_stride = store[i].head_dim = b.head_dim;
    store[i].n_rows = b.n_slots;
    store[i].type = b.type;
    store[i].slots = slots->data() + i * array_bytes;
    (i % 2 == 0 ? k : v)[i / 2] = store[i].slots;
  }
  cpu::StoreSlots(store, pool);
  const std::vector<int32_t> n_slots(b.n_kv_heads, static_cast<int32_t>(b.n_slots));
  std::vector<float> cos(b.n_rows * b.head_dim / 2, 1.0f), sin(cos.size(), 0.0f);
  std::vector<float> scores(b.n_kv_heads * b.n_slots);
  std::vector<float*> score_ptrs(b.n_kv_heads);
  for (int64_t h = 0; h < b.n_kv_heads; ++h) score_ptrs[h] = &scores[h * b.n_slots];
  const AttentionSegment segment = {0, b.n_rows, k.data(), v.data(), n_slots.data()};
  ColumnScoresArgs args;
  AttentionArgs& attention = args.attention;
  attention.n_heads = b.n_heads;
  attention.n_kv_heads = b.n_kv_heads;
  attention.head_dim = b.head_dim;
  attention.scale = 1 / std::sqrt(static_cast<float>(b.head_dim));
  attention.q = q.data();
  attention.q_stride = attention.out_stride = b.n_heads * b.head_dim;
  attention.out = out.data();
  attention.k_type = attention.v_type = b.type;
  attention.rope = &*rope;
  attention.keys_rotated = b.keys_rotated;
  attention.row_cos = cos.data();
  attention.row_sin = sin.data();
  attention.segments = {&segment, 1};
  attention.scratch = attention_scratch->data();
  args.row_begin = b.n_rows - b.n_declared;
  args.row_end = b.n_rows;
  args.out = score_ptrs.data();
  args.scratch = scratch->data();

  double attention_s = 0, scores_s = 0;
  for (auto _ : state) {
    const auto attention_start = Clock::now();
    cpu::Attention(attention, pool);
    attention_s += SecondsSince(attention_start);
    const auto start = Clock::now();
    cpu::ColumnScores(args, pool);
    const double s = SecondsSince(start);
    scores_s += s;
    state.SetIterationTime(s);
    benchmark::DoNotOptimize(scores.data());
  }
  state.counters["of_attention"] = scores_s / attention_s;
  // The products only: 2 * head_dim operations for every (query head, visible slot) pair.
  const double visible = static_cast<double>(b.n_declared) * (b.n_slots - (b.n_declared - 1) / 2.0);
  state.counters["flops"] = benchmark::Counter(2.0 * b.head_dim * b.n_heads * visible * state.iterations() / scores_s);
}

void Register(const char* model, int64_t n_heads, int64_t n_kv_heads, int64_t head_dim) {
  struct Work {
    const char* name;
    int64_t n_rows, n_slots, n_declared;
  };
  for (const Work& work : {Work{"last64/512+1536", 512, 2048, 64}, Work{"last16/512+1536", 512, 2048, 16},
                           Work{"last1/512+1536", 512, 2048, 1}, Work{"all512/512+1536", 512, 2048, 512},
                           Work{"probe20/20+2048", 20, 2068, 20}, Work{"decode/2048", 1, 2048, 1}}) {
    for (const DType type : {DType::kF16, DType::kQ8_0}) {
      for (const bool rotated : {false, true}) {
        for (const int n_threads : {1, 2}) {
          const std::string name = std::string(model) + "/" + work.name + "/" + InfoOf(type).name +
                                   (rotated ? "/rotated" : "/unrotated") + "/threads:" + std::to_string(n_threads);
          const Bench b = {n_heads, n_kv_heads, head_dim, work.n_rows, work.n_slots, work.n_declared, type, rotated};
          benchmark::RegisterBenchmark(name.c_str(), [=](benchmark::State& state) { Run(state, b, n_threads); })
              ->UseManualTime()
              ->Unit(benchmark::kMicrosecond);
        }
      }
    }
  }
}

}  // namespace
}  // namespace weir

int main(int argc, char** argv) {
  weir::Register("135M", 9, 3, 64);
  weir::Register("8B", 32, 8, 128);
  benchmark::Initialize(&argc, argv);
  benchmark::RunSpecifiedBenchmarks();
  return 0;
}
