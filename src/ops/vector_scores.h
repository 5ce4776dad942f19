// SPDX-License-Identifier: Apache-2.0
// Statistics of stored keys or values, for policies that rank without attention. One score per slot of one head.
//
//   kKeyDiff    -cos(k[s], m), m = mean over the slots of k / |k|: keys unlike the rest score high
//               (KeyDiff, arXiv 2504.15364; un-rotated keys here, so that a score does not depend on a slot's
//               place)
//   kValueNorm  |v[s]|: the value-norm half of InfiniPot-V's ranking (VaN)
//
// F32 arithmetic over dequantised slots. A zero key has cosine 0.
#pragma once

#include <cstdint>

#include "quant/dtype.h"

namespace weir {

enum class VectorScore { kNone, kKeyDiff, kValueNorm };

struct VectorScoresArgs {
  VectorScore what = VectorScore::kNone;
  const uint8_t* slots = nullptr;  // [n_slots, head_dim] keys (kKeyDiff) or values (kValueNorm)
  DType type = DType::kF16;
  int64_t n_slots = 0, head_dim = 0;
  float* out = nullptr;  // [n_slots]
};

namespace ref {
// REQUIRES: head_dim <= 1024.
void VectorScores(const VectorScoresArgs& args);
}  // namespace ref
}  // namespace weir
