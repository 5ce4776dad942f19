// SPDX-License-Identifier: Apache-2.0
#include "backend/cpu/kv_slots.h"

#include <cmath>
#include <cstring>

#include "ops/attention.h"
#include "quant/format.h"
#include "quant/half.h"

#define HWY_WANT_AVX3_DL
#define HWY_DISABLED_TARGETS (HWY_SVE | HWY_SVE2 | HWY_SVE_256 | HWY_SVE2_128 | HWY_RVV)
#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "backend/cpu/kv_slots.cc"
#include "hwy/foreach_target.h"  // IWYU pragma: keep
#include "hwy/highway.h"
// After foreach_target.h: compiled once per target.
#include "backend/cpu/hadamard-inl.h"

HWY_BEFORE_NAMESPACE();
namespace weir::cpu::HWY_NAMESPACE {
namespace {
namespace hn = hwy::HWY_NAMESPACE;

using DF = hn::CappedTag<float, 16>;
constexpr int64_t kLanes = hn::MaxLanes(DF());
// Targets that convert to F16 in one instruction, rounding to nearest even like F32ToF16.
constexpr bool kHardwareF16 = HWY_TARGET <= HWY_AVX2 || HWY_ARCH_ARM_A64;

// The arithmetic of ref::RotateRows, without fused products: stored bytes must not depend on the machine.
void Rotate(const RopeTable& rope, const float* cos, const float* sin, const float* x, int64_t head_dim, float* out) {
  const DF d;
  const int64_t n_pairs = rope.n_rot / 2;
  const auto magnitude = hn::Set(d, rope.magnitude);
  int64_t i = 0;
  for (; i + kLanes <= n_pairs; i += kLanes) {
    const auto c = hn::Mul(hn::LoadU(d, cos + i), magnitude), s = hn::Mul(hn::LoadU(d, sin + i), magnitude);
    const auto x0 = hn::LoadU(d, x + i), x1 = hn::LoadU(d, x + n_pairs + i);
    hn::StoreU(hn::Sub(hn::Mul(x0, c), hn::Mul(x1, s)), d, out + i);
    hn::StoreU(hn::Add(hn::Mul(x1, c), hn::Mul(x0, s)), d, out + n_pairs + i);
  }
  for (; i < n_pairs; ++i) {
    const float c = cos[i] * rope.magnitude, s = sin[i] * rope.magnitude;
    const float x0 = x[i], x1 = x[n_pairs + i];
    out[i] = x0 * c - x1 * s;
    out[n_pairs + i] = x1 * c + x0 * s;
  }
  std::memcpy(out + 2 * n_pairs, x + 2 * n_pairs, (head_dim - 2 * n_pairs) * sizeof(float));
}

void EncodeF16(const float* x, int64_t n, uint8_t* out) {
  int64_t i = 0;
  if constexpr (kHardwareF16) {
    const DF d;
    const hn::Rebind<hwy::float16_t, DF> dh;
    for (; i + kLanes <= n; i += kLanes) {
      hn::StoreU(hn::DemoteTo(dh, hn::LoadU(d, x + i)), dh, reinterpret_cast<hwy::float16_t*>(out) + i);
    }
  }
  EncodeRow(DType::kF16, x + i, n - i, out + 2 * i);
}

// One block of 32, the codes of quant/q8_0.cc: halves away from zero.
void EncodeQ8Block(const float* x, uint8_t* out) {
  const DF d;
  const hn::RebindToSigned<DF> di;
  const hn::Rebind<int8_t, DF> d8;
  auto peak_v = hn::Zero(d);
  auto finite_v = hn::Zero(d);  // x * 0: zero for finite x, else NaN
  for (int64_t i = 0; i < 32; i += kLanes) {
    const auto v = hn::LoadU(d, x + i);
    peak_v = hn::Max(peak_v, hn::Abs(v));
    finite_v = hn::Add(finite_v, hn::Mul(v, hn::Zero(d)));
  }
  const float peak = hn::GetLane(hn::MaxOfLanes(d, peak_v));
  const float scale = peak / 127.0f;
  const float inverse = 1.0f / scale;
  // Zero, subnormal and non-finite blocks are rare: the scalar encoder handles them.
  if (!std::isfinite(inverse) || hn::GetLane(hn::SumOfLanes(d, finite_v)) != 0.0f) {
    return EncodeRow(DType::kQ8_0, x, 32, out);
  }
  const uint16_t half = F32ToF16(scale);
  std::memcpy(out, &half, sizeof(half));
  const auto inverse_v = hn::Set(d, inverse);
  for (int64_t i = 0; i < 32; i += kLanes) {
    const auto code = hn::Mul(hn::LoadU(d, x + i), inverse_v);
    const auto magnitude = hn::Min(hn::Add(hn::Abs(code), hn::Set(d, 0.5f)), hn::Set(d, 127.0f));
    // Truncates the magnitude to a whole number and restores its sign.
    const auto q = hn::ConvertTo(di, hn::CopySign(magnitude, code));
    hn::StoreU(hn::DemoteTo(d8, q), d8, reinterpret_cast<int8_t*>(out) + 2 + i);
  }
}

void StoreHead(const StoreSlotsArgs& args) {
  if (args.head_dim > kMaxHeadDim) return ref::StoreSlots(args);  // more than the attention kernels accept
  const int64_t slot_bytes = SlotBytes(args.type, args.head_dim);
  const int64_t n_pairs = args.rope != nullptr ? args.rope->n_rot / 2 : 0;
  const bool transformed = IsTransformed(args.type);
  HWY_ALIGN float changed[kMaxHeadDim];
  for (int64_t row = 0; row < args.n_rows; ++row) {
    const float* x = args.x + row * args.x_stride;
    uint8_t* slot = args.slots + (args.first_slot + row) * slot_bytes;
    if (n_pairs > 0) {
      Rotate(*args.rope, args.cos + row * n_pairs, args.sin + row * n_pairs, x, args.head_dim, changed);
    } else if (transformed) {
      std::memcpy(changed, x, args.head_dim * sizeof(float));
    }
    if (transformed) Hadamard(changed, args.head_dim);
    if (n_pairs > 0 || transformed) x = changed;
    if (args.type == DType::kF16) {
      EncodeF16(x, args.head_dim, slot);
    } else if (args.type == DType::kQ8_0) {
      for (int64_t i = 0; i < args.head_dim; i += 32) EncodeQ8Block(x + i, slot + i / 32 * 34);
    } else {
      EncodeRow(args.type, x, args.head_dim, slot);
    }
  }
}

}  // namespace
}  // namespace weir::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace weir::cpu {
namespace {

// Below this much work, waking the workers costs more than it saves (a decode step stores one row per head).
constexpr int64_t kMinFloats = 1 << 14;
constexpr int64_t kMinBytes = 1 << 17;

// Moves a run of kept slots at once; runs move down, in ascending order, so no run overwrites a later one.
void CompactHead(const CompactSlotsArgs& args) {
  const int64_t n = static_cast<int64_t>(args.keep.size());
  for (int64_t j = 0; j < n;) {
    int64_t end = j + 1;
    while (end < n && args.keep[end] == args.keep[end - 1] + 1) ++end;
    if (args.keep[j] != j) {
      std::memmove(args.slots + j * args.slot_bytes, args.slots + args.keep[j] * args.slot_bytes,
                   (end - j) * args.slot_bytes);
    }
    j = end;
  }
}

}  // namespace

HWY_EXPORT(StoreHead);

void StoreSlots(std::span<const StoreSlotsArgs> args, ThreadPool& pool) {
  int64_t n_floats = 0;
  for (const StoreSlotsArgs& head : args) n_floats += head.n_rows * head.head_dim;
  if (n_floats < kMinFloats) {
    for (const StoreSlotsArgs& head : args) HWY_DYNAMIC_DISPATCH(StoreHead)(head);
    return;
  }
  pool.For(std::ssize(args), [&](int64_t i, int) { HWY_DYNAMIC_DISPATCH(StoreHead)(args[i]); });
}

void CompactSlots(std::span<const CompactSlotsArgs> args, ThreadPool& pool) {
  int64_t n_bytes = 0;
  for (const CompactSlotsArgs& head : args) n_bytes += std::ssize(head.keep) * head.slot_bytes;
  if (n_bytes < kMinBytes) {
    for (const CompactSlotsArgs& head : args) CompactHead(head);
    return;
  }
  pool.For(std::ssize(args), [&](int64_t i, int) { CompactHead(args[i]); });
}

}  // namespace weir::cpu
#endif  // HWY_ONCE
