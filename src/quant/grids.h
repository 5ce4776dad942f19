// SPDX-License-Identifier: Apache-2.0
// What the formats IQ1, IQ2 and IQ3 share: their codes name points of grids, which are part of the formats
// (tools/golden/grids.py). A point is eight coordinates of two bits or four of four bits, the first one lowest.
#pragma once

#include <array>
#include <bit>
#include <cstdint>

namespace weir {

extern const std::array<uint16_t, 256> kIq2XxsGrid;
extern const std::array<uint16_t, 512> kIq2XsGrid;
extern const std::array<uint16_t, 1024> kIq2SGrid;
extern const std::array<uint16_t, 256> kIq3XxsGrid;
extern const std::array<uint16_t, 512> kIq3SGrid;
extern const std::array<uint16_t, 2048> kIq1Grid;

// What coordinates stand for. No point has a fourth one of IQ2 and IQ1.
inline constexpr float kIq2Levels[4] = {8, 25, 43, 0};
inline constexpr float kIq1Levels[4] = {-1, 0, 1, 0};
inline constexpr float kIq3XxsLevels[8] = {4, 12, 20, 28, 36, 44, 52, 62};
inline constexpr float kIq3SLevels[8] = {1, 3, 5, 7, 9, 11, 13, 15};
inline constexpr float kIq1Shift = 0.125f;

inline void LoadPoint8(uint16_t point, const float* levels, float* out) {
  for (int i = 0; i < 8; ++i) out[i] = levels[(point >> (2 * i)) & 3];
}
inline void LoadPoint4(uint16_t point, const float* levels, float* out) {
  for (int i = 0; i < 4; ++i) out[i] = levels[(point >> (4 * i)) & 7];
}

// Eight signs from seven: an even number of them is negative.
inline int EvenSigns(int seven) { return seven | (std::popcount(static_cast<unsigned>(seven)) & 1) << 7; }

// out[i] *= scale, negative where bit i of `signs` is set.
inline void ScaleSigned(float scale, int signs, int n, float* out) {
  for (int i = 0; i < n; ++i) {
    const float value = scale * out[i];
    out[i] = ((signs >> i) & 1) != 0 ? -value : value;
  }
}

}  // namespace weir
