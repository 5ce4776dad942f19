// What encoders built on a vision transformer share.
#pragma once

#include <cstdint>

#include "base/status.h"
#include "io/gguf.h"
#include "vision/preprocess.h"

namespace weir {

// Cuts [3, size, size] into squares of `patch` pixels, row by row from the top: [n_patches, 3 * patch * patch], each as
// a convolution's weights lie: colour, row, column. What is left at the right and at the bottom is dropped.
void GatherPatches(const float* pixels, int64_t size, int64_t patch, float* to);

// clip.vision.image_mean and image_std; kCorrupt when they are not three numbers each that can be divided by.
Status ReadNormalisation(const GgufFile& file, ImageTransform* transform);

}  // namespace weir
