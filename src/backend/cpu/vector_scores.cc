// SPDX-License-Identifier: Apache-2.0
#include "backend/cpu/vector_scores.h"

#include <cmath>
#include <cstring>

#include "ops/attention.h"
#include "ops/kv_slots.h"
#include "quant/half.h"

#define HWY_DISABLED_TARGETS (HWY_SVE | HWY_SVE2 | HWY_SVE_256 | HWY_SVE2_128 | HWY_RVV)
#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "backend/cpu/vector_scores.cc"
#include "hwy/foreach_target.h"  // IWYU pragma: keep
#include "hwy/highway.h"

HWY_BEFORE_NAMESPACE();
namespace weir::cpu::HWY_NAMESPACE {
namespace {
namespace hn = hwy::HWY_NAMESPACE;

using DF = hn::CappedTag<float, 16>;
constexpr int64_t kLanes = hn::MaxLanes(DF());

// One slot as floats, padded with zeros to whole vectors.
void Load(const VectorScoresArgs& args, int64_t slot, float* out) {
  const DF d;
  const uint8_t* bytes = args.slots + slot * SlotBytes(args.type, args.head_dim);
  int64_t i = 0;
  if (args.type == DType::kF16) {
    const hn::Rebind<hwy::float16_t, DF> dh;
    for (; i + kLanes <= args.head_dim; i += kLanes) {
      hn::StoreU(hn::PromoteTo(d, hn::LoadU(dh, reinterpret_cast<const hwy::float16_t*>(bytes) + i)), d, out + i);
    }
    for (; i < args.head_dim; ++i) {
      uint16_t half;
      std::memcpy(&half, bytes + 2 * i, sizeof(half));
      out[i] = F16ToF32(half);
    }
  } else if (args.type == DType::kQ8_0) {
    const hn::Rebind<int8_t, DF> d8;
    const hn::RebindToSigned<DF> di;
    for (; i < args.head_dim; i += 32, bytes += 34) {
      uint16_t half;
      std::memcpy(&half, bytes, sizeof(half));
      const auto scale = hn::Set(d, F16ToF32(half));
      for (int64_t j = 0; j < 32; j += kLanes) {
        const auto code = hn::LoadU(d8, reinterpret_cast<const int8_t*>(bytes) + 2 + j);
        hn::StoreU(hn::Mul(hn::ConvertTo(d, hn::PromoteTo(di, code)), scale), d, out + i + j);
      }
    }
  } else {
    ref::LoadSlot(args.type, args.slots, slot, args.head_dim, out);
    i = args.head_dim;
  }
  for (; i % kLanes != 0; ++i) out[i] = 0;
}

float Dot(const float* a, const float* b, int64_t n) {
  const DF d;
  auto sum = hn::Zero(d);
  for (int64_t i = 0; i < n; i += kLanes) sum = hn::MulAdd(hn::LoadU(d, a + i), hn::LoadU(d, b + i), sum);
  return hn::GetLane(hn::SumOfLanes(d, sum));
}

void ScoreHead(const VectorScoresArgs& args) {
  if (args.what == VectorScore::kNone) return;
  if (args.head_dim > kMaxHeadDim) return ref::VectorScores(args);
  const DF d;
  // Single-precision sums over a long pot would lose the last digits: sums of blocks are added to a total.
  constexpr int64_t kBlock = 256;
  HWY_ALIGN float x[kMaxHeadDim + kLanes], block[kMaxHeadDim + kLanes];
  double anchor[kMaxHeadDim] = {};
  const int64_t n = args.head_dim;
  if (args.what == VectorScore::kValueNorm) {
    for (int64_t s = 0; s < args.n_slots; ++s) {
      Load(args, s, x);
      args.out[s] = std::sqrt(Dot(x, x, n));
    }
    return;
  }
  // out holds 1 / |k| between the passes.
  for (int64_t begin = 0; begin < args.n_slots; begin += kBlock) {
    const int64_t end = begin + kBlock < args.n_slots ? begin + kBlock : args.n_slots;
    std::memset(block, 0, sizeof(block));
    for (int64_t s = begin; s < end; ++s) {
      Load(args, s, x);
      const float squares = Dot(x, x, n);
      args.out[s] = squares == 0 ? 0.0f : 1 / std::sqrt(squares);
      const auto inverse = hn::Set(d, args.out[s]);
      for (int64_t i = 0; i < n; i += kLanes) {
        hn::Store(hn::MulAdd(hn::Load(d, x + i), inverse, hn::Load(d, block + i)), d, block + i);
      }
    }
    for (int64_t i = 0; i < n; ++i) anchor[i] += block[i];
  }
  double squares = 0;
  for (int64_t i = 0; i < n; ++i) squares += anchor[i] * anchor[i];
  const double inverse = squares == 0 ? 0.0 : 1 / std::sqrt(squares);
  std::memset(block, 0, sizeof(block));
  for (int64_t i = 0; i < n; ++i) block[i] = static_cast<float>(anchor[i] * inverse);
  for (int64_t s = 0; s < args.n_slots; ++s) {
    Load(args, s, x);
    args.out[s] *= -Dot(x, block, n);
  }
}

}  // namespace
}  // namespace weir::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace weir::cpu {

HWY_EXPORT(ScoreHead);

void VectorScores(std::span<const VectorScoresArgs> args, ThreadPool& pool) {
  pool.For(std::ssize(args), [&](int64_t i, int) { HWY_DYNAMIC_DISPATCH(ScoreHead)(args[i]); });
}

}  // namespace weir::cpu
#endif  // HWY_ONCE
