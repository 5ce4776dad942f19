// SPDX-License-Identifier: Apache-2.0
// Consecutive pictures in the PPM format (P6, 8 bits) from a pipe or file: the simplest picture format, and one that
// states the size of each frame.
#pragma once

#include <cstdint>
#include <functional>

#include "base/status.h"

namespace weir {

inline constexpr int32_t kMaxPictureSide = 1 << 16;

// Returns 3 * width * height bytes to write to, or an error. Both are in 1 .. kMaxPictureSide.
using PpmAllocate = std::function<Result<uint8_t*>(int64_t width, int64_t height)>;

// Reads up to n bytes; 0 at the end.
using PpmRead = std::function<Result<int64_t>(uint8_t* to, int64_t n)>;

// Reads the next picture. False at the end of the stream; kCorrupt when it is truncated or malformed; errors of
// `allocate` and `read`.
Result<bool> ReadPpm(const PpmRead& read, const PpmAllocate& allocate);

}  // namespace weir
