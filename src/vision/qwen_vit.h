// SPDX-License-Identifier: Apache-2.0
// Shared by the encoders of Qwen2-VL and its successors: pictures of any size in patches, four of a square side by side
// from the start, so that merging moves nothing; queries and keys rotated by line and column; two layers over a
// square's rows. A patch covers two frames of a video, of which a single picture is both, or one.
#pragma once

#include <array>
#include <cstdint>
#include <functional>
#include <memory>
#include <string>

#include "backend/backend.h"
#include "base/ledger.h"
#include "base/memory.h"
#include "base/status.h"
#include "io/gguf.h"
#include "model/weights.h"
#include "vision/encoder.h"
#include "vision/vit.h"
#include "vision/vit_blocks.h"

namespace weir {

// Two layers over the rows of a square side by side.
struct SquareMerger {
  LinearWeights first, second;
  // The width of the second one is its tensor's, limited to sane bounds. `names` are those of the two layers.
  Status Load(const GgufFile& file, WeightLoader& loader, int64_t n_in, const std::array<std::string, 2>& names);
  int64_t n_out() const { return second.w->n_out(); }
  // x: [n_rows, n_in]; hidden: as large; rows of `out` are out_stride floats apart.
  void Run(Backend& backend, const float* x, int64_t n_rows, int64_t n_in, float* hidden, void* scratch, float* out,
           int64_t out_stride, const VisionObserver* observer, const std::string& name) const;
};

class QwenVit {
 public:
  static constexpr int64_t kMerge = 2;  // patches along a side of a square
  static constexpr int64_t kInSquare = kMerge * kMerge;

  // Sizes under clip.vision.*, bounded; sets the config's transform, rows and words. min_pixels and max_pixels are for
  // files without those keys.
  Status ReadMetadata(const GgufFile& file, int64_t min_pixels, int64_t max_pixels, EncoderConfig* config);
  // Patches, rotation and blocks.
  Status Load(const GgufFile& file, const VitStyle& style, Backend& backend, Ledger& ledger, WeightLoader& loader);

  const VitShape& shape() const { return shape_; }
  int64_t max_patches() const { return max_patches_; }
  int64_t square_width() const { return kInSquare * shape_.n_embd; }  // of a square's rows side by side
  // Patches along the sides of a picture of this size.
  SquarePlace PatchesOf(PictureSize size) const { return {size.width / patch_, size.height / patch_}; }
  PictureRows RowsOf(const float* pixels, const EncoderConfig& config) const;

  struct Buffers {
    float *x, *wide;   // [n, n_embd]; [n, max(pixels of a patch, n_embd)]
    float *cos, *sin;  // [n, head_dim / 2]
    VitBlocks::Buffers blocks;
  };
  Buffers LayOut(const Backend& backend, Workspace* space) const;
  // Rows of all patches in x, square by square, of args.pixels and args.second.
  void Embed(Backend& backend, const EncodeArgs& args, PictureSize size, const Buffers& b) const;
  // The place of patch i, for patches square by square.
  SquarePlace PlaceOf(PictureSize size, int64_t i) const;
  // Angles of n patches in any order.
  void Angles(Backend& backend, int64_t n, const std::function<SquarePlace(int64_t i)>& place, const Buffers& b) const;
  // All blocks over x, whose rows have the angles' order.
  void Run(Backend& backend, const Buffers& b, int64_t n, const VisionObserver* observer, float* x,
           const VitWindows* windows = nullptr,
           const std::function<void(int64_t block, const float* x)>& after = nullptr) const;

 private:
  int64_t patch_values() const { return 3 * patch_ * patch_; }
  SquaresArgs Patches(PictureSize size) const;

  VitShape shape_;
  int64_t patch_ = 0, max_patches_ = 0;
  int64_t n_frames_ = 2;  // that a patch covers
  RopeTable rotation_;    // of a head: all of its elements, no positions of its own
  RopeTable axis_;        // of lines, and of columns: half of them
  Buffer axis_device_;
  std::unique_ptr<Matrix> patches_[2];  // [n_embd, 3 * patch * patch], of each of its frames
  Vector patch_bias_;
  VitBlocks blocks_;
};

}  // namespace weir
