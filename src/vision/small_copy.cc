// SPDX-License-Identifier: Apache-2.0
#include "vision/small_copy.h"

#include <algorithm>
#include <cmath>

namespace weir {
namespace {

// A part of a picture or input, in its pixels.
struct Field {
  int64_t left = 0, top = 0, width = 0, height = 0;
};

// At most `most` pixels at this ratio of the sides.
PictureSize SizeAt(double ratio, int64_t most) {
  const auto whole = [most](double side) { return std::clamp<int64_t>(static_cast<int64_t>(side), 1, most); };
  const double area = static_cast<double>(most);
  if (ratio >= 1) {
    const int64_t height = whole(std::sqrt(area / ratio));
    const int64_t width = std::min(whole(std::round(static_cast<double>(height) * ratio)), most / height);
    return {static_cast<int32_t>(width), static_cast<int32_t>(height)};
  }
  const int64_t width = whole(std::sqrt(area * ratio));
  const int64_t height = std::min(whole(std::round(static_cast<double>(width) / ratio)), most / width);
  return {static_cast<int32_t>(width), static_cast<int32_t>(height)};
}

// value(x, y, colour) is that of a pixel, 0 to 255.
template <typename Value>
void Shrink(const Field& from, PictureSize to, const Value& value, uint8_t* out) {
  for (int64_t y = 0; y < to.height; ++y) {
    const int64_t top = from.top + from.height * y / to.height;
    const int64_t bottom = std::max(top + 1, from.top + from.height * (y + 1) / to.height);
    for (int64_t x = 0; x < to.width; ++x) {
      const int64_t left = from.left + from.width * x / to.width;
      const int64_t right = std::max(left + 1, from.left + from.width * (x + 1) / to.width);
      for (int64_t c = 0; c < 3; ++c) {
        double sum = 0;
        for (int64_t row = top; row < bottom; ++row) {
          for (int64_t column = left; column < right; ++column) sum += value(column, row, c);
        }
        const double mean = sum / static_cast<double>((bottom - top) * (right - left));
        *out++ = static_cast<uint8_t>(std::lround(std::clamp(mean, 0.0, 255.0)));
      }
    }
  }
}

}  // namespace

PictureSize CopySmall(const RgbView& picture, int64_t most, uint8_t* out) {
  const int64_t width = picture.width, height = picture.height;
  const PictureSize size = width * height <= most
                               ? PictureSize{picture.width, picture.height}
                               : SizeAt(static_cast<double>(width) / static_cast<double>(height), most);
  Shrink(
      {0, 0, width, height}, size,
      [&](int64_t x, int64_t y, int64_t c) { return static_cast<double>(picture.rgb[3 * (y * width + x) + c]); }, out);
  return size;
}

PictureSize CopySmall(const float* input, const ImageTransform& t, PictureSize source, int64_t most, uint8_t* out) {
  const PictureSize whole = InputSize(input, t);
  Field shown = {0, 0, whole.width, whole.height};
  double ratio = static_cast<double>(source.width) / static_cast<double>(source.height);
  if (t.fit == Fit::kCrop) ratio = static_cast<double>(whole.width) / static_cast<double>(whole.height);
  if (t.fit == Fit::kPad) {
    const int64_t side = std::max(source.width, source.height);
    shown.width = std::max<int64_t>(1, whole.width * source.width / side);
    shown.height = std::max<int64_t>(1, whole.height * source.height / side);
    shown.left = (whole.width - shown.width) / 2;
    shown.top = (whole.height - shown.height) / 2;
  }
  const PictureSize size = SizeAt(ratio, std::min(most, shown.width * shown.height));
  const int64_t n_plane = int64_t{whole.width} * whole.height;
  Shrink(
      shown, size,
      [&](int64_t x, int64_t y, int64_t c) {
        return 255.0 * (double{input[c * n_plane + y * whole.width + x]} * double{t.std[c]} + double{t.mean[c]});
      },
      out);
  return size;
}

int64_t MostPixelsOf(const ImageTransform& transform, int64_t most) {
  return std::min(most, InputFloats(transform) / 3);
}

}  // namespace weir
