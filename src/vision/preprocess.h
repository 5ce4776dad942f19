// From a picture's pixels to an encoder's input, exactly as the models' own processors do it (transformers'
// CLIPImageProcessor over Pillow): resampling in 8 bits with Pillow's fixed-point arithmetic, horizontally, then
// vertically, then (v / 255 - mean) / std.
//
// Only what ends up in the result is computed: neither the padded square nor what a crop throws away ever exists, so
// that a picture of 65,536 x 1 pixels costs no more than another of as many pixels.
#pragma once

#include <cstdint>

#include "base/ledger.h"
#include "base/status.h"

namespace weir {

// RGB, 8 bits each, rows one after the other from the top.
struct RgbView {
  const uint8_t* rgb = nullptr;
  int32_t width = 0, height = 0;
};

enum class Resample { kBilinear, kBicubic };

// How a picture becomes a square.
enum class Fit {
  kCrop,    // its shorter side becomes `size`, the middle is cut out (CLIP)
  kPad,     // strips of the mean colour make it a square, which is resized (LLaVA-1.5)
  kStretch  // width and height are resized, each by itself
};

struct ImageTransform {
  int32_t size = 0;  // of the result, both sides; 1 .. kMaxImageSize
  Fit fit = Fit::kCrop;
  Resample resample = Resample::kBicubic;
  float mean[3] = {0.48145466f, 0.4578275f, 0.40821073f};  // CLIP's
  float std[3] = {0.26862954f, 0.26130258f, 0.27577711f};  // each above 0
};
inline constexpr int32_t kMaxImageSize = 4096;

// Largest working memory of Preprocess() for a picture of so many pixels, and of PreprocessSquare() where the copy is
// at least `size` pixels wide or high.
int64_t PreprocessBytes(int32_t width, int32_t height, const ImageTransform& transform);

// One square of a larger copy of the picture: of the picture resized to width x height, what stands in [x, x + size) x
// [y, y + size). What lies beyond the copy is black.
struct Square {
  int32_t width = 0, height = 0;
  int32_t x = 0, y = 0;
};
// As Preprocess(), for a square; transform.fit does not matter.
Status PreprocessSquare(const RgbView& image, const ImageTransform& transform, const Square& square, Ledger& ledger,
                        float* out);

// Writes [3, size, size]: red, green, blue planes. Working memory (3 * height * size bytes and the coefficients) is
// reserved in `ledger` under kVision: kOverBudget. kInvalidArgument for an empty picture or a bad transform.
Status Preprocess(const RgbView& image, const ImageTransform& transform, Ledger& ledger, float* out);

}  // namespace weir
