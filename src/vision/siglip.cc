// SPDX-License-Identifier: Apache-2.0
#include "vision/siglip.h"

#include <algorithm>
#include <string>

#include "vision/vit.h"

namespace weir {

Status Siglip::ReadMetadata(const GgufFile& file, std::optional<int64_t> usual_scale, EncoderConfig* config) {
  const std::string v = "clip.vision.", scale = v + "projector.scale_factor";
  WEIR_ASSIGN_OR_RETURN(config->name, file.StringOr("general.name", ""));
  WEIR_ASSIGN_OR_RETURN(size_, BoundedInt(file, v + "image_size", 1, kMaxImageSize));
  WEIR_ASSIGN_OR_RETURN(patch_, BoundedInt(file, v + "patch_size", 1, size_));
  WEIR_RETURN_IF_ERROR(ReadVitShape(file, &shape_));
  n_side_ = size_ / patch_;
  n_pos_ = n_side_ * n_side_;
  if (usual_scale.has_value()) {
    WEIR_ASSIGN_OR_RETURN(scale_, BoundedIntOr(file, scale, 1, n_side_, *usual_scale));
  } else {
    WEIR_ASSIGN_OR_RETURN(scale_, BoundedInt(file, scale, 1, n_side_));
  }
  if (n_pos_ > (1 << 16) || n_side_ % scale_ != 0) {
    return Corrupt("{}: a picture of {} x {} patches, {} of them a row along each side", file.path(), n_side_, n_side_,
                   scale_);
  }
  config->n_side = static_cast<int32_t>(n_side_ / scale_);
  config->n_rows = config->n_side * config->n_side;
  config->transform.size = static_cast<int32_t>(size_);
  return ReadNormalisation(file, &config->transform);
}

Status Siglip::Load(const GgufFile& file, WeightLoader& loader) {
  const int64_t d = shape_.n_embd;
  WEIR_RETURN_IF_ERROR(loader.LoadKernel("v.patch_embd.weight", d, {3, patch_, patch_}, &patches_));
  WEIR_RETURN_IF_ERROR(loader.LoadOptional("v.patch_embd.bias", d, &patch_bias_));
  WEIR_RETURN_IF_ERROR(loader.Load("v.position_embd.weight", n_pos_, d, &positions_));
  WEIR_RETURN_IF_ERROR(blocks_.Load(shape_, GeluKind::kTanh, file, loader));
  return loader.Load("v.post_ln", d, &post_ln_);
}

Siglip::Buffers Siglip::LayOut(const Backend& backend, int64_t widest_in, Workspace* space) const {
  Buffers b;
  b.x = space->Floats(n_pos_ * shape_.n_embd);
  b.wide = space->Floats(n_pos_ * std::max(shape_.n_embd, patch_values()));
  b.blocks = blocks_.LayOut(backend, n_pos_, std::max(patch_values(), widest_in), space);
  return b;
}

void Siglip::Run(Backend& backend, const Buffers& b, const float* pixels, const VisionObserver* observer) const {
  const int64_t n = n_pos_, d = shape_.n_embd;
  // Positions first; the patches are added to them.
  EmbedAll(backend, *positions_, n, b.x);
  GatherPatches(backend, pixels, size_, patch_, b.wide);
  const MatMulOut to = {patches_.get(), b.x, d, patch_bias_.get(), true};
  backend.MatMul({b.wide, patch_values(), n, patch_values(), {&to, 1}, b.blocks.scratch});
  if (observer != nullptr) (*observer)("v.embd", n, d, b.x);
  blocks_.Run(backend, b.blocks, n, nullptr, observer, b.x);
  backend.LayerNorm({b.x, post_ln_.w.get(), post_ln_.b.get(), b.x, n, d, shape_.eps});
  if (observer != nullptr) (*observer)("v.post_ln", n, d, b.x);
  SquaresArgs squares;
  squares.x = b.x;
  squares.height = squares.width = n_side_;
  squares.dim = d;
  squares.side = scale_;
  squares.y = b.wide;
  backend.Squares(squares);
}

}  // namespace weir
