// SPDX-License-Identifier: Apache-2.0
// Positions on three axes (time, line, column) of the tokens that a pot holds.
//
// Under the position policies `cache` and `reset` an entry's position is what the tokens that are held make it, at any
// moment (docs/decisions/0009-three-axes.md):
// - a text token stands one behind all that is before it, on every axis;
// - a picture begins there, too. Its tokens keep their order along lines and columns; a line or a column of which no
//   token is held is closed, as a dropped text token is. What follows begins behind its last line and its last column.
// As long as nothing of a picture was dropped, that is what the model was trained with. No coordinate ever reaches the
// number of tokens that are held.
#pragma once

#include <algorithm>
#include <array>
#include <cstdint>
#include <span>

#include "kv/types.h"
#include "ops/rope.h"

namespace weir {

inline constexpr int kAxes = 3;
// Rotary pairs of each axis, in this order: the first pairs of a head follow time, the next ones lines, the last ones
// columns (M-RoPE: "Qwen2-VL: Enhancing Vision-Language Model's Perception of the World at Any Resolution", 2409.12191,
// section 2.1). All 0: positions have one axis.
using AxisPairs = std::array<int32_t, kAxes>;

// Most columns of a picture, and a visual token's place in it: its rows stand line by line.
inline constexpr int32_t kMaxColumns = 1 << 16;
inline int32_t LineOf(const SlotMeta& m) { return m.row / std::max(-m.token_id, 1); }
inline int32_t ColumnOf(const SlotMeta& m) { return m.row % std::max(-m.token_id, 1); }

// Coordinates of a group's slots: pos[axis * stride + slot]. `scratch` has room for as many numbers as there are slots.
void HeldPositions(std::span<const SlotMeta> slots, int32_t* scratch, int32_t* pos, int64_t stride);

// Coordinates of tokens in the stream, as nothing was ever dropped (position policy `abs`): pos[axis * stride + i].
// `shift`: position less `seq` of the first of them, or of the first token of its picture.
void StreamPositions(std::span<const SlotMeta> tokens, int64_t shift, int32_t* pos, int64_t stride);

// The sectioned form of RopeAngles(): cos and sin (magnitude excluded) of n coordinates, [n, n_rot / 2].
void AxisAngles(const RopeTable& table, const AxisPairs& pairs, const int32_t* pos, int64_t stride, int64_t n,
                float* cos, float* sin);
// The same from the table's two levels, for coordinates that it covers: a rounding of single precision away, and
// without a cosine.
void AxisAnglesByTable(const RopeTable& table, const AxisPairs& pairs, const int32_t* pos, int64_t stride, int64_t n,
                       float* cos, float* sin);

}  // namespace weir
