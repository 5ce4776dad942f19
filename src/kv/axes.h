// SPDX-License-Identifier: Apache-2.0
// Positions on three axes (time, line, column) of the tokens in a pot.
//
// Under the position policies `cache` and `reset`, an entry's position is computed from the tokens held at the moment
// (docs/decisions/0009-three-axes.md):
// - a text token comes one after everything before it, on every axis;
// - a picture begins there, too. Its tokens keep their order along lines and columns; a line or column without any held
//   token closes up, as a dropped text token does. What follows begins after its last line and its last column. As long
//   as no part of a picture was dropped, this is how the model was trained. Coordinates are always less than the number
//   of held tokens;
// - a frame that continues a video (SlotMeta, StepsOf() >= 0) stands at the lines and columns of the held frame before
//   it, as many steps later on the time axis as it says, but not more than that frame has held tokens. A line or column
//   closes up when no frame of the video has a token in it. What follows begins after all of the video on every axis. A
//   frame begins a picture of its own if what is held before it is not a frame with as many columns.
#pragma once

#include <algorithm>
#include <cstdint>
#include <span>

#include "kv/types.h"
#include "ops/rope.h"

namespace weir {

inline constexpr int kAxes = 3;
// Rotary pairs of each axis: the first pairs of a head follow time, the next ones lines, the last ones columns (M-RoPE:
// "Qwen2-VL: Enhancing Vision-Language Model's Perception of the World at Any Resolution", 2409.12191, section 2.1).
// All 0: positions have one axis.
struct AxisPairs {
  int32_t n[kAxes] = {};
  // Pairs 0, 3, 6 ... follow time, 1, 4, 7 ... lines, 2, 5, 8 ... columns, as long as an axis has some left, and the
  // rest time (interleaved M-RoPE: Qwen3-VL, 2511.21631, section 2.1). REQUIRES: there are as
  // many of those as n[1] and n[2] say.
  bool alternate = false;
  int32_t total() const { return n[0] + n[1] + n[2]; }
};

// A visual token's place in its picture, whose rows are stored line by line.
inline int32_t LineOf(const SlotMeta& m) { return m.row / std::max(ColumnsOf(m), 1); }
inline int32_t ColumnOf(const SlotMeta& m) { return m.row % std::max(ColumnsOf(m), 1); }

// Coordinates of a group's slots: pos[axis * stride + slot]. `scratch` has room for one number per slot.
void HeldPositions(std::span<const SlotMeta> slots, int32_t* scratch, int32_t* pos, int64_t stride);

// Coordinates of tokens in the stream, as if nothing had been dropped (position policy `abs`): pos[axis * stride + i].
// `shift`: position minus `seq` of the first of them, or of the first token of its picture; `time`: how far that
// picture, a frame of a video, is from there on the time axis.
void StreamPositions(std::span<const SlotMeta> tokens, int64_t shift, int32_t* pos, int64_t stride, int64_t time = 0);

// The sectioned form of RopeAngles(): cos and sin (magnitude excluded) of n coordinates, [n, n_rot / 2].
void AxisAngles(const RopeTable& table, const AxisPairs& pairs, const int32_t* pos, int64_t stride, int64_t n,
                float* cos, float* sin);
// The same from the table's two levels, for coordinates that it covers: equal up to single-precision rounding, without
// computing cosines.
void AxisAnglesByTable(const RopeTable& table, const AxisPairs& pairs, const int32_t* pos, int64_t stride, int64_t n,
                       float* cos, float* sin);

}  // namespace weir
