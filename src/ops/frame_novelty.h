// SPDX-License-Identifier: Apache-2.0
// How new a visual token is: how little its key resembles those at the same place in recent frames (InfiniPot-V's
// temporal redundancy, TaR, NeurIPS 2025). One number per slot of one head:
//
//   out[s] = -mean over the recent slots r at the place of s of cos(k[s], k[r])
//
// for slots before the recent frames; 1, the maximum, where no recent slot is at that place, and 0 for recent slots and
// for text. F32 keys, dequantised and un-rotated; a zero key has cosine 0.
#pragma once

#include <cstdint>

#include "quant/dtype.h"

namespace weir {

inline constexpr int32_t kNoPlace = -1;           // text
inline constexpr int32_t kRecentPlace = 1 << 16;  // added to the place of a slot of a recent frame

struct FrameNoveltyArgs {
  const uint8_t* keys = nullptr;  // [n_slots, head_dim]
  DType type = DType::kF16;
  int64_t n_slots = 0, head_dim = 0;
  uint8_t* scratch = nullptr;  // FrameNoveltyScratchBytes(), 8-byte aligned; begins with the places
  float* out = nullptr;        // [n_slots]
};

int64_t FrameNoveltyScratchBytes(int64_t max_slots, int64_t head_dim);
// Here the caller writes each slot's place: kNoPlace, 0 .. 65535, or that plus kRecentPlace. [n_slots]
int32_t* FrameNoveltyPlaces(const FrameNoveltyArgs& args);

namespace ref {
// REQUIRES: head_dim <= 1024.
void FrameNovelty(const FrameNoveltyArgs& args);
}  // namespace ref
}  // namespace weir
