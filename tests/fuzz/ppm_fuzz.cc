// SPDX-License-Identifier: Apache-2.0
// Any bytes as pictures in the PPM format, in pieces of any size: no picture larger than what was read for it.
//
// Input: one byte, the size of the pieces; then the stream.
#include <algorithm>
#include <cstdlib>
#include <cstring>
#include <vector>

#include "media/ppm.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  if (size == 0) return 0;
  const int64_t piece = 1 + data[0];
  int64_t at = 1;
  std::vector<uint8_t> pixels;
  const auto read = [&](uint8_t* to, int64_t n) -> weir::Result<int64_t> {
    n = std::min({n, piece, static_cast<int64_t>(size) - at});
    if (n > 0) std::memcpy(to, data + at, static_cast<size_t>(n));
    at += n;
    return n;
  };
  const auto allocate = [&](int64_t width, int64_t height) -> weir::Result<uint8_t*> {
    if (width < 1 || height < 1 || width > weir::kMaxPictureSide || height > weir::kMaxPictureSide) std::abort();
    if (3 * width * height > static_cast<int64_t>(size)) return weir::OverBudget("no room");
    pixels.assign(static_cast<size_t>(3 * width * height), 0);
    return pixels.data();
  };
  for (;;) {
    const auto more = weir::ReadPpm(read, allocate);
    if (!more.ok() || !*more) return 0;
  }
}
