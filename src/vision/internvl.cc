// weir-plugin: encoder
// SPDX-License-Identifier: Apache-2.0
// InternVL's encoder (1.5: 2404.16821, section 3; 2.5: 2412.05271; 3: 2504.10479): a vision transformer with a class
// token and scaled blocks over tiles of a picture and the whole of it, each square of `scale` x `scale` patches side by
// side (pixel shuffle), a norm and two layers. The large one (6B) has RMS norms, on queries and keys too.
#include <algorithm>
#include <string>
#include <vector>

#include "vision/encoder.h"
#include "vision/stretch.h"
#include "vision/vit.h"
#include "vision/vit_blocks.h"

namespace weir {
namespace {

constexpr float kProjectorEps = 1e-5f;  // files have no key for it

class InternVl final : public Encoder {
 public:
  explicit InternVl(Backend& backend) : Encoder(backend) {}

  Status Load(const GgufFile& file, Ledger& ledger);
  int64_t WorkspaceBytes() const override {
    Workspace space(nullptr);
    LayOut(&space);
    return space.used();
  }
  void Encode(const EncodeArgs& args) override;

 private:
  struct Buffers {
    float* x;            // [n_pos, n_embd]
    float *wide, *next;  // pixels of patches, the shuffled rows; [n_rows, projector's width]
    VitBlocks::Buffers blocks;
  };
  Buffers LayOut(Workspace* space) const {
    Buffers b;
    const int64_t pixels = vit_.patch_values();
    b.x = space->Floats(vit_.n_pos * vit_.n_embd);
    b.wide = space->Floats(std::max(vit_.n_pos * pixels, config_.n_rows * n_in()));
    b.next = space->Floats(config_.n_rows * n_hidden_);
    b.blocks = blocks_.LayOut(backend_, vit_.n_pos, std::max({pixels, n_in(), n_hidden_}), space);
    return b;
  }
  Status ReadMetadata(const GgufFile& file);
  int64_t n_in() const { return scale_ * scale_ * vit_.n_embd; }  // of the projector

  ClassVitShape vit_;
  int64_t scale_ = 0, n_hidden_ = 0;
  VitStyle style_;
  PatchEmbedding input_;
  VitBlocks blocks_;
  LayerNormWeights norm_;
  LinearWeights first_, second_;
};

Status InternVl::ReadMetadata(const GgufFile& file) {
  const std::string v = "clip.vision.";
  config_.projector = "internvl";
  WEIR_ASSIGN_OR_RETURN(config_.name, file.StringOr("general.name", ""));
  WEIR_ASSIGN_OR_RETURN(vit_, ReadClassVitShape(file));
  WEIR_ASSIGN_OR_RETURN(scale_, BoundedInt(file, v + "projector.scale_factor", 1, vit_.n_side));
  if (vit_.n_side % scale_ != 0) {
    return Corrupt("{}: a picture of {} x {} patches, {} of them a row along each side", file.path(), vit_.n_side,
                   vit_.n_side, scale_);
  }
  WEIR_ASSIGN_OR_RETURN(const bool silu, file.BoolOr("clip.use_silu", false));
  if (silu) return Unsupported("{}: an InternVL encoder with SiLU", file.path());
  style_.layer_scales = true;
  style_.rms_norms = !AnyBlockHas(file, vit_, "ln1.bias");
  style_.qk_norms = AnyBlockHas(file, vit_, "attn_q_norm.weight");
  config_.n_side = static_cast<int32_t>(vit_.n_side / scale_);
  config_.n_rows = config_.n_side * config_.n_side;
  WEIR_ASSIGN_OR_RETURN(const int64_t most, BoundedIntOr(file, v + "preproc_max_tiles", 1, kMostTiles, 12));
  WEIR_ASSIGN_OR_RETURN(const int64_t least, BoundedIntOr(file, v + "preproc_min_tiles", 1, most, 1));
  if (most > 1) {
    config_.min_tiles = static_cast<int32_t>(least);
    config_.max_tiles = static_cast<int32_t>(most);
  }
  if (config_.max_rows() > (1 << 16)) {
    return Unsupported("{}: {} tokens a picture; 65,536 are possible", file.path(), config_.max_rows());
  }
  config_.words.text = {"<img>", "</img>"};
  config_.words.open = 0;
  config_.words.close = 1;
  config_.transform.size = static_cast<int32_t>(vit_.size);
  config_.transform.fit = Fit::kStretch;
  return ReadNormalisation(file, &config_.transform);
}

Status InternVl::Load(const GgufFile& file, Ledger& ledger) {
  WEIR_RETURN_IF_ERROR(ReadMetadata(file));
  WeightLoader loader(file, backend_, ledger);
  WEIR_RETURN_IF_ERROR(input_.Load(loader, vit_));
  WEIR_RETURN_IF_ERROR(blocks_.Load(vit_, style_, file, loader));
  WEIR_ASSIGN_OR_RETURN(n_hidden_, ProjectedWidth(file, "mm.model.mlp.1.weight"));
  WEIR_ASSIGN_OR_RETURN(config_.n_embd, ProjectedWidth(file, "mm.model.mlp.3.weight"));
  WEIR_RETURN_IF_ERROR(loader.Load("mm.model.mlp.0", n_in(), &norm_));
  WEIR_RETURN_IF_ERROR(loader.Load("mm.model.mlp.1", n_hidden_, n_in(), &first_));
  WEIR_RETURN_IF_ERROR(loader.Load("mm.model.mlp.3", config_.n_embd, n_hidden_, &second_));
  return loader.Finish();
}

void InternVl::Encode(const EncodeArgs& args) {
  Workspace space(args.workspace);
  const Buffers b = LayOut(&space);
  const int64_t n = vit_.n_pos, d = vit_.n_embd, n_rows = config_.n_rows;
  const auto observe = [&](const char* name, int64_t rows, int64_t cols, const float* data) {
    if (args.observer != nullptr) (*args.observer)(name, rows, cols, data);
  };
  input_.Embed(backend_, vit_, args.pixels, b.wide, b.blocks.scratch, b.x);
  observe("v.embd", n, d, b.x);
  blocks_.Run(backend_, b.blocks, n, nullptr, args.observer, b.x);
  SquaresArgs shuffle;
  shuffle.x = b.x + d;  // without the class token's
  shuffle.height = shuffle.width = vit_.n_side;
  shuffle.dim = d;
  shuffle.side = scale_;
  shuffle.y = b.wide;
  backend_.Squares(shuffle);
  observe("mm.shuffle", n_rows, n_in(), b.wide);
  backend_.LayerNorm({b.wide, norm_.w.get(), norm_.b.get(), b.wide, n_rows, n_in(), kProjectorEps});
  observe("mm.0", n_rows, n_in(), b.wide);
  LinearRows(backend_, b.wide, n_rows, n_in(), first_, false, b.next, b.blocks.scratch);
  observe("mm.1", n_rows, n_hidden_, b.next);
  backend_.Gelu({GeluKind::kErf, b.next, b.next, n_rows * n_hidden_});
  LinearRows(backend_, b.next, n_rows, n_hidden_, second_, false, args.out, b.blocks.scratch);
  observe("mm.3", n_rows, config_.n_embd, args.out);
}

}  // namespace

extern const EncoderInfo kInternvl;
const EncoderInfo kInternvl = {
    .name = "internvl",
    .projector = "internvl",
    .models = "InternVL 2.5, 3, 3.5 (tiles, pixel shuffle)",
    .load = LoadEncoderAs<InternVl>,
};

}  // namespace weir
