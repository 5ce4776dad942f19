// weir-plugin: encoder
// SPDX-License-Identifier: Apache-2.0
// Qwen-VL's encoder ("Qwen-VL: A Versatile Vision-Language Model for Understanding, Localization, Text Reading, and
// Beyond", 2308.12966, section 2.1): a vision transformer without class token, then one layer of cross-attention in
// which learned queries, 256 in published models, read the patches. Queries and keys carry positions of a grid, sines
// and cosines of line and column; values do not.
//
//   e = norm_kv(W_kv x),  out = attention(W_q (norm_q(query) + p), W_k (e + p_k), W_v e),  rows = W norm(W_o out)
//
// Both tables of positions are in the file, already sized for the picture's grid.
#include <algorithm>
#include <cmath>
#include <memory>
#include <string>

#include "base/workspace.h"
#include "model/weights.h"
#include "vision/encoder.h"
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
    if (kind != SignalKind::kOutputs) return {};
    return {1, 1, n_queries_, n_out_};
  }
  void Encode(const EncodeArgs& args) override;

 private:
  struct Buffers {
    float *x, *wide;  // [n_pos, n_embd]; patches' pixels
    VitBlocks::Buffers blocks;
    float *kv, *at, *k, *v;  // the picture's rows, [n_pos, n_out]; `at`: with their positions
    float *query, *q, *mix;  // [n_queries, n_out]
    void *scratch, *attention_scratch;
  };
  Buffers LayOut(Workspace* space) const;
  Status ReadMetadata(const GgufFile& file);
  void Picture(const EncodeArgs& args, const Buffers& b) const;
  void Resample(const EncodeArgs& args, const Buffers& b) const;
  int64_t patch_values() const { return 3 * patch_ * patch_; }

  VitShape shape_;
  int64_t patch_ = 0, n_pos_ = 0;
  int64_t n_queries_ = 0, n_out_ = 0, n_heads_ = 0;  // of the resampler
  std::unique_ptr<Matrix> patches_;                  // [n_embd, 3 * patch * patch]
  std::unique_ptr<Matrix> positions_;                // [n_pos, n_embd]
  LayerNormWeights pre_ln_;
  VitBlocks blocks_;
  std::unique_ptr<Matrix> query_, query_at_, patch_at_;  // [n_queries, n_out] twice, [n_pos, n_out]
  LayerNormWeights query_norm_, kv_norm_, post_norm_;
  LinearWeights kv_, wq_, wk_, wv_, wo_, projection_;
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
  WEIR_ASSIGN_OR_RETURN(n_out_, BoundedInt(file, v + "projection_dim", 1, 1 << 17));
  WEIR_ASSIGN_OR_RETURN(n_queries_, BoundedInt(file, resampler + "query_count", 1, 1 << 12));
  WEIR_ASSIGN_OR_RETURN(n_heads_, BoundedInt(file, resampler + "attention.head_count", 1, n_out_));
  WEIR_RETURN_IF_ERROR(CheckHeads(file, n_out_, n_heads_));
  config_.n_rows = static_cast<int32_t>(n_queries_);
  config_.n_embd = static_cast<int32_t>(n_out_);
  config_.words.text = {"<img>", "</img>"};
  config_.words.open = 0;
  config_.words.close = 1;
  config_.transform.size = static_cast<int32_t>(size);
  config_.transform.fit = Fit::kStretch;
  return ReadNormalisation(file, &config_.transform);
}

Status QwenvlResampler::Load(const GgufFile& file, Ledger& ledger) {
  WEIR_RETURN_IF_ERROR(ReadMetadata(file));
  const int64_t d = shape_.n_embd, e = n_out_;
  WeightLoader loader(file, backend_, ledger);
  WEIR_RETURN_IF_ERROR(loader.LoadKernel("v.patch_embd.weight", d, {3, patch_, patch_}, &patches_));
  WEIR_RETURN_IF_ERROR(loader.Load("v.position_embd.weight", n_pos_, d, &positions_));
  WEIR_RETURN_IF_ERROR(loader.Load("v.pre_ln", d, &pre_ln_));
  WEIR_RETURN_IF_ERROR(blocks_.Load(shape_, GeluKind::kErf, file, loader));
  WEIR_RETURN_IF_ERROR(loader.Load("resampler.query", n_queries_, e, &query_));
  WEIR_RETURN_IF_ERROR(loader.Load("resampler.pos_embed", n_queries_, e, &query_at_));
  WEIR_RETURN_IF_ERROR(loader.Load("resampler.pos_embed_k", n_pos_, e, &patch_at_));
  WEIR_RETURN_IF_ERROR(loader.Load("resampler.ln_q", e, &query_norm_));
  WEIR_RETURN_IF_ERROR(loader.Load("resampler.ln_kv", e, &kv_norm_));
  WEIR_RETURN_IF_ERROR(loader.Load("resampler.ln_post", e, &post_norm_));
  WEIR_RETURN_IF_ERROR(loader.Load("resampler.kv", e, d, &kv_));
  WEIR_RETURN_IF_ERROR(loader.Load("resampler.attn.q", e, e, &wq_));
  WEIR_RETURN_IF_ERROR(loader.Load("resampler.attn.k", e, e, &wk_));
  WEIR_RETURN_IF_ERROR(loader.Load("resampler.attn.v", e, e, &wv_));
  WEIR_RETURN_IF_ERROR(loader.Load("resampler.attn.out", e, e, &wo_));
  WEIR_RETURN_IF_ERROR(loader.Load("resampler.proj", e, e, &projection_));
  return loader.Finish();
}

QwenvlResampler::Buffers QwenvlResampler::LayOut(Workspace* space) const {
  const int64_t n = n_pos_, d = shape_.n_embd, e = n_out_, nq = n_queries_;
  Buffers b;
  b.x = space->Floats(n * d);
  // Of the picture only x is still needed when the queries begin.
  Workspace picture = *space, queries = *space;
  b.wide = picture.Floats(n * patch_values());
  b.blocks = blocks_.LayOut(backend_, n, patch_values(), &picture);
  for (float** rows : {&b.kv, &b.at, &b.k, &b.v}) *rows = queries.Floats(n * e);
  for (float** rows : {&b.query, &b.q, &b.mix}) *rows = queries.Floats(nq * e);
  b.scratch = queries.Bytes(backend_.MatMulScratchBytes(std::max(n, nq), std::max(d, e)));
  b.attention_scratch = queries.Bytes(backend_.FullAttentionScratchBytes(n_heads_, e / n_heads_, std::max(n, nq)));
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

void QwenvlResampler::Resample(const EncodeArgs& args, const Buffers& b) const {
  const int64_t n = n_pos_, e = n_out_, nq = n_queries_;
  const auto observe = [&](const char* name, int64_t rows, const float* data) {
    if (args.observer != nullptr) (*args.observer)(std::string("mm.") + name, rows, e, data);
  };
  const auto linear = [&](const float* in, int64_t rows, int64_t n_in, const LinearWeights& w, float* out) {
    LinearRows(backend_, in, rows, n_in, w, false, out, b.scratch);
  };
  const auto norm = [&](const LayerNormWeights& w, int64_t rows, float* data) {
    backend_.LayerNorm({data, w.w.get(), w.b.get(), data, rows, e, shape_.eps});
  };
  linear(b.x, n, shape_.n_embd, kv_, b.kv);
  norm(kv_norm_, n, b.kv);
  observe("ln_kv", n, b.kv);
  EmbedAll(backend_, *patch_at_, n, b.at);
  backend_.Add({b.kv, b.at, b.at, n * e});
  linear(b.at, n, e, wk_, b.k);
  linear(b.kv, n, e, wv_, b.v);
  EmbedAll(backend_, *query_, nq, b.query);
  norm(query_norm_, nq, b.query);
  observe("ln_q", nq, b.query);
  EmbedAll(backend_, *query_at_, nq, b.mix);
  backend_.Add({b.query, b.mix, b.query, nq * e});
  linear(b.query, nq, e, wq_, b.q);
  observe("q", nq, b.q);
  observe("k", n, b.k);
  observe("v", n, b.v);
  FullAttentionArgs attention;
  attention.n_heads = n_heads_;
  attention.head_dim = e / n_heads_;
  attention.scale = 1.0f / std::sqrt(static_cast<float>(attention.head_dim));
  attention.q = b.q;
  attention.k = b.k;
  attention.v = b.v;
  attention.q_stride = attention.kv_stride = attention.out_stride = e;
  attention.n_q = nq;
  attention.n_kv = n;
  attention.out = b.mix;
  attention.scratch = b.attention_scratch;
  backend_.FullAttention(attention);
  observe("mix", nq, b.mix);
  linear(b.mix, nq, e, wo_, b.query);
  observe("out", nq, b.query);
  norm(post_norm_, nq, b.query);
  observe("ln_post", nq, b.query);
  if (args.signals != nullptr && args.signals->Wants(SignalKind::kOutputs, 0)) {
    args.signals->Take({SignalKind::kOutputs, 0, 0, ShapeOf(SignalKind::kOutputs), b.query});
  }
  linear(b.query, nq, e, projection_, args.out);
  observe("proj", nq, args.out);
}

void QwenvlResampler::Encode(const EncodeArgs& args) {
  Workspace space(args.workspace);
  const Buffers b = LayOut(&space);
  Picture(args, b);
  Resample(args, b);
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
