// SPDX-License-Identifier: Apache-2.0
#include "vision/clip_tower.h"

#include <algorithm>
#include <string>

namespace weir {

Status ClipTower::ReadMetadata(const GgufFile& file, ImageTransform* transform) {
  const std::string v = "clip.vision.";
  WEIR_ASSIGN_OR_RETURN(vit_, ReadClassVitShape(file));
  WEIR_ASSIGN_OR_RETURN(const bool gelu, file.BoolOr("clip.use_gelu", false));
  WEIR_ASSIGN_OR_RETURN(const bool silu, file.BoolOr("clip.use_silu", false));
  if (silu) return Unsupported("{}: a CLIP encoder with SiLU", file.path());
  act_ = gelu ? GeluKind::kErf : GeluKind::kQuick;
  // Projectors were trained on the layer before the last. Converters that do not write the key omit that last one from
  // the file, so that all layers in the file count.
  depth_ = vit_.n_layers;
  if (file.Has(v + "feature_layer")) {
    const std::vector<int64_t>* layers = file.IntArray(v + "feature_layer");
    if (layers == nullptr || layers->size() != 1) {
      return Unsupported("{}: features of several layers", file.path());
    }
    depth_ = layers->front();
  }
  if (depth_ < 0 || depth_ > vit_.n_layers) {
    return Corrupt("{}: features of layer {} of {}", file.path(), depth_, vit_.n_layers);
  }
  transform->size = static_cast<int32_t>(vit_.size);
  // LLaVA-1.5 was trained on padded pictures; a file whose own processor crops says so.
  WEIR_ASSIGN_OR_RETURN(const std::string fit, file.StringOr("weir.vision.fit", "pad"));
  if (fit != "pad" && fit != "crop") {
    return Unsupported("{}: weir.vision.fit '{}'; pad and crop are known", file.path(), fit);
  }
  transform->fit = fit == "pad" ? Fit::kPad : Fit::kCrop;
  return ReadNormalisation(file, transform);
}

Status ClipTower::Load(const GgufFile& file, WeightLoader& loader) {
  WEIR_RETURN_IF_ERROR(input_.Load(loader, vit_));
  WEIR_RETURN_IF_ERROR(loader.Load("v.pre_ln", vit_.n_embd, &pre_ln_));
  VitShape run = vit_;
  run.n_layers = depth_;
  WEIR_RETURN_IF_ERROR(blocks_.Load(run, act_, file, loader));
  for (int64_t l = depth_; l < vit_.n_layers; ++l) loader.Skip("v.blk." + std::to_string(l) + ".");
  return Status();
}

ClipTower::Buffers ClipTower::LayOut(const Backend& backend, int64_t widest_in, int64_t n_wide,
                                     Workspace* space) const {
  Buffers b;
  b.x = space->Floats(vit_.n_pos * vit_.n_embd);
  b.blocks = blocks_.LayOut(backend, vit_.n_pos, std::max(widest_in, vit_.patch_values()), space,
                            std::max(n_wide, vit_.patch_values()));
  return b;
}

float* ClipTower::Run(Backend& backend, const Buffers& b, const float* pixels, const VisionObserver* observer) const {
  const int64_t n = vit_.n_pos, d = vit_.n_embd;
  input_.Embed(backend, vit_, pixels, b.blocks.wide, b.blocks.scratch, b.x);
  if (observer != nullptr) (*observer)("v.embd", n, d, b.x);
  backend.LayerNorm({b.x, pre_ln_.w.get(), pre_ln_.b.get(), b.x, n, d, vit_.eps});
  if (observer != nullptr) (*observer)("v.pre_ln", n, d, b.x);
  blocks_.Run(backend, b.blocks, n, nullptr, observer, b.x);
  return b.x + d;
}

Status LoadMlpProjector(const GgufFile& file, WeightLoader& loader, int64_t n_in, LinearWeights* first,
                        LinearWeights* second) {
  const GgufTensor* one = file.Tensor("mm.0.weight");
  const GgufTensor* two = file.Tensor("mm.2.weight");
  if (one == nullptr || two == nullptr) {
    return NotFound("{}: tensors mm.0.weight and mm.2.weight, the projector, are missing", file.path());
  }
  const int64_t n_hidden = one->shape.front(), n_out = two->shape.front();
  if (n_hidden > (1 << 17) || n_out > (1 << 17)) {
    return Corrupt("{}: a projector of {} and {} rows", file.path(), n_hidden, n_out);
  }
  WEIR_RETURN_IF_ERROR(loader.Load("mm.0", n_hidden, n_in, first));
  return loader.Load("mm.2", n_out, n_hidden, second);
}

}  // namespace weir
