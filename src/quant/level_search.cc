// SPDX-License-Identifier: Apache-2.0
#include "quant/level_search.h"

#include <algorithm>
#include <cmath>

#include "quant/block.h"

namespace weir {

int NearestLevel(const int8_t* levels, float x) {
  const int8_t* const end = levels + kNumLevels;
  const int8_t* const above = std::find_if(levels, end, [x](int8_t level) { return static_cast<float>(level) >= x; });
  if (above == levels) return 0;
  if (above == end) return kNumLevels - 1;
  const bool lower = x - static_cast<float>(above[-1]) < static_cast<float>(above[0]) - x;
  return static_cast<int>(above - levels) - (lower ? 1 : 0);
}

float SearchLevelScale(const float* in, int n, const int8_t* levels) {
  float peak = 0.0f;
  for (int i = 0; i < n; ++i) {
    if (std::fabs(in[i]) > std::fabs(peak)) peak = in[i];
  }
  if (peak == 0.0f) return 0.0f;
  // The value of largest magnitude near either end of the levels; of each trial, the scale that fits its codes best.
  float best = 0.0f;
  double most = -1;
  for (const float end : {static_cast<float>(levels[0]), static_cast<float>(levels[kNumLevels - 1])}) {
    for (int step = -7; step <= 7; ++step) {
      const float inverse = InverseOrZero(peak / (end + static_cast<float>(step) * end / 60.0f));
      double with_level = 0, levels_squared = 0;
      for (int i = 0; i < n; ++i) {
        const double level = levels[NearestLevel(levels, in[i] * inverse)];
        with_level += in[i] * level;
        levels_squared += level * level;
      }
      if (!(levels_squared > 0)) continue;
      const double gain = with_level * with_level / levels_squared;  // what it takes off the sum of squares
      if (gain <= most) continue;
      most = gain;
      best = static_cast<float>(with_level / levels_squared);
    }
  }
  return best;
}

}  // namespace weir
