// SPDX-License-Identifier: Apache-2.0
// Attention on the CPU: decode against bytes of keys and values read, prefill against F32 operations.
//
//   bytes_per_second  stored keys and values read once a call (what decode is bound by)
//   flops             4 * head_dim operations for every (query head, visible slot) pair (what prefill is bound by)
#include <benchmark/benchmark.h>

#include <cmath>
#include <initializer_list>
#include <random>
#include <string>
#include <utility>
#include <vector>

#include "backend/cpu/attention.h"
#include "backend/cpu/kv_slots.h"
#include "base/memory.h"

namespace weir {
namespace {

struct Bench {
  int64_t n_heads, n_kv_heads, head_dim, n_rows, n_slots;
  DType k_type, v_type;
  bool keys_rotated, bf16 = false;
};

void Run(benchmark::State& state, const Bench& b, int n_threads) {
  ThreadPool pool(n_threads);
  Ledger ledger;
  RopeConfig config;
  config.n_rot = static_cast<int>(b.head_dim);
  Result<RopeTable> rope = RopeTable::Make(config, b.n_slots);
  const int64_t k_bytes = b.n_slots * SlotBytes(b.k_type, b.head_dim);
  const int64_t head_bytes = k_bytes + b.n_slots * SlotBytes(b.v_type, b.head_dim);
  // Several layers, so that a call finds nothing of the last one in the caches, as in a model.
  const int64_t layer_bytes = b.n_kv_heads * head_bytes;
  const int64_t n_layers = b.n_rows == 1 ? std::max<int64_t>(1, (int64_t{256} << 20) / layer_bytes) : 1;
  const AttentionShape shape = {b.n_heads, b.n_kv_heads, b.head_dim, b.n_rows, b.n_slots};
  Result<HostBuffer> slots = HostBuffer::Allocate(ledger, MemTag::kKv, n_layers * layer_bytes);
  Result<HostBuffer> scratch =
      HostBuffer::Allocate(ledger, MemTag::kWorkspace, cpu::AttentionScratchBytes(shape, n_threads));
  if (!rope.ok() || !slots.ok() || !scratch.ok()) return state.SkipWithError("no memory");

  std::mt19937 rng(1);
  std::normal_distribution<float> normal;
  std::vector<float> q(b.n_rows * b.n_heads * b.head_dim), out(q.size()), x(b.n_slots * b.head_dim);
  for (float& v : q) v = normal(rng);
  for (float& v : x) v = normal(rng);
  std::vector<StoreSlotsArgs> store(n_layers * 2 * b.n_kv_heads);
  for (size_t i = 0; i < store.size(); ++i) {
    store[i].x = x.data();
    store[i].x_stride = store[i].head_dim = b.head_dim;
    store[i].n_rows = b.n_slots;
    store[i].type = i % 2 == 0 ? b.k_type : b.v_type;
    store[i].slots = slots->data() + i / 2 * head_bytes + (i % 2 == 0 ? 0 : k_bytes);
  }
  cpu::StoreSlots(store, pool);
  std::vector<const uint8_t*> k(b.n_kv_heads), v(b.n_kv_heads);
  const std::vector<int32_t> n_slots(b.n_kv_heads, static_cast<int32_t>(b.n_slots));
  std::vector<float> cos(b.n_rows * b.head_dim / 2, 1.0f), sin(cos.size(), 0.0f);
  const AttentionSegment segment = {0, b.n_rows, k.data(), v.data(), n_slots.data()};
  AttentionArgs args;
  args.n_heads = b.n_heads;
  args.n_kv_heads = b.n_kv_heads;
  args.head_dim = b.head_dim;
  args.scale = 1 / std::sqrt(static_cast<float>(b.head_dim));
  args.q = q.data();
  args.q_stride = args.out_stride = b.n_heads * b.head_dim;
  args.out = out.data();
  args.k_type = b.k_type;
  args.v_type = b.v_type;
  args.rope = &*rope;
  args.keys_rotated = b.keys_rotated;
  args.bf16 = b.bf16;
  args.row_cos = cos.data();
  args.row_sin = sin.data();
  args.segments = {&segment, 1};
  args.scratch = scratch->data();
  int64_t layer = 0;
  for (auto _ : state) {
    for (int64_t h = 0; h < b.n_kv_heads; ++h) {
      k[h] = slots->data() + layer * layer_bytes + h * head_bytes;
      v[h] = k[h] + k_bytes;
    }
    layer = (layer + 1) % n_layers;
    cpu::Attention(args, pool);
    benchmark::DoNotOptimize(out.data());
  }
  state.SetBytesProcessed(state.iterations() * layer_bytes);
  const double visible = static_cast<double>(b.n_rows) * (b.n_slots - (b.n_rows - 1) / 2.0);
  state.counters["flops"] =
      benchmark::Counter(4.0 * b.head_dim * b.n_heads * visible, benchmark::Counter::kIsIterationInvariantRate);
}

void Register(const char* model, int64_t n_heads, int64_t n_kv_heads, int64_t head_dim) {
  struct Work {
    const char* name;
    int64_t n_rows, n_slots;
  };
  for (const Work& work : {Work{"decode/2048", 1, 2048}, Work{"decode/16384", 1, 16384}, Work{"prefill/512", 512, 512},
                           Work{"prefill/512+3584", 512, 4096}, Work{"probe/20+2048", 20, 2068}}) {
    for (const auto& [k_type, v_type] : std::initializer_list<std::pair<DType, DType>>{{DType::kF16, DType::kF16},
                                                                                       {DType::kQ8_0, DType::kQ8_0},
                                                                                       {DType::kQ8_0, DType::kQ4_0},
                                                                                       {DType::kQ5_0, DType::kQ4_0},
                                                                                       {DType::kQ4_0, DType::kQ4_0}}) {
      for (const bool rotated : {false, true}) {
        for (const int n_threads : {1, 2}) {
          const std::string name = std::string(model) + "/" + work.name + "/" + InfoOf(k_type).name + "," +
                                   InfoOf(v_type).name + (rotated ? "/rotated" : "/unrotated") +
                                   "/threads:" + std::to_string(n_threads);
          Bench b = {n_heads, n_kv_heads, head_dim, work.n_rows, work.n_slots, k_type, v_type, rotated};
          for (const bool bf16 : {false, true}) {
            if (bf16 && work.n_rows == 1) continue;
            b.bf16 = bf16;
            benchmark::RegisterBenchmark((name + (bf16 ? "/bf16" : "")).c_str(),
                                         [=](benchmark::State& state) { Run(state, b, n_threads); })
                ->UseRealTime()
                ->Unit(benchmark::kMicrosecond);
          }
        }
      }
    }
  }
}

}  // namespace
}  // namespace weir

int main(int argc, char** argv) {
  weir::Register("135M", 9, 3, 64);
  weir::Register("1B", 32, 8, 64);
  weir::Register("8B", 32, 8, 128);
  benchmark::Initialize(&argc, argv);
  benchmark::RunSpecifiedBenchmarks();
  return 0;
}
