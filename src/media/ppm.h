// SPDX-License-Identifier: Apache-2.0
// Pictures of a pipe or file in the PPM format (P6, 8 bits), one after the other: the one picture format that is
// simpler than its description, and that says how large each frame is.
#pragma once

#include <cstdint>
#include <functional>

#include "base/status.h"

namespace weir {

inline constexpr int32_t kMaxPictureSide = 1 << 16;

// Gives 3 * width * height bytes to write to, or says why not. Both are in 1 .. kMaxPictureSide.
using PpmAllocate = std::function<Result<uint8_t*>(int64_t width, int64_t height)>;

// Reads up to n bytes; 0 at the end.
using PpmRead = std::function<Result<int64_t>(uint8_t* to, int64_t n)>;

// Reads the next picture. False at the end of the stream; kCorrupt when it ends or differs in the middle; errors of
// `allocate` and `read`.
Result<bool> ReadPpm(const PpmRead& read, const PpmAllocate& allocate);

}  // namespace weir
