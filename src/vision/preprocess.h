// SPDX-License-Identifier: Apache-2.0
// From a picture's pixels to an encoder's input, exactly as in the models' own processors (transformers'
// CLIPImageProcessor over Pillow): resampling in 8 bits with Pillow's fixed-point arithmetic, horizontally, then
// vertically, then (v / 255 - mean) / std.
//
// Only pixels of the result are computed: neither the padded square nor the discarded part of a crop is stored, so a
// picture of 65,536 x 1 pixels costs no more than any other with as many pixels.
#pragma once

#include <cstdint>

#include "base/ledger.h"
#include "base/memory.h"
#include "base/status.h"
#include "vision/resample.h"

namespace weir {

// How a picture becomes an input.
enum class Fit {
  kCrop,       // its shorter side becomes `size`, the centre is cropped (CLIP)
  kPad,        // padded with the mean colour to a square, which is resized (LLaVA-1.5)
  kStretch,    // width and height are resized independently
  kMultiples,  // both sides become multiples of `factor`, at about the same ratio, pixels within bounds (Qwen2-VL)
  kSplit,      // its longer side becomes longest_side, then the result is stretched (Idefics3, SmolVLM)
  kLongest,    // shrunk if a side is above longest_side, then both sides rounded up to multiples of `factor` (Pixtral)
  kArea,       // about size x size pixels at this ratio, both sides multiples of `factor` (MiniCPM-V)
  kMost        // the most pixels up to max_pixels at this ratio, both sides multiples of `factor` (Gemma 4)
};

struct ImageTransform {
  // Of the result, both sides; 1 .. kMaxImageSize. Where results differ in size: of squares beside them, 0 without;
  // kArea: of a square one.
  int32_t size = 0;
  Fit fit = Fit::kCrop;
  Resample resample = Resample::kBicubic;
  int32_t longest_side = 0;                                // kSplit, kLongest: 1 .. kMaxImageSize
  int32_t factor = 0;                                      // of those that differ in size: 1 .. kMaxImageSize
  bool at_least_factor = false;                            // kMultiples: no side is less, before pixels are counted
  int64_t min_pixels = 0, max_pixels = 0;                  // kMultiples: 1 <= min <= max <= kMaxImageSize^2; kMost: max
  float mean[3] = {0.48145466f, 0.4578275f, 0.40821073f};  // CLIP's
  float std[3] = {0.26862954f, 0.26130258f, 0.27577711f};  // each above 0
};
inline constexpr int32_t kMaxImageSize = 4096;
// Whether inputs differ in size.
inline bool AnySize(const ImageTransform& t) {
  return t.fit == Fit::kMultiples || t.fit == Fit::kLongest || t.fit == Fit::kMost || t.fit == Fit::kArea;
}

// Floats of an encoder's input: [3, size, size]; where inputs differ in size the largest [3, height, width] plus two.
int64_t InputFloats(const ImageTransform& transform);
// Size in pixels of an input made by Preprocess().
struct PictureSize {
  int32_t width = 0, height = 0;
};
PictureSize InputSize(const float* input, const ImageTransform& transform);
// Writes the size of an input that was made otherwise, where inputs differ in size.
void SetInputSize(PictureSize size, const ImageTransform& transform, float* input);
// Where inputs differ in size: that of a picture's. kMultiples: 2409.12191, section 2.1, transformers' smart_resize,
// kUnsupported when one side is more than 200 times the other. kLongest: 2410.07073, section 2.2, transformers'
// get_resize_output_image_size; a side that would vanish becomes one `factor`. kMost: transformers'
// get_aspect_ratio_preserving_size of Gemma 4, in which such a picture has a line of squares, as many as the longer
// side is times the shorter, within max_pixels. kArea: AreaSize(), with the same limit as kMultiples.
Result<PictureSize> MultiplesSize(int32_t width, int32_t height, const ImageTransform& transform);

// kArea: transformers' find_best_resize of MiniCPM-V 4.6, with patches as multiples; the sides need not be whole.
PictureSize AreaSize(double width, double height, const ImageTransform& transform);
// The longest side that it gives to a picture that is not refused.
int64_t MaxAreaSide(const ImageTransform& transform);

// Largest working memory of Preprocess() for a picture of this many pixels, and of PreprocessSquare() where the copy is
// at least `size` pixels wide or high; with kSplit, of all the picture's squares (vision/split.h); with kArea, of its
// slices (vision/slices.h).
int64_t PreprocessBytes(int32_t width, int32_t height, const ImageTransform& transform);

// One square of a larger copy of the picture: [x, x + size) x [y, y + size) of the picture resized to width x height.
// Pixels outside the copy are black.
struct Square {
  int32_t width = 0, height = 0;
  int32_t x = 0, y = 0;
};
// As Preprocess(), for a square; ignores transform.fit.
Status PreprocessSquare(const RgbView& image, const ImageTransform& transform, const Square& square, Ledger& ledger,
                        float* out);

// As Preprocess(), for the part [x, x + size.width) x [y, y + size.height) of the picture resized to copy.
struct PicturePlace {
  PictureSize copy, size;
  int32_t x = 0, y = 0;
};
Status PreprocessPlace(const RgbView& image, const ImageTransform& transform, const PicturePlace& place, Ledger& ledger,
                       float* out);

// Size of the copy whose longer side is transform.longest_side: the shorter one is truncated to a whole number, then
// made even.
PictureSize LongestSideSize(int32_t width, int32_t height, int32_t longest_side);

// A resized copy in 8 bits, with its memory.
struct PictureCopy {
  HostBuffer bytes;  // [height, width, 3]
  PictureSize size;
  RgbView view() const { return {bytes.data(), size.width, size.height}; }
};
Result<PictureCopy> ResizePicture(const RgbView& image, PictureSize size, Resample resample, Ledger& ledger);

// Writes [3, size, size]: red, green, blue planes; where inputs differ in size [3, height, width] and, at the end of
// InputFloats(), the two numbers that InputSize() reads. Working memory (3 * height * size bytes and the coefficients)
// is reserved in `ledger` under kVision: kOverBudget. kInvalidArgument for an empty picture or a bad transform.
Status Preprocess(const RgbView& image, const ImageTransform& transform, Ledger& ledger, float* out);

}  // namespace weir
