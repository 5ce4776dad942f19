// SPDX-License-Identifier: Apache-2.0
// Shared by the tests of this folder: a loop over the machine's SIMD targets, random weights of every format. For tests
// only.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <cstring>
#include <memory>
#include <string>
#include <vector>

#include "backend/simd.h"
#include "base/rng.h"
#include "gtest/gtest.h"
#include "ops/matmul.h"
#include "quant/format.h"
#include "quant/half.h"

namespace weir::cpu {

// All element types that weights may have.
inline std::vector<DType> WeightTypes() {
  std::vector<DType> types;
  for (int i = 0; i < kNumDTypes; ++i) {
    if (static_cast<DType>(i) != DType::kI32) types.push_back(static_cast<DType>(i));
  }
  return types;
}

// Runs fn once for every instruction set of this machine.
template <typename Fn>
void ForEachTarget(const Fn& fn) {
  for (const char* level : SimdLevels()) {
    ASSERT_TRUE(LimitSimd(level));
    {
      SCOPED_TRACE(std::string("on ") + level);
      fn();
    }
    LimitSimd("");
    if (testing::Test::HasFatalFailure()) return;
  }
}

inline float Normal(Rng& rng) {
  double sum = -6;
  for (int i = 0; i < 12; ++i) sum += rng.Uniform();
  return static_cast<float>(sum);
}

inline std::vector<float> Normals(Rng& rng, int64_t n) {
  std::vector<float> out(static_cast<size_t>(n));
  for (float& v : out) v = Normal(rng);
  return out;
}

// n_out rows of normally distributed weights, encoded, at an odd address.
struct Weights {
  std::vector<uint8_t> bytes;
  const uint8_t* data() const { return bytes.data() + 1; }
  uint8_t* data() { return bytes.data() + 1; }

  static Weights Random(Rng& rng, DType type, int64_t n_out, int64_t n_in) {
    const int64_t row_bytes = RowBytes(type, n_in);
    Weights out;
    out.bytes.resize(static_cast<size_t>(n_out * row_bytes + 1));
    for (int64_t o = 0; o < n_out; ++o) {
      if (FormatOf(type).encode != nullptr) {
        EncodeRow(type, Normals(rng, n_in).data(), n_in, out.data() + o * row_bytes);
      } else {
        RandomBlocks(rng, type, n_in, out.data() + o * row_bytes);
      }
    }
    return out;
  }

  // For types that are only read: random bytes, of which those with values of ordinary size are taken.
  static void RandomBlocks(Rng& rng, DType type, int64_t n, uint8_t* to) {
    const DTypeInfo& info = InfoOf(type);
    std::vector<float> values(static_cast<size_t>(info.block_elements));
    for (int64_t b = 0; b < n / info.block_elements; ++b, to += info.block_bytes) {
      float largest = 0;
      while (!(largest > 0.1f && largest < 10.0f)) {
        for (int i = 0; i < info.block_bytes; ++i) to[i] = static_cast<uint8_t>(rng.Below(256));
        DecodeRow(type, to, info.block_elements, values.data());
        largest = 0;
        for (const float value : values)
          largest = std::isfinite(value) ? std::max(largest, std::fabs(value)) : INFINITY;
      }
    }
  }
};

inline std::vector<uint8_t> Scratch(int64_t bytes) {
  return std::vector<uint8_t>(static_cast<size_t>(bytes) + 64, 0xff);
}
inline void* Aligned(std::vector<uint8_t>& bytes) {
  return reinterpret_cast<void*>((reinterpret_cast<uintptr_t>(bytes.data()) + 63) / 64 * 64);
}

}  // namespace weir::cpu
