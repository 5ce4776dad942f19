// SPDX-License-Identifier: Apache-2.0
// Pictures of any resolution as squares (Idefics3, "Building and better understanding vision-language models",
// 2408.12637, section 2; SmolVLM, 2504.05299, section 2.2): the encoder reads squares of a large copy of the picture,
// and finally the whole picture.
//
// The copy is made in two steps that each round, as in transformers' Idefics3ImageProcessor: the longer side becomes
// `longest_side`, then both sides are stretched to the next multiple of the encoder's input. A picture whose copy is a
// single square is read once.
#pragma once

#include <cstdint>

#include "vision/preprocess.h"

namespace weir {

struct SplitLayout {
  PictureSize first, copy;   // after the first and after the second step
  int32_t n_x = 0, n_y = 0;  // squares of the copy; none if it is a single one
};

// REQUIRES: all arguments above 0.
SplitLayout LayOutSquares(int32_t width, int32_t height, int32_t longest_side, int32_t side);

// The most squares along a side of any picture.
int32_t MaxSquares(int32_t longest_side, int32_t side);

}  // namespace weir
