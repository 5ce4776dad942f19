// SPDX-License-Identifier: Apache-2.0
// Synthetic pictures, the same on both sides of a golden.
#pragma once

#include <cstdint>
#include <vector>

namespace weir::testing {

// The pictures of tools/golden/vision.py: [height, width, 3].
inline std::vector<uint8_t> Picture(uint32_t width, uint32_t height) {
  std::vector<uint8_t> out;
  for (uint32_t y = 0; y < height; ++y) {
    for (uint32_t x = 0; x < width; ++x) {
      for (uint32_t c = 0; c < 3; ++c) {
        uint32_t h = x * 374761393u + y * 668265263u + c * 2147483647u;
        h = (h ^ (h >> 13)) * 1274126177u;
        const uint32_t slope = (x * 5 + y * 3 + c * 40 + ((x / 9 + y / 5) % 2) * 100) % 256;
        out.push_back(static_cast<uint8_t>((width + height) % 2 == 1 ? h >> 16 : slope));
      }
    }
  }
  return out;
}

}  // namespace weir::testing
