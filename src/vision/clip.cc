// weir-plugin: encoder
// SPDX-License-Identifier: Apache-2.0
// CLIP's vision transformer with LLaVA-1.5's projector ("Improved Baselines with Visual Instruction Tuning",
// 2310.03744, section 3.2): the patches' hidden states before the last block, through two layers with a GELU between
// them. The class token takes part in attention and is dropped. Files of LLaVA-1.6 also have grids of tiles.
#include <algorithm>
#include <vector>

#include "base/workspace.h"
#include "model/weights.h"
#include "vision/clip_tower.h"
#include "vision/encoder.h"

namespace weir {
namespace {

class Clip final : public Encoder {
 public:
  explicit Clip(Backend& backend) : Encoder(backend) {}

  Status Load(const GgufFile& file, Ledger& ledger);
  int64_t WorkspaceBytes() const override {
    Workspace space(nullptr);
    tower_.LayOut(backend_, n_hidden_, n_hidden_, &space);
    return space.used();
  }
  SignalShape ShapeOf(SignalKind kind) const override {
    if (kind != SignalKind::kOutputs) return {};
    return {1, 1, tower_.n_patches(), tower_.n_embd()};
  }
  void Encode(const EncodeArgs& args) override;

 private:
  Status ReadGrids(const GgufFile& file);

  ClipTower tower_;
  int64_t n_hidden_ = 0;  // columns between the projector's two layers
  Vector newline_;
  LinearWeights mm0_, mm2_;
};

Status Clip::Load(const GgufFile& file, Ledger& ledger) {
  config_.projector = "mlp";
  WEIR_ASSIGN_OR_RETURN(config_.name, file.StringOr("general.name", ""));
  WEIR_RETURN_IF_ERROR(tower_.ReadMetadata(file, &config_.transform));
  config_.n_rows = static_cast<int32_t>(tower_.n_patches());
  config_.n_side = static_cast<int32_t>(tower_.n_side());
  WEIR_RETURN_IF_ERROR(ReadGrids(file));
  WeightLoader loader(file, backend_, ledger);
  WEIR_RETURN_IF_ERROR(tower_.Load(file, loader));
  WEIR_RETURN_IF_ERROR(LoadMlpProjector(file, loader, tower_.n_embd(), &mm0_, &mm2_));
  n_hidden_ = mm0_.w->n_out();
  config_.n_embd = static_cast<int32_t>(mm2_.w->n_out());
  if (!config_.grids.empty()) {
    WEIR_RETURN_IF_ERROR(loader.Load("model.image_newline", config_.n_embd, &newline_));
    config_.newline = newline_.data;
  }
  return loader.Finish();
}

// LLaVA-1.6: pairs of width and height. The whole picture is then stretched to the encoder's square.
Status Clip::ReadGrids(const GgufFile& file) {
  const std::string key = "clip.vision.image_grid_pinpoints";
  if (!file.Has(key)) return Status();
  WEIR_ASSIGN_OR_RETURN(const std::string merge, file.StringOr("clip.vision.mm_patch_merge_type", "flat"));
  if (merge != "spatial_unpad") {
    return Unsupported("{}: clip.vision.mm_patch_merge_type '{}'; spatial_unpad is known", file.path(), merge);
  }
  const std::vector<int64_t>* sides = file.IntArray(key);
  if (sides == nullptr || sides->empty() || sides->size() % 2 != 0 || sides->size() > 256) {
    return Corrupt("{}: {} must be pairs of numbers", file.path(), key);
  }
  const int64_t size = config_.transform.size;
  for (size_t i = 0; i < sides->size(); i += 2) {
    for (const int64_t side : {(*sides)[i], (*sides)[i + 1]}) {
      if (side < size || side % size != 0 || side / size > 16) {
        return Corrupt("{}: a grid of {} x {} pixels for tiles of {}", file.path(), (*sides)[i], (*sides)[i + 1], size);
      }
    }
    config_.grids.push_back({static_cast<int32_t>((*sides)[i]), static_cast<int32_t>((*sides)[i + 1])});
  }
  if (config_.max_rows() > (1 << 16)) {
    return Unsupported("{}: {} tokens a picture; 65,536 are possible", file.path(), config_.max_rows());
  }
  config_.transform.fit = Fit::kStretch;
  return Status();
}

void Clip::Encode(const EncodeArgs& args) {
  Workspace space(args.workspace);
  const ClipTower::Buffers b = tower_.LayOut(backend_, n_hidden_, n_hidden_, &space);
  const int64_t n = tower_.n_patches();
  const auto observe = [&](const char* name, int64_t cols, const float* data) {
    if (args.observer != nullptr) (*args.observer)(name, n, cols, data);
  };
  const float* rows = tower_.Run(backend_, b, args.pixels, args.observer);
  if (args.signals != nullptr && args.signals->Wants(SignalKind::kOutputs, 0)) {
    args.signals->Take({SignalKind::kOutputs, 0, 0, ShapeOf(SignalKind::kOutputs), rows});
  }
  float* const wide = b.blocks.wide;
  LinearRows(backend_, rows, n, tower_.n_embd(), mm0_, false, wide, b.blocks.scratch);
  observe("mm.0", n_hidden_, wide);
  backend_.Gelu({GeluKind::kErf, wide, wide, n * n_hidden_});
  LinearRows(backend_, wide, n, n_hidden_, mm2_, false, args.out, b.blocks.scratch);
  observe("mm.2", config_.n_embd, args.out);
}

}  // namespace

extern const EncoderInfo kClip;
const EncoderInfo kClip = {
    .name = "clip",
    .projector = "mlp",
    .models = "LLaVA-1.5, LLaVA-1.6 and other CLIP encoders with an MLP projector",
    .load = LoadEncoderAs<Clip>,
};

}  // namespace weir
