// SPDX-License-Identifier: Apache-2.0
// The largest logits of a row, found where they are: what a sampler needs of a vocabulary, without the vocabulary.
#pragma once

#include <cstdint>

namespace weir {

// Most that one call finds.
inline constexpr int64_t kMaxTopLogits = 256;

// ids, values: the k largest, largest first, the lowest id first among equals (0 and -0 are). A logit that is infinite
// or no number counts as larger than any, so that one there is comes first. REQUIRES: 1 <= k <= min(n, kMaxTopLogits);
// n < 2^31.
struct TopLogitsArgs {
  const float* logits = nullptr;  // [n]
  int64_t n = 0, k = 0;
  int32_t* ids = nullptr;   // [k], plain memory of the host
  float* values = nullptr;  // [k], plain memory of the host
  void* scratch = nullptr;  // Backend::TopLogitsScratchBytes(n) bytes, 64-byte aligned
};

namespace ref {
void TopLogits(const TopLogitsArgs& args);
}  // namespace ref
}  // namespace weir
