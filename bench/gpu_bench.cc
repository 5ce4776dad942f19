// SPDX-License-Identifier: Apache-2.0
// A device's operations against what the device can do: bandwidth of a copy and rate of a BF16 product, measured in the
// same call. Shapes of Llama-2 7B and Llama-3 8B, random weights. Prints Markdown. Needs a CUDA device.
//
//   gpu_bench [products | attention | pictures | logits]...      all, unless some are named
#include <fmt/core.h>
#include <algorithm>
#include <cmath>
#include <cstdio>
#include <cstring>
#include <functional>
#include <memory>
#include <numeric>
#include <string>
#include <vector>

#include "backend/backend.h"
#include "base/clock.h"
#include "base/rng.h"
#include "ops/kv_slots.h"
#include "quant/format.h"

namespace weir {
namespace {

class Bench {
 public:
  explicit Bench(std::unique_ptr<Backend> backend, Ledger& ledger) : backend_(std::move(backend)), ledger_(ledger) {}

  void Run(const std::vector<std::string>& parts) {
    const auto wants = [&](const char* part) {
      return parts.empty() || std::find(parts.begin(), parts.end(), part) != parts.end();
    };
    std::printf("## %s\n\n| measured | value | of the ceiling |\n|---|---|---|\n", backend_->name().c_str());
    Copies();
    Rate();
    if (wants("products")) {
      for (DType type :
           {DType::kF16, DType::kBF16, DType::kQ8_0, DType::kQ4_0, DType::kQ4_K, DType::kQ5_K, DType::kQ6_K})
        Layer(type);
    }
    for (const int64_t n_keys : {2048, 8192, 32768, 131072}) {
      for (const int64_t n_rows : {1, 256}) {
        if (wants("attention")) AttentionOver(n_keys, n_rows);
      }
    }
    if (wants("pictures")) Picture();
    for (const int64_t k : {1, 40}) {
      if (wants("logits")) Draw(k);
    }
    backend_->Synchronise();
    if (!backend_->status().ok()) std::printf("\nFAILED: %s\n", backend_->status().message().c_str());
  }

 private:
  // Median seconds of a call.
  double Seconds(const std::function<void()>& call) {
    call();
    backend_->Synchronise();
    std::vector<double> times;
    int n = 1;
    while (times.size() < 7) {
      const auto start = Clock::now();
      for (int i = 0; i < n; ++i) call();
      backend_->Synchronise();
      const double s = SecondsSince(start);
      // Long enough that starting and waiting do not count.
      if (s < 0.02 && n < 4096) {
        n *= 4;
        times.clear();
        continue;
      }
      times.push_back(s / n);
    }
    std::nth_element(times.begin(), times.begin() + 3, times.end());
    return times[3];
  }
  static void Row(const std::string& what, double value, const char* unit, double ceiling) {
    std::printf("| %s | %.1f %s | %s |\n", what.c_str(), value, unit,
                ceiling > 0 ? fmt::format("{:.0f} %", 100 * value / ceiling).c_str() : "");
    std::fflush(stdout);
  }
  uint8_t* Take(int64_t bytes) {
    buffers_.push_back(std::move(backend_->Allocate(ledger_, MemTag::kOther, bytes, Access::kDevice)).value());
    return buffers_.back().data();
  }
  // Random floats; all parts of a large array are the same 1 MiB.
  float* Floats(int64_t n) {
    std::vector<float> piece(size_t{1} << 18);
    for (float& value : piece) value = static_cast<float>(rng_.Uniform() * 2 - 1);
    uint8_t* out = Take(n * 4);
    for (int64_t at = 0; at < n; at += std::ssize(piece)) {
      backend_->Copy(out + at * 4, piece.data(), std::min<int64_t>(std::ssize(piece), n - at) * 4);
    }
    return reinterpret_cast<float*>(out);
  }
  std::unique_ptr<Matrix> Weights(DType type, int64_t n_out, int64_t n_in) {
    constexpr int64_t kRows = 16;
    const int64_t row_bytes = RowBytes(type, n_in);
    std::vector<uint8_t> data(static_cast<size_t>(n_out * row_bytes));
    std::vector<float> row(static_cast<size_t>(n_in));
    for (int64_t o = 0; o < n_out; ++o) {
      if (o >= kRows) {
        std::memcpy(&data[o * row_bytes], &data[o % kRows * row_bytes], static_cast<size_t>(row_bytes));
        continue;
      }
      for (float& value : row) value = static_cast<float>(rng_.Uniform() * 2 - 1) * 0.03f;
      EncodeRow(type, row.data(), n_in, &data[o * row_bytes]);
    }
    return std::move(backend_->PrepareMatrix({"w", type, n_out, n_in, data.data()}, ledger_)).value();
  }

  void Copies() {
    const int64_t bytes = int64_t{1} << 30;
    uint8_t* memory = Take(2 * bytes);
    bandwidth_ = 2 * static_cast<double>(bytes) / Seconds([&] { backend_->Copy(memory + bytes, memory, bytes); }) / 1e9;
    Row("copy of 1 GiB, read and written", bandwidth_, "GB/s", 0);
    buffers_.clear();
  }
  void Rate() {
    const int64_t n = 8192;
    const auto w = Weights(DType::kBF16, n, n);
    const float* x = Floats(n * n);
    const MatMulOut out = {w.get(), reinterpret_cast<float*>(Take(n * n * 4)), n};
    const MatMulArgs args = {x, n, n, n, {&out, 1}, Take(backend_->MatMulScratchBytes(n, n))};
    rate_ = 2.0 * n * n * n / Seconds([&] { backend_->MatMul(args); }) / 1e12;
    Row("BF16 product of 8192 x 8192 x 8192", rate_, "TFLOP/s", 0);
    buffers_.clear();
  }

  // All products of a Llama-2 7B layer; several copies in turns, so that no cache holds them.
  void Layer(DType type) {
    const int64_t d = 4096, ff = 11008, copies = 4;
    std::vector<std::unique_ptr<Matrix>> square, wide, down;
    int64_t bytes = 0;
    for (int64_t c = 0; c < copies; ++c) {
      for (int i = 0; i < 4; ++i) square.push_back(Weights(type, d, d));
      for (int i = 0; i < 2; ++i) wide.push_back(Weights(type, ff, d));
      down.push_back(Weights(type, d, ff));
    }
    bytes = 4 * square[0]->bytes() + 2 * wide[0]->bytes() + down[0]->bytes();
    const double flops = 2.0 * (4.0 * d * d + 3.0 * d * ff);
    for (const int64_t n_rows : {1, 8, 2048}) {
      const float* x = Floats(n_rows * ff);
      float* y = reinterpret_cast<float*>(Take(n_rows * ff * 4 * 3));
      void* scratch = Take(backend_->MatMulScratchBytes(n_rows, ff));
      int64_t c = 0;
      const double seconds = Seconds([&] {
        c = (c + 1) % copies;
        const float* heads = x;
        const MatMulOut qkv[] = {{square[4 * c].get(), y, d},
                                 {square[4 * c + 1].get(), y + n_rows * d, d},
                                 {square[4 * c + 2].get(), y + 2 * n_rows * d, d}};
        const MatMulOut out[] = {{square[4 * c + 3].get(), y, d}};
        const MatMulOut gate_up[] = {{wide[2 * c].get(), y, ff}, {wide[2 * c + 1].get(), y + n_rows * ff, ff}};
        const MatMulOut last[] = {{down[c].get(), y, d}};
        backend_->MatMul({heads, d, n_rows, d, qkv, scratch});
        backend_->MatMul({heads, d, n_rows, d, out, scratch});
        backend_->MatMul({heads, d, n_rows, d, gate_up, scratch});
        backend_->MatMul({heads, ff, n_rows, ff, last, scratch});
      });
      const std::string what = fmt::format("7B layer, {}, {} rows", InfoOf(type).name, n_rows);
      if (n_rows <= 8) {
        Row(what, static_cast<double>(bytes) / seconds / 1e9, "GB/s", bandwidth_);
      } else {
        Row(what, flops * static_cast<double>(n_rows) / seconds / 1e12, "TFLOP/s", rate_);
      }
      buffers_.clear();
    }
  }

  // Llama-3 8B heads: plain, with statistics of the last 64 rows, and over a list of 30 % of the slots.
  void AttentionOver(int64_t n_keys, int64_t n_rows) {
    const int64_t heads = 32, kv = 8, dim = 128, slot = SlotBytes(DType::kF16, dim);
    RopeConfig config;
    config.n_rot = static_cast<int>(dim);
    RopeTable rope = std::move(RopeTable::Make(config, n_keys)).value();
    const std::vector<uint8_t> packed = rope.Pack();
    rope.device = Take(std::ssize(packed));
    backend_->Copy(const_cast<uint8_t*>(rope.device), packed.data(), std::ssize(packed));
    const float* x = Floats(n_keys * dim);
    std::vector<const uint8_t*> k, v;
    std::vector<float*> scores;
    std::vector<StoreSlotsArgs> stores;
    for (int64_t h = 0; h < kv; ++h) {
      for (auto* to : {&k, &v}) {
        uint8_t* slots = Take(n_keys * slot);
        stores.push_back({x, dim, n_keys, dim, DType::kF16, slots, 0});
        to->push_back(slots);
      }
      scores.push_back(reinterpret_cast<float*>(Take(n_keys * 4)));
    }
    backend_->StoreSlots(stores);
    std::vector<int32_t> n_slots(kv, static_cast<int32_t>(n_keys)), list;
    for (int32_t s = 0; s < n_keys; ++s) {
      if (s >= n_keys - n_rows || rng_.Uniform() < 0.3) list.push_back(s);
    }
    const std::vector<const int32_t*> lists(kv, list.data());
    const std::vector<int32_t> n_list(kv, static_cast<int32_t>(list.size()));
    AttentionSegment segment = {0, n_rows, k.data(), v.data(), n_slots.data()};
    AttentionArgs args;
    args.n_heads = heads, args.n_kv_heads = kv, args.head_dim = dim;
    args.scale = 1 / std::sqrt(static_cast<float>(dim));
    args.q = Floats(n_rows * heads * dim), args.q_stride = args.out_stride = heads * dim;
    args.out = reinterpret_cast<float*>(Take(n_rows * heads * dim * 4));
    args.rope = &rope;
    args.segments = {&segment, 1};
    args.scratch = Take(backend_->AttentionWithScoresScratchBytes({heads, kv, dim, n_rows, n_keys}));
    const double plain = Seconds([&] { backend_->Attention(args); });
    ColumnScoresArgs with;
    with.attention = args;
    with.row_begin = std::max<int64_t>(0, n_rows - 64), with.row_end = n_rows;
    with.out = scores.data();
    with.scratch = args.scratch;
    const double scored = Seconds([&] { backend_->AttentionWithScores(args, {&with, 1}); });
    segment.selected = lists.data(), segment.n_selected = n_list.data();
    const double selected = Seconds([&] { backend_->Attention(args); });
    const std::string what = fmt::format("attention, {} rows over {} keys", n_rows, n_keys);
    const double bytes = static_cast<double>(2 * kv * n_keys * slot),
                 flops = 4.0 * heads * dim * n_rows * (n_keys - n_rows / 2.0);
    if (n_rows == 1) {
      Row(what, bytes / plain / 1e9, "GB/s", bandwidth_);
    } else {
      Row(what, flops / plain / 1e12, "TFLOP/s", rate_);
    }
    Row(what + ", time", plain * 1e6, "us", 0);
    std::printf("| %s, with statistics / without | %.3f | <= 1.15 |\n", what.c_str(), scored / plain);
    std::printf("| %s, %.0f %% of the slots / all | %.3f | <= 0.36 |\n", what.c_str(), 100.0 * list.size() / n_keys,
                selected / plain);
    buffers_.clear();
  }

  // A layer of CLIP ViT-L/14 at 336 pixels.
  void Picture() {
    const int64_t heads = 16, dim = 64, n = 577;
    FullAttentionArgs args;
    args.n_heads = heads, args.head_dim = dim;
    args.scale = 0.125f;
    args.q = Floats(n * heads * dim), args.k = Floats(n * heads * dim), args.v = Floats(n * heads * dim);
    args.q_stride = args.kv_stride = args.out_stride = heads * dim;
    args.n_q = args.n_kv = n;
    args.out = reinterpret_cast<float*>(Take(n * heads * dim * 4));
    args.scratch = Take(backend_->FullAttentionScratchBytes(heads, dim, n));
    const double seconds = Seconds([&] { backend_->FullAttention(args); });
    Row("attention of a picture, 577 rows", 4.0 * heads * dim * n * n / seconds / 1e12, "TFLOP/s", rate_);
    Row("attention of a picture, time", seconds * 1e6, "us", 0);
    buffers_.clear();
  }

  // What a token costs beside its forward pass: the largest logits of Llama-3's vocabulary, on the host.
  void Draw(int64_t k) {
    const int64_t n = 128256;
    const float* logits = Floats(n);
    void* scratch = Take(backend_->TopLogitsScratchBytes(n));
    std::vector<int32_t> ids(static_cast<size_t>(k));
    std::vector<float> values(static_cast<size_t>(k));
    const double seconds = Seconds([&] { backend_->TopLogits({logits, n, k, ids.data(), values.data(), scratch}); });
    Row(fmt::format("the {} largest of 128256 logits", k), seconds * 1e6, "us", 0);
    buffers_.clear();
  }

  std::unique_ptr<Backend> backend_;
  Ledger& ledger_;
  std::vector<Buffer> buffers_;
  Rng rng_{1};
  double bandwidth_ = 0, rate_ = 0;
};

}  // namespace
}  // namespace weir

int main(int argc, char** argv) {
  weir::Ledger ledger;
  auto backend = weir::MakeCudaBackend(ledger);
  if (!backend.ok()) {
    std::fprintf(stderr, "gpu_bench: %s\n", backend.status().message().c_str());
    return 2;
  }
  weir::Bench(std::move(*backend), ledger).Run({argv + 1, argv + argc});
}
