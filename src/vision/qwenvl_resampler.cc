// weir-plugin: encoder
// SPDX-License-Identifier: Apache-2.0
// Qwen-VL's encoder ("Qwen-VL: A Versatile Vision-Language Model for Understanding, Localization, Text Reading, and
// Beyond", 2308.12966, section 2.1): a vision transformer without class token, then one layer of cross-attention in
// which learned queries, 256 in published models, read the patches (vision/resampler.h). The tables of positions of
// both are in the file, already sized for the picture's grid.
#include <algorithm>
#include <memory>
#include <string>

#include "base/workspace.h"
#include "model/weights.h"
#include "vision/encoder.h"
#include "vision/resampler.h"
#include "vision/vit.h"
#include "vision/vit_blocks.h"

namespace weir {
namespace {

class QwenvlResampler final : public Encoder {
 public:
  explicit QwenvlResampler(Backend& backend) : Encoder(backend) {}

  Status Load(const GgufFile& file, Ledger& ledger);
  int64_t WorkspaceBytes() const override {
    Workspace space(nullptr);
    LayOut(&space);
    return space.used();
  }
  SignalShape ShapeOf(SignalKind kind) const override {
    return kind == SignalKind::kOutputs ? resampler_.outputs() : SignalShape();
  }
  void Encode(const EncodeArgs& args) override;

 private:
  struct Buffers {
    float *x, *wide;  // [n_pos, n_embd]; patches' pixels
    VitBlocks::Buffers blocks;
    Resampler::Buffers resampler;
  };
  Buffers LayOut(Workspace* space) const;
  Status ReadMetadata(const GgufFile& file);
  void Picture(const EncodeArgs& args, const Buffers& b) const;
  int64_t patch_values() const { return 3 * patch_ * patch_; }

  VitShape shape_;
  int64_t patch_ = 0, n_pos_ = 0;
  ResamplerShape queries_;
  std::unique_ptr<Matrix> patches_;    // [n_embd, 3 * patch * patch]
  std::unique_ptr<Matrix> positions_;  // [n_pos, n_embd]
  LayerNormWeights pre_ln_;
  VitBlocks blocks_;
  std::unique_ptr<Matrix> query_at_, patch_at_;  // [n_queries, n_out], [n_pos, n_out]
  Resampler resampler_;
};

Status QwenvlResampler::ReadMetadata(const GgufFile& file) {
  const std::string v = "clip.vision.", resampler = v + "resampler.";
  config_.projector = "qwenvl_resampler";
  WEIR_ASSIGN_OR_RETURN(config_.name, file.StringOr("general.name", ""));
  WEIR_ASSIGN_OR_RETURN(const int64_t size, BoundedInt(file, v + "image_size", 1, kMaxImageSize));
  WEIR_ASSIGN_OR_RETURN(patch_, BoundedInt(file, v + "patch_size", 1, size));
  WEIR_RETURN_IF_ERROR(ReadVitShape(file, &shape_));
  n_pos_ = (size / patch_) * (size / patch_);
  if (n_pos_ > (1 << 16)) {
    return Corrupt("{}: {} patches a picture", file.path(), n_pos_);
  }
  ResamplerShape& q = queries_;
  q.n_in = shape_.n_embd;
  q.eps = shape_.eps;
  WEIR_ASSIGN_OR_RETURN(q.n_out, BoundedInt(file, v + "projection_dim", 1, 1 << 17));
  WEIR_ASSIGN_OR_RETURN(q.n_queries, BoundedInt(file, resampler + "query_count", 1, 1 << 12));
  WEIR_ASSIGN_OR_RETURN(q.n_heads, BoundedInt(file, resampler + "attention.head_count", 1, q.n_out));
  WEIR_RETURN_IF_ERROR(CheckHeads(file, q.n_out, q.n_heads));
  config_.n_rows = static_cast<int32_t>(q.n_queries);
  config_.n_embd = static_cast<int32_t>(q.n_out);
  config_.words.text = {"<img>", "</img>"};
  config_.words.open = 0;
  config_.words.close = 1;
  config_.transform.size = static_cast<int32_t>(size);
  config_.transform.fit = Fit::kStretch;
  return ReadNormalisation(file, &config_.transform);
}

Status QwenvlResampler::Load(const GgufFile& file, Ledger& ledger) {
  WEIR_RETURN_IF_ERROR(ReadMetadata(file));
  const int64_t d = shape_.n_embd, e = queries_.n_out;
  WeightLoader loader(file, backend_, ledger);
  WEIR_RETURN_IF_ERROR(loader.LoadKernel("v.patch_embd.weight", d, {3, patch_, patch_}, &patches_));
  WEIR_RETURN_IF_ERROR(loader.Load("v.position_embd.weight", n_pos_, d, &positions_));
  WEIR_RETURN_IF_ERROR(loader.Load("v.pre_ln", d, &pre_ln_));
  WEIR_RETURN_IF_ERROR(blocks_.Load(shape_, GeluKind::kErf, file, loader));
  WEIR_RETURN_IF_ERROR(loader.Load("resampler.pos_embed", queries_.n_queries, e, &query_at_));
  WEIR_RETURN_IF_ERROR(loader.Load("resampler.pos_embed_k", n_pos_, e, &patch_at_));
  WEIR_RETURN_IF_ERROR(resampler_.Load(queries_, loader));
  return loader.Finish();
}

QwenvlResampler::Buffers QwenvlResampler::LayOut(Workspace* space) const {
  Buffers b;
  b.x = space->Floats(n_pos_ * shape_.n_embd);
  // Of the picture only x is still needed when the queries begin.
  Workspace picture = *space, queries = *space;
  b.wide = picture.Floats(n_pos_ * patch_values());
  b.blocks = blocks_.LayOut(backend_, n_pos_, patch_values(), &picture);
  b.resampler = resampler_.LayOut(backend_, n_pos_, &queries);
  space->Bytes(std::max(picture.used(), queries.used()) - space->used());
  return b;
}

void QwenvlResampler::Picture(const EncodeArgs& args, const Buffers& b) const {
  const int64_t n = n_pos_, d = shape_.n_embd;
  // Positions first; the patches are added to them.
  EmbedAll(backend_, *positions_, n, b.x);
  GatherPatches(backend_, args.pixels, config_.transform.size, patch_, b.wide);
  const MatMulOut to = {patches_.get(), b.x, d, nullptr, true};
  MatMulArgs mm;
  mm.x = b.wide;
  mm.x_stride = mm.n_in = patch_values();
  mm.n_rows = n;
  mm.outs = {&to, 1};
  mm.scratch = b.blocks.scratch;
  backend_.MatMul(mm);
  if (args.observer != nullptr) (*args.observer)("v.embd", n, d, b.x);
  backend_.LayerNorm({b.x, pre_ln_.w.get(), pre_ln_.b.get(), b.x, n, d, shape_.eps});
  if (args.observer != nullptr) (*args.observer)("v.pre_ln", n, d, b.x);
  blocks_.Run(backend_, b.blocks, n, nullptr, args.observer, b.x);
}

void QwenvlResampler::Encode(const EncodeArgs& args) {
  Workspace space(args.workspace);
  const Buffers b = LayOut(&space);
  Picture(args, b);
  EmbedAll(backend_, *patch_at_, n_pos_, b.resampler.at);
  resampler_.Run(backend_, b.x, n_pos_, b.resampler, query_at_.get(), args);
}

}  // namespace

extern const EncoderInfo kQwenvlResampler;
const EncoderInfo kQwenvlResampler = {
    .name = "qwenvl_resampler",
    .projector = "qwenvl_resampler",
    .models = "Qwen-VL (ViT-bigG, cross-attention of 256 queries)",
    .load = LoadEncoderAs<QwenvlResampler>,
};

}  // namespace weir
