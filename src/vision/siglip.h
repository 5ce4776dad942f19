// SPDX-License-Identifier: Apache-2.0
// SigLIP's vision transformer (2303.15343) as Idefics3, SmolVLM and Gemma 3 use it: square pictures of one size,
// learned positions, no class token, a norm after the last block; then each square of `scale` x `scale` patches becomes
// a row.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>

#include "backend/backend.h"
#include "base/status.h"
#include "base/workspace.h"
#include "io/gguf.h"
#include "model/weights.h"
#include "vision/encoder.h"
#include "vision/vit_blocks.h"

namespace weir {

class Siglip {
 public:
  // Sizes under clip.vision.*, bounded; projector.scale_factor is `usual_scale` where the file does not have it and
  // there is one. Sets the config's name, rows and the size of the transform.
  Status ReadMetadata(const GgufFile& file, std::optional<int64_t> usual_scale, EncoderConfig* config);
  Status Load(const GgufFile& file, WeightLoader& loader);

  int64_t n_embd() const { return shape_.n_embd; }
  float eps() const { return shape_.eps; }
  int64_t in_square() const { return scale_ * scale_; }
  int64_t square_width() const { return in_square() * shape_.n_embd; }  // of a square's rows side by side

  struct Buffers {
    float *x, *wide;  // [n_pos, n_embd]; patches' pixels, later squares' rows: [n_pos, max(pixels, n_embd)]
    VitBlocks::Buffers blocks;
  };
  // `scratch` of the blocks serves products of up to widest_in numbers, too.
  Buffers LayOut(const Backend& backend, int64_t widest_in, Workspace* space) const;
  // Rows of all patches after the last norm in x, and those of each square side by side in `wide`.
  void Run(Backend& backend, const Buffers& b, const float* pixels, const VisionObserver* observer) const;

 private:
  int64_t patch_values() const { return 3 * patch_ * patch_; }

  VitShape shape_;
  int64_t size_ = 0, patch_ = 0, n_side_ = 0, n_pos_ = 0, scale_ = 0;
  std::unique_ptr<Matrix> patches_, positions_;  // [n_embd, 3 * patch * patch], [n_pos, n_embd]
  Vector patch_bias_;
  LayerNormWeights post_ln_;
  VitBlocks blocks_;
};

}  // namespace weir
