// SPDX-License-Identifier: Apache-2.0
// Products in the shapes of real models. `bytes_per_second` counts the packed weights once a call (what one row must
// read), `ops` two operations a multiply-add.
//
// Names that end in `/rounded` let 16-bit weights multiply as integers, as quantised encoders do.
//
//   matmul_bench --benchmark_filter='Q4_1' --benchmark_repetitions=7 --benchmark_report_aggregates_only=true
#include <benchmark/benchmark.h>

#include <fmt/core.h>
#include <algorithm>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "backend/backend.h"
#include "base/memory.h"
#include "base/rng.h"
#include "quant/format.h"

namespace weir {
namespace {

struct Shape {
  int64_t n_out, n_in;
};

// SmolLM2-135M (576 wide, FFN 1536), Llama-3.2-1B (2048 wide, FFN 8192).
constexpr Shape kShapes[] = {{1536, 576}, {576, 1536}, {576, 576}, {2048, 2048}, {8192, 2048}, {2048, 8192}};
constexpr int64_t kRowCounts[] = {1, 2, 4, 8, 16, 64, 512};

void MatMul(benchmark::State& state, DType type, Shape shape, int64_t n_rows, bool rounds) {
  Ledger ledger;
  const std::unique_ptr<Backend> backend = MakeCpuBackend(0);
  Rng rng(1);
  std::vector<float> row(static_cast<size_t>(shape.n_in));
  std::vector<uint8_t> bytes(static_cast<size_t>(shape.n_out * RowBytes(type, shape.n_in)));
  for (int64_t o = 0; o < shape.n_out; ++o) {
    for (float& w : row) w = static_cast<float>(rng.Uniform() - 0.5);
    EncodeRow(type, row.data(), shape.n_in, bytes.data() + o * RowBytes(type, shape.n_in));
    if (o >= 64) break;
  }
  // The speed does not depend on the values: the remaining rows repeat the first ones.
  for (int64_t o = 64; o < shape.n_out; ++o) {
    std::copy_n(bytes.data() + o % 64 * RowBytes(type, shape.n_in), RowBytes(type, shape.n_in),
                bytes.data() + o * RowBytes(type, shape.n_in));
  }
  // Enough copies to leave the caches, as the layers of a model do.
  const int64_t n_copies = std::max<int64_t>(1, (int64_t{96} << 20) / static_cast<int64_t>(bytes.size()));
  std::vector<std::unique_ptr<Matrix>> layers;
  for (int64_t i = 0; i < n_copies; ++i) {
    Result<std::unique_ptr<Matrix>> w =
        backend->PrepareMatrix({"w", type, shape.n_out, shape.n_in, bytes.data(), nullptr}, ledger);
    if (!w.ok()) return state.SkipWithError(w.status().message().c_str());
    layers.push_back(std::move(w).value());
  }
  std::vector<float> x(static_cast<size_t>(n_rows * shape.n_in)), y(static_cast<size_t>(n_rows * shape.n_out));
  for (float& v : x) v = static_cast<float>(rng.Uniform() - 0.5);
  Result<HostBuffer> scratch =
      HostBuffer::Allocate(ledger, MemTag::kWorkspace, backend->RoundedMatMulScratchBytes(n_rows, shape.n_in));
  if (!scratch.ok()) return state.SkipWithError(scratch.status().message().c_str());
  int64_t layer = 0;
  for (auto _ : state) {
    const MatMulOut out = {layers[layer].get(), y.data(), shape.n_out, nullptr, false};
    backend->MatMul({x.data(), shape.n_in, n_rows, shape.n_in, {&out, 1}, scratch->data(), rounds});
    layer = (layer + 1) % n_copies;
  }
  state.SetBytesProcessed(state.iterations() * layers[0]->bytes());
  state.counters["ops"] = benchmark::Counter(
      2.0 * static_cast<double>(state.iterations() * n_rows * shape.n_out * shape.n_in), benchmark::Counter::kIsRate);
}

}  // namespace
}  // namespace weir

int main(int argc, char** argv) {
  using weir::DType;
  for (int t = 0; t < weir::kNumDTypes; ++t) {
    const auto type = static_cast<DType>(t);
    if (type == DType::kI32 || weir::FormatOf(type).encode == nullptr) continue;  // never weights; only read
    for (const weir::Shape shape : weir::kShapes) {
      if (shape.n_in % weir::InfoOf(type).block_elements != 0) continue;
      for (const int64_t n_rows : weir::kRowCounts) {
        const std::string name =
            fmt::format("{}/{}x{}/rows:{}", weir::InfoOf(type).name, shape.n_out, shape.n_in, n_rows);
        benchmark::RegisterBenchmark(name.c_str(), weir::MatMul, type, shape, n_rows, false)->UseRealTime();
        if (type != DType::kF16 && type != DType::kBF16) continue;
        benchmark::RegisterBenchmark((name + "/rounded").c_str(), weir::MatMul, type, shape, n_rows, true)
            ->UseRealTime();
      }
    }
  }
  benchmark::Initialize(&argc, argv);
  benchmark::RunSpecifiedBenchmarks();
  return 0;
}
