// SPDX-License-Identifier: Apache-2.0
// Small copies of pictures and frames for people to look at: every pixel is the mean of the field that it stands for,
// at the ratio of the picture's sides.
//
// A copy of an encoder's input shows what the model saw: where the input is a cropped picture, no more of it. Padding
// is left out, and a stretched picture is stretched back.
#pragma once

#include <cstdint>

#include "vision/preprocess.h"
#include "vision/resample.h"

namespace weir {

// Both write [height, width, 3] bytes to `out`, for at most `most` pixels, and return the size; a copy has no more
// pixels than what it is a copy of. REQUIRES: sides and `most` of at least 1.
PictureSize CopySmall(const RgbView& picture, int64_t most, uint8_t* out);
// `source`: the size of the picture that Preprocess() made the input of.
PictureSize CopySmall(const float* input, const ImageTransform& transform, PictureSize source, int64_t most,
                      uint8_t* out);

// The most pixels that a copy of an input has, where `most` are asked for.
int64_t MostPixelsOf(const ImageTransform& transform, int64_t most);

}  // namespace weir
