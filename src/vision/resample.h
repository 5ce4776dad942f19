// SPDX-License-Identifier: Apache-2.0
// Pillow's resampling of 8-bit pictures, to the last bit: coefficients with 22 fractional bits, one rounding after each
// of two passes. Only the requested part of the result is computed, row by row.
#pragma once

#include <cstdint>
#include <functional>

#include "base/ledger.h"
#include "base/status.h"

namespace weir {

// RGB, 8 bits each, rows from the top.
struct RgbView {
  const uint8_t* rgb = nullptr;
  int32_t width = 0, height = 0;
};

enum class Resample { kBilinear, kBicubic, kLanczos };

// One axis of a resize from n_in to n_out samples, of which [first, first + count) are requested.
struct Axis {
  int64_t n_in = 0, n_out = 0, first = 0, count = 0;
};

// Columns of a picture's rows. The area beside them has one colour: padding is never stored.
struct Columns {
  int64_t begin = 0, n = 0;
  uint8_t colour[3] = {};
};

// Source and target of a resize. Working memory is reserved in `ledger` under kVision (kOverBudget).
struct Resize {
  Columns source;             // of the picture's rows
  int64_t y0 = 0;             // rows of padding above the picture
  Axis across, down;          // the requested part of both axes
  int64_t left = 0, top = 0;  // its position in the result
};

// Passes the rows of the result to `sink` in order, [across.count, 3] each. REQUIRES: pixels; both axes with requested
// samples.
Status RunResize(const RgbView& image, Resample resample, const Resize& resize, Ledger& ledger,
                 const std::function<void(int64_t y, const uint8_t* row)>& sink);

struct Sides {
  int64_t across = 0, down = 0;
};
// At least what RunResize() allocates for any picture and any result with at most these sides, where the rows between
// the two passes take `between` bytes: those of the source at the width of the result, and one more.
int64_t ResizeBytes(Sides in, Sides out, int64_t between, Resample resample);
inline int64_t ResizeBytes(Sides in, Sides out, Resample resample) {
  return ResizeBytes(in, out, 3 * out.across * (in.down + 1), resample);
}
// How far a filter reaches, in samples of the wider-spaced side.
double FilterSupport(Resample resample);

}  // namespace weir
