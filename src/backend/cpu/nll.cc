// SPDX-License-Identifier: Apache-2.0
#include "backend/cpu/nll.h"

#include <algorithm>
#include <cmath>
#include <limits>

#include "backend/cpu/matmul.h"
#include "backend/cpu/pack.h"

#define HWY_WANT_AVX3_DL
// Arrays of vectors need vectors of a size known at compile time.
#define HWY_DISABLED_TARGETS (HWY_SVE | HWY_SVE2 | HWY_SVE_256 | HWY_SVE2_128 | HWY_RVV)
#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "backend/cpu/nll.cc"
#include "hwy/foreach_target.h"  // IWYU pragma: keep
#include "hwy/highway.h"
//
#include "hwy/contrib/math/math-inl.h"

#ifndef WEIR_BACKEND_CPU_NLL_ONCE
#define WEIR_BACKEND_CPU_NLL_ONCE
namespace weir::cpu {

// The vocabulary is divided into at most this many chunks; a task is one chunk for all rows, or for some of them where
// there are many threads. The number is fixed because the order of summation depends on it.
inline constexpr int64_t kNllChunks = 32;
inline constexpr int64_t kNllRows = 48;  // rows that are multiplied with a tile at once
inline constexpr int64_t kNllCols = NllTiles::kSize;
static_assert(kNllCols % kPanel == 0);

// sum over logits of exp(z - largest).
struct ExpSum {
  float largest = -std::numeric_limits<float>::infinity();
  double sum = 0;
};

}  // namespace weir::cpu
#endif

HWY_BEFORE_NAMESPACE();
namespace weir::cpu::HWY_NAMESPACE {
namespace hn = hwy::HWY_NAMESPACE;

// Caps n logits in place and folds them into `total`, each exp(log_weight) times.
void FoldImpl(float* z, int64_t n_logits, float softcap, float log_weight, ExpSum& total) {
  const hn::CappedTag<float, kPanel> df;
  const int64_t n = static_cast<int64_t>(hn::Lanes(df));
  // Pads to whole vectors with -inf, whose exponential is 0. The tile has room: it is whole panels wide.
  for (int64_t i = n_logits; i % n != 0; ++i) z[i] = -std::numeric_limits<float>::infinity();
  const auto cap = hn::Set(df, softcap), inverse_cap = hn::Set(df, softcap > 0 ? 1.0f / softcap : 0.0f);
  const auto weight = hn::Set(df, log_weight);
  auto largest = hn::Set(df, total.largest);
  if (softcap > 0 || log_weight != 0) {
    for (int64_t i = 0; i < n_logits; i += n) {
      auto v = hn::LoadU(df, z + i);
      if (softcap > 0) {
        // Above 15, tanh is 1 in this precision, and the approximation does not handle infinities.
        const auto t = hn::Max(hn::Min(hn::Mul(v, inverse_cap), hn::Set(df, 15.0f)), hn::Set(df, -15.0f));
        v = hn::IfThenElse(hn::IsFinite(v), hn::Mul(cap, hn::Tanh(df, t)), v);
      }
      hn::StoreU(hn::Add(v, weight), df, z + i);
    }
  }
  for (int64_t i = 0; i < n_logits; i += n) largest = hn::Max(largest, hn::LoadU(df, z + i));
  const float new_largest = hn::GetLane(hn::MaxOfLanes(df, largest));
  const auto shift = hn::Set(df, new_largest);
  auto sum = hn::Zero(df);
  for (int64_t i = 0; i < n_logits; i += n) {
    const auto v = hn::Sub(hn::LoadU(df, z + i), shift);
    // Exp turns NaN into 0; a broken model must not look likely.
    sum = hn::Add(sum, hn::IfThenElse(hn::Eq(v, v), hn::Exp(df, v), v));
  }
  const double keep = total.sum == 0 ? 0.0 : total.sum * std::exp(static_cast<double>(total.largest) - new_largest);
  total.sum = keep + hn::GetLane(hn::SumOfLanes(df, sum));
  total.largest = new_largest;
}

float LogSumExpImpl(const float* logits, int64_t n_logits) {
  const hn::CappedTag<float, kPanel> df;
  const int64_t n = static_cast<int64_t>(hn::Lanes(df));
  // Pads the last, shorter vector with -inf, whose exponential is 0.
  float tail[kPanel];
  std::fill(tail, tail + kPanel, -std::numeric_limits<float>::infinity());
  std::copy(logits + n_logits / n * n, logits + n_logits, tail);
  const auto load = [&](int64_t i) { return hn::LoadU(df, i + n <= n_logits ? logits + i : tail); };
  auto largest_v = hn::LoadU(df, tail);
  for (int64_t i = 0; i < n_logits; i += n) largest_v = hn::Max(largest_v, load(i));
  const float largest = hn::GetLane(hn::MaxOfLanes(df, largest_v));
  const auto shift = hn::Set(df, largest);
  // Single precision within a block only, so that a large vocabulary loses no digits.
  constexpr int64_t kBlock = 4096;
  double total = 0;
  for (int64_t begin = 0; begin < n_logits; begin += kBlock) {
    const int64_t end = std::min(n_logits, begin + kBlock);
    auto sum = hn::Zero(df);
    for (int64_t i = begin; i < end; i += n) {
      const auto v = hn::Sub(load(i), shift);
      sum = hn::Add(sum, hn::IfThenElse(hn::Eq(v, v), hn::Exp(df, v), v));  // Exp turns NaN into 0
    }
    total += hn::GetLane(hn::SumOfLanes(df, sum));
  }
  return static_cast<float>(std::log(total) + largest);
}

}  // namespace weir::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace weir::cpu {

HWY_EXPORT(FoldImpl);
HWY_EXPORT(LogSumExpImpl);

namespace {

int64_t Align64(int64_t bytes) { return (bytes + 63) / 64 * 64; }

// Parts of the scratch, in this order.
struct Scratch {
  ActBlock* act;        // [n_rows, n_blocks]
  ExpSum* sums;         // [n_rows, kNllChunks]
  float* target_logit;  // [n_rows]
  float* tiles;         // [n_threads, kNllRows, kNllCols]
};

Scratch Split(void* base, int64_t n_rows, int64_t n_in) {
  auto* at = static_cast<uint8_t*>(base);
  Scratch out;
  out.act = reinterpret_cast<ActBlock*>(at);
  at += Align64(MatMulScratchBytes(n_rows, n_in));
  out.sums = reinterpret_cast<ExpSum*>(at);
  at += Align64(n_rows * kNllChunks * static_cast<int64_t>(sizeof(ExpSum)));
  out.target_logit = reinterpret_cast<float*>(at);
  at += Align64(n_rows * static_cast<int64_t>(sizeof(float)));
  out.tiles = reinterpret_cast<float*>(at);
  return out;
}

}  // namespace

int64_t NllScratchBytes(int64_t n_rows, int64_t n_in, int n_threads) {
  return Align64(MatMulScratchBytes(n_rows, n_in)) +
         Align64(n_rows * kNllChunks * static_cast<int64_t>(sizeof(ExpSum))) +
         Align64(n_rows * static_cast<int64_t>(sizeof(float))) +
         n_threads * kNllRows * kNllCols * static_cast<int64_t>(sizeof(float));
}

void HeadNll(const NllArgs& args, ThreadPool& pool) {
  if (args.n_rows == 0) return;
  const auto& w = static_cast<const PackedMatrix&>(*args.head);
  const Scratch scratch = Split(args.scratch, args.n_rows, args.n_in);
  const bool blocked = IsBlocked(w.type());
  if (blocked) {
    pool.For(args.n_rows, [&](int64_t r, int) {
      RoundActivations(args.x + r * args.n_in, w.n_blocks(), scratch.act + r * w.n_blocks());
    });
  }
  const NllTiles tiles(w.n_out(), args.normaliser);
  const int64_t chunk_tiles = (tiles.n_tiles() + kNllChunks - 1) / kNllChunks;
  const int64_t n_chunks = (tiles.n_tiles() + chunk_tiles - 1) / chunk_tiles;
  // A tile of the head is read once for all rows of a task: it stays in the second cache meanwhile.
  const int64_t n_blocks = (args.n_rows + kNllRows - 1) / kNllRows;
  const int64_t n_wanted = (4 * pool.n_threads() + n_chunks - 1) / n_chunks;
  const int64_t task_blocks = (n_blocks + n_wanted - 1) / n_wanted;
  const int64_t n_row_tasks = (n_blocks + task_blocks - 1) / task_blocks;
  // Logits of `n_rows` rows from `row` on and n_ids ids from `id` on, the first of a panel.
  const auto multiply = [&](int64_t row, int64_t n_rows, int64_t id, int64_t n_ids, float* tile) {
    ProductArgs product;
    product.w = &w;
    product.first_panel = id / kPanel;
    product.n_panels = (n_ids + kPanel - 1) / kPanel;
    product.n_rows = n_rows;
    if (blocked) product.act = scratch.act + row * w.n_blocks();
    product.x = args.x + row * args.n_in;
    product.x_stride = args.n_in;
    product.y = tile;
    product.y_stride = kNllCols;
    product.bias = args.bias == nullptr ? nullptr : args.bias + id;
    w.weights().product(product);
  };
  pool.For(n_row_tasks * n_chunks, [&](int64_t task, int worker) {
    const int64_t chunk = task % n_chunks;
    const int64_t first_row = task / n_chunks * task_blocks * kNllRows;
    const int64_t end_row = std::min(args.n_rows, first_row + task_blocks * kNllRows);
    float* tile = scratch.tiles + worker * kNllRows * kNllCols;
    const auto sum_of = [&](int64_t row) -> ExpSum& { return scratch.sums[row * kNllChunks + chunk]; };
    for (int64_t r = first_row; r < end_row; ++r) sum_of(r) = {};
    const int64_t last_tile = std::min((chunk + 1) * chunk_tiles, tiles.n_tiles());
    for (int64_t t = chunk * chunk_tiles; t < last_tile; ++t) {
      const int64_t id = tiles.first_id(t), n_ids = tiles.n_ids(t);
      for (int64_t row = first_row; row < end_row; row += kNllRows) {
        const int64_t n_rows = std::min(kNllRows, end_row - row);
        const int32_t* target = args.target + row;
        if (std::all_of(target, target + n_rows, [](int32_t wanted) { return wanted < 0; })) continue;
        multiply(row, n_rows, id, n_ids, tile);
        for (int64_t r = 0; r < n_rows; ++r) {
          float* z = tile + r * kNllCols;
          const bool has_target = target[r] >= id && target[r] < id + n_ids;
          if (has_target && tiles.sampled(target[r])) z[target[r] - id] = -std::numeric_limits<float>::infinity();
          HWY_DYNAMIC_DISPATCH(FoldImpl)(z, n_ids, args.softcap, tiles.log_weight(t), sum_of(row + r));
          if (has_target) scratch.target_logit[row + r] = z[target[r] - id];
        }
      }
    }
  });
  pool.For(args.n_rows, [&](int64_t r, int worker) {
    args.nll[r] = 0;
    const int32_t target = args.target[r];
    if (target < 0) return;
    const ExpSum* sums = scratch.sums + r * kNllChunks;
    ExpSum total = sums[0];
    for (int64_t c = 1; c < n_chunks; ++c) total.largest = std::max(total.largest, sums[c].largest);
    total.sum = 0;
    for (int64_t c = 0; c < n_chunks; ++c) {
      total.sum += sums[c].sum * std::exp(static_cast<double>(sums[c].largest) - total.largest);
    }
    float logit = scratch.target_logit[r];
    if (tiles.sampled(target)) {
      float* tile = scratch.tiles + worker * kNllRows * kNllCols;
      multiply(r, 1, target / kPanel * kPanel, 1, tile);
      HWY_DYNAMIC_DISPATCH(FoldImpl)(tile + target % kPanel, 1, args.softcap, 0, total);
      logit = tile[target % kPanel];
    }
    args.nll[r] = static_cast<float>(std::log(total.sum) + total.largest - logit);
  });
}

float LogSumExp(const float* logits, int64_t n) { return HWY_DYNAMIC_DISPATCH(LogSumExpImpl)(logits, n); }

}  // namespace weir::cpu
#endif
