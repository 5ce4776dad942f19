// SPDX-License-Identifier: Apache-2.0
// Pictures as PNG files, written by libpng.
#pragma once

#include <string>

#include "base/status.h"
#include "vision/resample.h"

namespace weir {

// kInternal where the library fails, as it does without memory.
Result<std::string> EncodePng(const RgbView& picture);

// Memory that EncodePng() takes for so many pixels, its result with it.
int64_t PngBytes(int64_t n_pixels);

}  // namespace weir
