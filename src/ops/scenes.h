// SPDX-License-Identifier: Apache-2.0
// Scenes: runs of a head's frames in which little changes, found by its keys. A frame begins a scene if at least half
// of the places that it has in common with the scene's first frame have changed, or if they have none in common. A
// place has changed if 1 - cos of its key and the first frame's key there is above `change`. Comparing with the first
// frame, not with the last one, a slow pan becomes several scenes.
//
// One number per slot: 0 for text, k for a slot of the first frame of scene k (1 is the oldest) or one that differs
// from the first frame's at its place, and -k for one that shows what the first frame has there. A place that the first
// frame no longer holds counts as shown: it was, until a selection dropped it. Otherwise later frames would bring back
// what was chosen against, at the expense of the first frame, which the words before a scene are about.
//
// F32 keys, dequantised and un-rotated; a zero key has cosine 0 with all others.
#pragma once

#include <cstdint>

#include "quant/dtype.h"

namespace weir {

inline constexpr int32_t kNotInScene = -1;        // place of text
inline constexpr int32_t kBeginsFrame = 1 << 16;  // added to the place of a frame's first slot

struct ScenesArgs {
  const uint8_t* keys = nullptr;  // [n_slots, head_dim]
  DType type = DType::kF16;
  int64_t n_slots = 0, head_dim = 0;
  float change = 0;
  // [n_slots]: kNotInScene, or a place of 0 to 65,535, with kBeginsFrame added at a frame's first slot. Slots of a
  // frame follow one another, places ascending.
  const int32_t* places = nullptr;
  float* out = nullptr;  // [n_slots]
};

namespace ref {
// REQUIRES: head_dim <= 1024.
void Scenes(const ScenesArgs& args);
}  // namespace ref
}  // namespace weir
