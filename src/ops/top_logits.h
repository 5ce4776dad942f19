// SPDX-License-Identifier: Apache-2.0
// The largest logits of a row, found on the device: all that a sampler needs, without copying the vocabulary.
#pragma once

#include <cstdint>

namespace weir {

// Most logits that one call finds.
inline constexpr int64_t kMaxTopLogits = 256;

// ids, values: the k largest, largest first, the lowest id first among equals (0 and -0 are equal). An infinite or NaN
// logit counts as larger than any other, so it comes first. REQUIRES: 1 <= k <= min(n, kMaxTopLogits); n < 2^31.
struct TopLogitsArgs {
  const float* logits = nullptr;  // [n]
  int64_t n = 0, k = 0;
  int32_t* ids = nullptr;   // [k], plain host memory
  float* values = nullptr;  // [k], plain host memory
  void* scratch = nullptr;  // Backend::TopLogitsScratchBytes(n) bytes, 64-byte aligned
};

namespace ref {
void TopLogits(const TopLogitsArgs& args);
}  // namespace ref
}  // namespace weir
