// SPDX-License-Identifier: Apache-2.0
// Shared by encoders built on a vision transformer with a class token: their sizes, and how pixels become rows.
#pragma once

#include <cstdint>
#include <memory>

#include "backend/backend.h"
#include "base/status.h"
#include "io/gguf.h"
#include "model/weights.h"
#include "vision/preprocess.h"
#include "vision/vit_blocks.h"

namespace weir {

// Sizes under clip.vision.*, each limited to sane bounds before any arithmetic uses it.
struct ClassVitShape : VitShape {
  int64_t size = 0, patch = 0;    // pixels along a side of the input, of a patch
  int64_t n_side = 0, n_pos = 0;  // patches along a side; rows: the class token and the patches
  int64_t patch_values() const { return 3 * patch * patch; }
};
// kNotFound or kCorrupt names the key.
Result<ClassVitShape> ReadClassVitShape(const GgufFile& file);

// Cuts [3, size, size] into squares of `patch` pixels, row by row from the top: [n_patches, 3 * patch * patch], each in
// the order of a convolution's weights: colour, row, column. The remainder at the right and at the bottom is dropped.
void GatherPatches(Backend& backend, const float* pixels, int64_t size, int64_t patch, float* to);

// All n rows of a table, in order.
void EmbedAll(Backend& backend, const Matrix& table, int64_t n, float* out);

// The input layer: a matrix over the patches' pixels, learned positions, the class token in front.
struct PatchEmbedding {
  std::unique_ptr<Matrix> patches;    // [n_embd, patch_values]
  std::unique_ptr<Matrix> positions;  // [n_pos, n_embd], the class token's first
  Vector patch_bias, class_token;

  Status Load(WeightLoader& loader, const ClassVitShape& vit);
  // pixels: [3, size, size]; wide: memory for n_pos x patch_values floats; scratch: the backend's, for n_pos rows.
  // x gets [n_pos, n_embd].
  void Embed(Backend& backend, const ClassVitShape& vit, const float* pixels, float* wide, void* scratch,
             float* x) const;
};

// Angles of n patches in line order, of which n_x are in a line, by the place along one axis: cos and sin are
// [n, n_rot / 2] of the table.
enum class GridAxis { kLine, kColumn };
void GridAngles(Backend& backend, const RopeTable& table, GridAxis axis, int64_t n_x, int64_t n, float* cos,
                float* sin);

// clip.vision.image_mean and image_std; kCorrupt when they are not three numbers each, or a deviation cannot be divided
// by.
Status ReadNormalisation(const GgufFile& file, ImageTransform* transform);

}  // namespace weir
