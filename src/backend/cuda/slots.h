// SPDX-License-Identifier: Apache-2.0
// The kernels' view of stored keys and values. Layouts: ops/kv_slots.h.
#pragma once

#include "backend/cuda/grid.h"
#include "ops/rope.h"
#include "quant/dtype.h"
#include "quant/q8_0.h"

namespace weir::WEIR_GPU {

// Element e of a slot. REQUIRES: F32, F16 or Q8_0.
WEIR_DEVICE float SlotElement(DType type, const uint8_t* slot, int64_t e) {
  if (type == DType::kF16) return HalfToFloat(reinterpret_cast<const uint16_t*>(slot)[e]);
  if (type == DType::kF32) return reinterpret_cast<const float*>(slot)[e];
  // A block of 34 bytes: the scale, 32 codes.
  const uint8_t* block = slot + e / 32 * static_cast<int64_t>(sizeof(BlockQ8_0));
  return static_cast<float>(static_cast<int8_t>(block[2 + e % 32])) *
         HalfToFloat(*reinterpret_cast<const uint16_t*>(block));
}

// N floats from a 16-byte aligned address, or one from any.
template <int kN>
WEIR_DEVICE void LoadFloats(const float* from, float out[kN]) {
  if constexpr (kN == 1) {
    out[0] = *from;
  } else {
    WEIR_UNROLL
    for (int i = 0; i < kN; i += 4) {
      const float4 four = *reinterpret_cast<const float4*>(from + i);
      out[i] = four.x, out[i + 1] = four.y, out[i + 2] = four.z, out[i + 3] = four.w;
    }
  }
}

// Elements e .. e + kN of a slot; kN is 1 or 8. Of 8, e is a multiple, and the slot is 16-byte aligned (Q8_0: 2).
template <int kN>
WEIR_DEVICE void SlotElements(DType type, const uint8_t* slot, int e, float out[kN]) {
  if constexpr (kN == 1) {
    out[0] = SlotElement(type, slot, e);
  } else if (type == DType::kF16) {
    const uint4 halves = *reinterpret_cast<const uint4*>(slot + 2 * e);
    const uint32_t words[4] = {halves.x, halves.y, halves.z, halves.w};
    WEIR_UNROLL
    for (int i = 0; i < kN; ++i) out[i] = HalfToFloat(static_cast<uint16_t>(words[i / 2] >> (i % 2 * 16)));
  } else if (type == DType::kF32) {
    LoadFloats<kN>(reinterpret_cast<const float*>(slot) + e, out);
  } else {
    const auto* block = reinterpret_cast<const uint16_t*>(slot + e / 32 * static_cast<int>(sizeof(BlockQ8_0)));
    const float scale = HalfToFloat(block[0]);
    WEIR_UNROLL
    for (int i = 0; i < kN; i += 2) {
      const uint16_t two = block[1 + (e % 32 + i) / 2];
      out[i] = static_cast<float>(static_cast<int8_t>(two & 0xff)) * scale;
      out[i + 1] = static_cast<float>(static_cast<int8_t>(two >> 8)) * scale;
    }
  }
}

// The tables of a RopeTable (RopeTable::Pack()).
struct Angles {
  const float* off_cos = nullptr;
  const float* off_sin = nullptr;
  const float* base_cos = nullptr;
  const float* base_sin = nullptr;
  int n_pairs = 0;  // 0: no rotation
  float magnitude = 1;
};

inline Angles AnglesOf(const RopeTable* rope) {
  Angles out;
  if (rope == nullptr || rope->n_rot == 0) return out;
  out.n_pairs = rope->n_rot / 2;
  out.magnitude = rope->magnitude;
  const int64_t n_off = int64_t{kRopeTile} * out.n_pairs, n_base = rope->n_positions / kRopeTile * out.n_pairs;
  const auto* at = reinterpret_cast<const float*>(rope->device + out.n_pairs * static_cast<int64_t>(sizeof(double)));
  out.off_cos = at;
  out.off_sin = at + n_off;
  out.base_cos = at + 2 * n_off;
  out.base_sin = at + 2 * n_off + n_base;
  return out;
}

// cos and sin, times the magnitude, of pair p at a position that the tables cover.
WEIR_DEVICE void AngleAt(const Angles& angles, int64_t pos, int p, float* cosine, float* sine) {
  const int64_t base = pos / kRopeTile * angles.n_pairs + p, off = pos % kRopeTile * angles.n_pairs + p;
  const float bc = angles.base_cos[base], bs = angles.base_sin[base], oc = angles.off_cos[off],
              os = angles.off_sin[off];
  *cosine = (bc * oc - bs * os) * angles.magnitude;
  *sine = (bs * oc + bc * os) * angles.magnitude;
}

// The same of kN pairs, with aligned loads (LoadFloats()).
template <int kN>
WEIR_DEVICE void AnglesAt(const Angles& angles, int pos, int p, float cosine[kN], float sine[kN]) {
  const int base = pos / kRopeTile * angles.n_pairs + p, off = pos % kRopeTile * angles.n_pairs + p;
  float bc[kN], bs[kN], oc[kN], os[kN];
  LoadFloats<kN>(angles.base_cos + base, bc);
  LoadFloats<kN>(angles.base_sin + base, bs);
  LoadFloats<kN>(angles.off_cos + off, oc);
  LoadFloats<kN>(angles.off_sin + off, os);
  WEIR_UNROLL
  for (int i = 0; i < kN; ++i) {
    cosine[i] = fmaf(bc[i], oc[i], -(bs[i] * os[i])) * angles.magnitude;
    sine[i] = fmaf(bs[i], oc[i], bc[i] * os[i]) * angles.magnitude;
  }
}

}  // namespace weir::WEIR_GPU
