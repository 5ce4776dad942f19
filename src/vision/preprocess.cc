// SPDX-License-Identifier: Apache-2.0
#include "vision/preprocess.h"

#include <algorithm>
#include <cmath>

namespace weir {
namespace {

Status CheckPixels(const RgbView& image) {
  if (image.rgb == nullptr || image.width < 1 || image.height < 1) return InvalidArgument("a picture without pixels");
  return Status();
}

Status Check(const RgbView& image, const ImageTransform& t) {
  WEIR_RETURN_IF_ERROR(CheckPixels(image));
  bool sane = t.size >= 1 && t.size <= kMaxImageSize;
  if (t.fit == Fit::kMultiples) {
    sane = t.factor >= 1 && t.factor <= kMaxImageSize && t.min_pixels >= 1 && t.min_pixels <= t.max_pixels &&
           t.max_pixels <= int64_t{kMaxImageSize} * kMaxImageSize;
  }
  if (t.fit == Fit::kLongest) sane = t.factor >= 1 && t.factor <= kMaxImageSize;
  if (t.fit == Fit::kArea) sane = sane && t.factor >= 1 && t.factor <= t.size;
  if (t.fit == Fit::kMost) {
    sane = t.factor >= 1 && t.factor <= kMaxImageSize && t.max_pixels >= int64_t{t.factor} * t.factor &&
           t.max_pixels <= int64_t{kMaxImageSize} * kMaxImageSize;
  }
  if (t.fit == Fit::kSplit || t.fit == Fit::kLongest)
    sane = sane && t.longest_side >= 1 && t.longest_side <= kMaxImageSize;
  for (int c = 0; c < 3; ++c) sane = sane && std::isfinite(t.mean[c]) && std::isfinite(t.std[c]) && t.std[c] > 0;
  if (!sane)
    return InvalidArgument("a picture can become 1 to {} pixels wide, with a deviation above 0", kMaxImageSize);
  return Status();
}

// Rows of a resize as the input of an encoder, planes of `input` pixels: (v / 255 - mean) / std.
Status RunToInput(const RgbView& image, const ImageTransform& t, PictureSize input, const Resize& resize,
                  Ledger& ledger, float* out) {
  const int64_t width = resize.across.count;
  return RunResize(image, t.resample, resize, ledger, [&](int64_t y, const uint8_t* row) {
    for (int64_t x = 0; x < width; ++x) {
      for (int c = 0; c < 3; ++c) {
        out[(c * input.height + resize.top + y) * input.width + resize.left + x] =
            (static_cast<float>(row[3 * x + c]) / 255.0f - t.mean[c]) / t.std[c];
      }
    }
  });
}

// Both sides of the first copy are at most longest_side, those of the second the next multiple of `size`: how much
// shorter one of them is depends on the picture.
int64_t SplitBytes(int32_t width, int32_t height, const ImageTransform& t) {
  // Made even, the shorter side of a square may be one more than the longer.
  const int64_t longest = t.longest_side + t.longest_side % 2, most = (longest + t.size - 1) / t.size * t.size;
  const Sides first = {longest, longest}, second = {most, most}, input = {t.size, t.size};
  const int64_t first_bytes = PageRound(3 * longest * longest), second_bytes = PageRound(3 * most * most);
  return std::max({first_bytes + ResizeBytes({width, height}, first, t.resample),
                   first_bytes + second_bytes + ResizeBytes(first, second, t.resample),
                   second_bytes + ResizeBytes(second, input, t.resample),
                   first_bytes + ResizeBytes(first, input, t.resample)});
}

// Longest side that kMultiples makes, and most pixels of it: bounds of smart_resize, whose last step may round a side
// up.
constexpr double kMaxRatio = 200;
int64_t MultiplesSide(const ImageTransform& t) {
  if (t.fit == Fit::kLongest) return (int64_t{t.longest_side} + t.factor - 1) / t.factor * t.factor;
  if (t.fit == Fit::kMost) return t.max_pixels / t.factor;
  if (t.fit == Fit::kArea) return MaxAreaSide(t);
  return static_cast<int64_t>(std::sqrt(kMaxRatio * static_cast<double>(t.max_pixels))) + 2 * t.factor;
}
int64_t MultiplesPixels(const ImageTransform& t) {
  if (t.fit == Fit::kLongest) return MultiplesSide(t) * MultiplesSide(t);
  if (t.fit == Fit::kMost) return t.max_pixels;
  if (t.fit == Fit::kArea) {
    // Each side is rounded up by half a factor at most, or to a factor.
    const double both = t.size * (std::sqrt(kMaxRatio) + 1 / std::sqrt(kMaxRatio));
    const int64_t rounded = int64_t{t.size} * t.size + static_cast<int64_t>(t.factor * (both + t.factor) / 2) + 1;
    return std::max(rounded, t.factor * MaxAreaSide(t));
  }
  // A side of one `factor`; the smallest picture, each side rounded up.
  const int64_t around_min =
      static_cast<int64_t>(2 * t.factor * std::sqrt(kMaxRatio * static_cast<double>(t.min_pixels)));
  return std::max(
      {t.max_pixels, t.factor * MultiplesSide(t), t.min_pixels + around_min + int64_t{t.factor} * t.factor});
}

int64_t MultiplesBytes(int32_t width, int32_t height, const ImageTransform& t) {
  const int64_t most = MultiplesSide(t);
  if (t.fit == Fit::kLongest) return ResizeBytes({width, height}, {most, most}, t.resample);
  // A slice is up to three times as wide as the whole, in a grid of one column.
  const double side = t.fit == Fit::kArea ? 3.0 * t.size : std::sqrt(static_cast<double>(t.max_pixels));
  const double pixels = side * side * width * height;
  // Of a picture with this ratio; narrower ones have fewer rows, wider ones fewer pixels per row.
  const int64_t rows = static_cast<int64_t>(std::sqrt(pixels)) + most + int64_t{t.factor} * (height + 1);
  return ResizeBytes({width, height}, {most, most}, 3 * rows, t.resample);
}

}  // namespace

int64_t InputFloats(const ImageTransform& t) {
  return AnySize(t) ? 3 * MultiplesPixels(t) + 2 : int64_t{3} * t.size * t.size;
}

PictureSize InputSize(const float* input, const ImageTransform& t) {
  if (!AnySize(t)) return {t.size, t.size};
  const float* sides = input + InputFloats(t) - 2;
  return {static_cast<int32_t>(sides[0]), static_cast<int32_t>(sides[1])};
}

void SetInputSize(PictureSize size, const ImageTransform& t, float* input) {
  float* const sides = input + InputFloats(t) - 2;
  sides[0] = static_cast<float>(size.width);
  sides[1] = static_cast<float>(size.height);
}

Result<PictureSize> MultiplesSize(int32_t width, int32_t height, const ImageTransform& t) {
  const double w = width, h = height, f = t.factor;
  if (t.fit == Fit::kLongest) {
    const double ratio = std::max({h / t.longest_side, w / t.longest_side, 1.0});
    const auto up = [&](double side) {
      const int32_t shrunk = std::max(static_cast<int32_t>(ratio > 1 ? std::floor(side / ratio) : side), 1);
      return (shrunk + t.factor - 1) / t.factor * t.factor;
    };
    return PictureSize{up(w), up(h)};
  }
  if (t.fit == Fit::kMost) {
    const int32_t most = static_cast<int32_t>(t.max_pixels / (int64_t{t.factor} * t.factor));
    const double by = std::sqrt(static_cast<double>(t.max_pixels) / (h * w));
    const auto squares = [&](double side) { return static_cast<int32_t>(std::floor(by * side / f)); };
    int32_t across = squares(w), down = squares(h);
    if (down == 0) {
      down = 1;
      across = std::min(static_cast<int32_t>(std::floor(w / h)), most);
    } else if (across == 0) {
      across = 1;
      down = std::min(static_cast<int32_t>(std::floor(h / w)), most);
    }
    return PictureSize{std::max(across, 1) * t.factor, down * t.factor};
  }
  if (std::max(w, h) / std::min(w, h) > kMaxRatio) {
    return Unsupported("a picture of {} x {} pixels: one side may be 200 times the other", width, height);
  }
  if (t.fit == Fit::kArea) return AreaSize(w, h, t);
  // Halves round to the even neighbour, as in Python.
  double across = std::nearbyint(w / f) * f, down = std::nearbyint(h / f) * f;
  if (t.at_least_factor) across = std::max(across, f), down = std::max(down, f);
  if (across * down > static_cast<double>(t.max_pixels)) {
    const double beta = std::sqrt(h * w / static_cast<double>(t.max_pixels));
    across = std::max(f, std::floor(w / beta / f) * f);
    down = std::max(f, std::floor(h / beta / f) * f);
  } else if (across * down < static_cast<double>(t.min_pixels)) {
    const double beta = std::sqrt(static_cast<double>(t.min_pixels) / (h * w));
    across = std::ceil(w * beta / f) * f;
    down = std::ceil(h * beta / f) * f;
  }
  return PictureSize{static_cast<int32_t>(across), static_cast<int32_t>(down)};
}

PictureSize AreaSize(double width, double height, const ImageTransform& t) {
  const double ratio = width / height;
  const double down = std::floor(t.size / std::sqrt(ratio)), across = std::floor(down * ratio);
  const auto rounded = [&t](double side) {
    return std::max(static_cast<int32_t>(std::nearbyint(side / t.factor)), 1) * t.factor;
  };
  return {rounded(across), rounded(down)};
}

int64_t MaxAreaSide(const ImageTransform& t) {
  return (static_cast<int64_t>(t.size * std::sqrt(kMaxRatio)) / t.factor + 1) * t.factor;
}

int64_t PreprocessBytes(int32_t width, int32_t height, const ImageTransform& t) {
  if (t.fit == Fit::kSplit) return SplitBytes(width, height, t);
  if (AnySize(t)) {
    const int64_t bytes = MultiplesBytes(width, height, t);
    if (t.fit == Fit::kLongest || t.fit == Fit::kArea || t.size == 0) return bytes;
    return std::max(bytes, ResizeBytes({width, height}, {t.size, t.size}, t.resample));
  }
  // The filter of an axis is at most as wide as when the whole longer side becomes `size` samples.
  const int64_t size = t.size, side = std::max(width, height);
  const double widening = std::max(1.0, static_cast<double>(side) / static_cast<double>(size));
  const int64_t stride = 2 * static_cast<int64_t>(std::ceil(FilterSupport(t.resample) * widening)) + 1;
  const int64_t taps = PageRound(4 * size * stride) + PageRound(12 * size);
  const int64_t rows_first = PageRound(3 * size * (int64_t{height} + 1)) + PageRound(12 * size);
  const int64_t columns_first = PageRound(int64_t{12} * width) + PageRound(int64_t{3} * width);
  return 2 * taps + PageRound(3 * size) + std::max(rows_first, columns_first);
}

PictureSize LongestSideSize(int32_t width, int32_t height, int32_t longest_side) {
  const double ratio = static_cast<double>(width) / height;
  const bool wide = width >= height;
  int32_t shorter = static_cast<int32_t>(wide ? longest_side / ratio : longest_side * ratio);
  shorter = std::max(shorter + shorter % 2, 1);
  return wide ? PictureSize{longest_side, shorter} : PictureSize{shorter, longest_side};
}

Result<PictureCopy> ResizePicture(const RgbView& image, PictureSize size, Resample resample, Ledger& ledger) {
  WEIR_RETURN_IF_ERROR(CheckPixels(image));
  if (size.width < 1 || size.height < 1 || std::max(size.width, size.height) > 2 * kMaxImageSize) {
    return InvalidArgument("a picture resized to {} x {} pixels", size.width, size.height);
  }
  PictureCopy out;
  out.size = size;
  const int64_t row_bytes = int64_t{3} * size.width;
  WEIR_ASSIGN_OR_RETURN(out.bytes, HostBuffer::Allocate(ledger, MemTag::kVision, row_bytes * size.height));
  Resize resize;
  resize.source = {0, image.width, {}};
  resize.across = {image.width, size.width, 0, size.width};
  resize.down = {image.height, size.height, 0, size.height};
  WEIR_RETURN_IF_ERROR(RunResize(image, resample, resize, ledger, [&](int64_t y, const uint8_t* row) {
    std::copy_n(row, row_bytes, out.bytes.data() + y * row_bytes);
  }));
  return out;
}

Status Preprocess(const RgbView& image, const ImageTransform& t, Ledger& ledger, float* out) {
  WEIR_RETURN_IF_ERROR(Check(image, t));
  if (t.fit == Fit::kSplit) {
    const PictureSize size = LongestSideSize(image.width, image.height, t.longest_side);
    WEIR_ASSIGN_OR_RETURN(const PictureCopy copy, ResizePicture(image, size, t.resample, ledger));
    ImageTransform stretch = t;
    stretch.fit = Fit::kStretch;
    return Preprocess(copy.view(), stretch, ledger, out);
  }
  Resize resize;
  resize.source = {0, image.width, {}};
  if (AnySize(t)) {
    WEIR_ASSIGN_OR_RETURN(const PictureSize size, MultiplesSize(image.width, image.height, t));
    resize.across = {image.width, size.width, 0, size.width};
    resize.down = {image.height, size.height, 0, size.height};
    SetInputSize(size, t, out);
    return RunToInput(image, t, size, resize, ledger, out);
  }
  Axis &across = resize.across, &down = resize.down;
  across = {image.width, t.size, 0, t.size};
  down = {image.height, t.size, 0, t.size};
  if (t.fit == Fit::kPad) {
    const int64_t side = std::max(image.width, image.height);
    resize.source.begin = (side - image.width) / 2;
    resize.y0 = (side - image.height) / 2;
    across.n_in = down.n_in = side;
    for (int c = 0; c < 3; ++c) {
      // In double: 255 times a mean such as 0.48 must be truncated where the reference truncates it.
      resize.source.colour[c] = static_cast<uint8_t>(std::clamp(static_cast<double>(t.mean[c]) * 255.0, 0.0, 255.0));
    }
  } else if (t.fit == Fit::kCrop) {
    Axis& longer = image.width <= image.height ? down : across;
    const int64_t shorter = std::min(image.width, image.height);
    longer.n_out = static_cast<int64_t>(static_cast<double>(t.size * longer.n_in) / static_cast<double>(shorter));
    longer.first = (longer.n_out - t.size) / 2;
  }
  return RunToInput(image, t, {t.size, t.size}, resize, ledger, out);
}

Status PreprocessPlace(const RgbView& image, const ImageTransform& t, const PicturePlace& place, Ledger& ledger,
                       float* out) {
  WEIR_RETURN_IF_ERROR(Check(image, t));
  Resize resize;
  resize.source = {0, image.width, {}};
  resize.across = {image.width, place.copy.width, place.x, place.size.width};
  resize.down = {image.height, place.copy.height, place.y, place.size.height};
  SetInputSize(place.size, t, out);
  return RunToInput(image, t, place.size, resize, ledger, out);
}

Status PreprocessSquare(const RgbView& image, const ImageTransform& t, const Square& square, Ledger& ledger,
                        float* out) {
  WEIR_RETURN_IF_ERROR(Check(image, t));
  if (square.width < 1 || square.height < 1) return InvalidArgument("a picture resized to nothing");
  const int64_t size = t.size;
  for (int c = 0; c < 3; ++c) std::fill(out + c * size * size, out + (c + 1) * size * size, -t.mean[c] / t.std[c]);
  Resize resize;
  resize.source = {0, image.width, {}};
  const auto axis = [size](int64_t n_in, int64_t n_out, int64_t at, int64_t* to) {
    const int64_t first = std::clamp<int64_t>(at, 0, n_out), end = std::clamp<int64_t>(at + size, first, n_out);
    *to = first - at;
    return Axis{n_in, n_out, first, end - first};
  };
  resize.across = axis(image.width, square.width, square.x, &resize.left);
  resize.down = axis(image.height, square.height, square.y, &resize.top);
  if (resize.across.count == 0 || resize.down.count == 0) return Status();
  return RunToInput(image, t, {t.size, t.size}, resize, ledger, out);
}

}  // namespace weir
