// SPDX-License-Identifier: Apache-2.0
// Pictures of any resolution as slices ("LLaVA-UHD", 2403.11703, section 3.1; MiniCPM-V, 2408.01800, section 3.1): the
// encoder reads the whole picture at its own ratio and about the area that it was trained with; of a larger picture
// then the cells of a grid over a copy of it, line by line, each of about that area.
//
// The grid has about as many cells as the picture has such areas, and the shape nearest to the picture's; all cells
// have the same size. This follows transformers' MiniCPMV4_6ImageProcessor.
#pragma once

#include <cstdint>

#include "vision/preprocess.h"

namespace weir {

struct SliceLayout {
  int32_t n_x = 0, n_y = 0;  // cells along each side; none if the picture is read once
  PictureSize slice;         // of each
  int32_t n() const { return n_x * n_y; }
};

// REQUIRES: all arguments above 0, of a transform with Fit::kArea.
SliceLayout LayOutSlices(int32_t width, int32_t height, const ImageTransform& transform, int32_t max_slices);

}  // namespace weir
