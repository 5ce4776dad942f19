// SPDX-License-Identifier: Apache-2.0
// CLIP's vision transformer ("Learning Transferable Visual Models From Natural Language Supervision", 2103.00020,
// section 2.4) up to the block whose output projectors read: patches and class token, a norm, blocks. Several encoders
// add their own layers after it.
#pragma once

#include "backend/backend.h"
#include "base/status.h"
#include "base/workspace.h"
#include "io/gguf.h"
#include "model/weights.h"
#include "vision/vit.h"
#include "vision/vit_blocks.h"

namespace weir {

class ClipTower {
 public:
  // Sizes, activation, the output layer (clip.vision.feature_layer, otherwise the last in the file) and how a picture
  // becomes its input (weir.vision.fit: pad or crop). kNotFound, kCorrupt or kUnsupported names the key.
  Status ReadMetadata(const GgufFile& file, ImageTransform* transform);
  // Binds its tensors. Most files have blocks after the output layer; they never run. Call after ReadMetadata().
  Status Load(const GgufFile& file, WeightLoader& loader);

  int64_t n_side() const { return vit_.n_side; }  // patches along a side
  int64_t n_patches() const { return vit_.n_pos - 1; }
  int64_t n_embd() const { return vit_.n_embd; }

  struct Buffers {
    float* x = nullptr;         // [n_patches + 1, n_embd]
    VitBlocks::Buffers blocks;  // `wide`: as many rows of at least n_wide columns, free after Run()
  };
  // `blocks.scratch` serves products of as many rows, of up to widest_in numbers.
  Buffers LayOut(const Backend& backend, int64_t widest_in, int64_t n_wide, Workspace* space) const;
  // pixels: [3, size, size]. Returns the patches' rows, [n_patches, n_embd], in `x`, without the class token's. Offers
  // v.embd, v.pre_ln and what VitBlocks offers.
  float* Run(Backend& backend, const Buffers& buffers, const float* pixels, const VisionObserver* observer) const;

 private:
  ClassVitShape vit_;  // n_layers: of the file
  int64_t depth_ = 0;  // blocks that run
  GeluKind act_ = GeluKind::kQuick;
  PatchEmbedding input_;
  LayerNormWeights pre_ln_;
  VitBlocks blocks_;
};

// LLaVA's projector, mm.0 and mm.2 with a GELU between them; its widths are those of the tensors, limited to sane
// bounds. kNotFound when there is none.
Status LoadMlpProjector(const GgufFile& file, WeightLoader& loader, int64_t n_in, LinearWeights* first,
                        LinearWeights* second);

}  // namespace weir
