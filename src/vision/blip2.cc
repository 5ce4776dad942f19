// weir-plugin: encoder
// SPDX-License-Identifier: Apache-2.0
// BLIP-2's encoder ("BLIP-2: Bootstrapping Language-Image Pre-training with Frozen Image Encoders and Large Language
// Models", 2301.12597, section 3.1): EVA's ViT-g, then the Q-Former, whose learned queries attend to each other and, in
// some of its blocks, to the picture; their rows, projected, are what the language model reads.
//
//   picture  x' = x + attn(norm1(x));  x'' = x' + ffn(norm2(x'));  norm after the last block; the class token stays
//   queries  a = norm(x + self(x));  c = norm(a + cross(a, picture)), in blocks that have it;  x' = norm(c + ffn(c))
//
// Tensor names of the Q-Former are those that GGUF files of other Q-Formers have, with `v.` in front; its sizes are the
// keys clip.vision.qformer.*. A block has cross-attention when its tensors are in the file.
#include <algorithm>
#include <cmath>
#include <vector>

#include "base/workspace.h"
#include "model/weights.h"
#include "vision/encoder.h"
#include "vision/vit.h"

namespace weir {
namespace {

// Rows of the picture whose attention weights are computed together when a sink wants them.
constexpr int64_t kTileRows = 32;

struct Block {
  LayerNormWeights ln1, ln2;
  LinearWeights qkv, out, up, down;
};
struct Attention {
  LinearWeights q, k, v, out;
  LayerNormWeights norm;
};
struct QueryBlock {
  Attention self, cross;
  int32_t cross_layer = -1;  // number among the blocks with cross-attention; -1: none
  LinearWeights up, down;
  LayerNormWeights norm;
};

class Blip2 final : public Encoder {
 public:
  explicit Blip2(Backend& backend) : Encoder(backend) {}

  Status Load(const GgufFile& file, Ledger& ledger);
  int64_t WorkspaceBytes() const override {
    Workspace space(nullptr);
    LayOut(&space);
    return space.used();
  }
  SignalShape ShapeOf(SignalKind kind) const override {
    switch (kind) {
      case SignalKind::kImageMass:
        return {1, 1, 1, vit_.n_pos};
      case SignalKind::kQuerySelf:
        return {static_cast<int32_t>(q_layers_), static_cast<int32_t>(q_heads_), n_queries_, n_queries_};
      case SignalKind::kQueryCross:
        return {n_cross_, static_cast<int32_t>(q_heads_), n_queries_, vit_.n_pos};
      case SignalKind::kOutputs:
        return {1, 1, n_queries_, q_embd_};
    }
    return {};
  }
  void Encode(const EncodeArgs& args) override;

 private:
  struct Buffers {
    float *x, *norm, *qkv, *mix, *wide;     // the picture's, [n_pos, ...]
    float *h, *q, *k, *v, *q_mix, *q_wide;  // the queries'; k and v also of the picture's rows
    float *tile, *mass;                     // signals
    void *scratch, *attention_scratch;
  };
  Buffers LayOut(Workspace* space) const;
  Status ReadMetadata(const GgufFile& file);
  Status LoadAttention(WeightLoader& loader, const std::string& name, int64_t n_kv_in, Attention* out);

  // One pass, with the state that its steps share.
  struct Pass {
    Blip2& m;
    const EncodeArgs& args;
    const Buffers b;
    void Observe(const std::string& name, int64_t rows, int64_t cols, const float* data) const {
      if (args.observer != nullptr) (*args.observer)(name, rows, cols, data);
    }
    std::string Name(const char* prefix, int64_t l) const {
      return args.observer == nullptr ? "" : prefix + std::to_string(l) + ".";
    }
    void Product(const float* in, int64_t n_rows, int64_t n_in, const LinearWeights& w, float* out,
                 bool add = false) const;
    void Norm(const float* in, const LayerNormWeights& w, float* out, int64_t n_rows, int64_t dim, float eps) const;
    void Picture() const;
    void Mass(const FullAttentionArgs& attention) const;
    bool Wanted(SignalKind kind, int32_t layer) const {
      return args.signals != nullptr && args.signals->Wants(kind, layer);
    }
    void Tell(SignalKind kind, int32_t layer, int32_t head, const float* values) const {
      args.signals->Take({kind, layer, head, m.ShapeOf(kind), values});
    }
    void Queries() const;
    void QueryAttention(const std::string& name, const Attention& w, const float* kv, int64_t n_kv, int64_t n_kv_in,
                        SignalKind kind, int32_t layer) const;
  };

  ClassVitShape vit_;
  int64_t n_queries_ = 0, q_layers_ = 0, q_embd_ = 0, q_ff_ = 0, q_heads_ = 0;
  int32_t n_cross_ = 0;
  float q_eps_ = 0;
  PatchEmbedding input_;
  std::unique_ptr<Matrix> queries_;  // [n_queries, q_embd]
  LayerNormWeights post_ln_, query_norm_;
  std::vector<Block> blocks_;
  std::vector<QueryBlock> query_blocks_;
  LinearWeights projection_;
};

Status Blip2::ReadMetadata(const GgufFile& file) {
  const std::string q = "clip.vision.qformer.";
  config_.projector = "qformer";
  WEIR_ASSIGN_OR_RETURN(config_.name, file.StringOr("general.name", ""));
  WEIR_ASSIGN_OR_RETURN(vit_, ReadClassVitShape(file));
  WEIR_ASSIGN_OR_RETURN(n_queries_, BoundedInt(file, q + "query_count", 1, 1 << 10));
  WEIR_ASSIGN_OR_RETURN(q_embd_, BoundedInt(file, q + "embedding_length", 1, 1 << 16));
  WEIR_ASSIGN_OR_RETURN(q_ff_, BoundedInt(file, q + "feed_forward_length", 1, 1 << 18));
  WEIR_ASSIGN_OR_RETURN(q_layers_, BoundedInt(file, q + "block_count", 1, 1024));
  WEIR_ASSIGN_OR_RETURN(q_heads_, BoundedInt(file, q + "attention.head_count", 1, q_embd_));
  WEIR_RETURN_IF_ERROR(CheckHeads(file, q_embd_, q_heads_));
  WEIR_ASSIGN_OR_RETURN(q_eps_, ReadNormEps(file, q + "attention.layer_norm_epsilon"));
  config_.n_rows = static_cast<int32_t>(n_queries_);
  config_.transform.size = static_cast<int32_t>(vit_.size);
  config_.transform.fit = Fit::kStretch;
  return ReadNormalisation(file, &config_.transform);
}

Status Blip2::LoadAttention(WeightLoader& loader, const std::string& name, int64_t n_kv_in, Attention* out) {
  WEIR_RETURN_IF_ERROR(loader.Load(name + "_q", q_embd_, q_embd_, &out->q));
  WEIR_RETURN_IF_ERROR(loader.Load(name + "_k", q_embd_, n_kv_in, &out->k));
  WEIR_RETURN_IF_ERROR(loader.Load(name + "_v", q_embd_, n_kv_in, &out->v));
  WEIR_RETURN_IF_ERROR(loader.Load(name + "_out", q_embd_, q_embd_, &out->out));
  return loader.Load(name + "_norm", q_embd_, &out->norm);
}

Status Blip2::Load(const GgufFile& file, Ledger& ledger) {
  WEIR_RETURN_IF_ERROR(ReadMetadata(file));
  WeightLoader loader(file, backend_, ledger);
  const int64_t d = vit_.n_embd;
  WEIR_RETURN_IF_ERROR(input_.Load(loader, vit_));
  blocks_.resize(static_cast<size_t>(vit_.n_layers));
  for (int64_t l = 0; l < vit_.n_layers; ++l) {
    Block& block = blocks_[l];
    const std::string name = "v.blk." + std::to_string(l) + ".";
    WEIR_RETURN_IF_ERROR(loader.Load(name + "ln1", d, &block.ln1));
    WEIR_RETURN_IF_ERROR(loader.Load(name + "attn_qkv", 3 * d, d, &block.qkv));
    WEIR_RETURN_IF_ERROR(loader.Load(name + "attn_out", d, d, &block.out));
    WEIR_RETURN_IF_ERROR(loader.Load(name + "ln2", d, &block.ln2));
    WEIR_RETURN_IF_ERROR(loader.Load(name + "ffn_up", vit_.n_ff, d, &block.up));
    WEIR_RETURN_IF_ERROR(loader.Load(name + "ffn_down", d, vit_.n_ff, &block.down));
  }
  WEIR_RETURN_IF_ERROR(loader.Load("v.post_ln", d, &post_ln_));
  WEIR_RETURN_IF_ERROR(loader.Load("v.proj_query", n_queries_, q_embd_, &queries_));
  WEIR_RETURN_IF_ERROR(loader.Load("v.proj_norm", q_embd_, &query_norm_));
  query_blocks_.resize(static_cast<size_t>(q_layers_));
  for (int64_t l = 0; l < q_layers_; ++l) {
    QueryBlock& block = query_blocks_[l];
    const std::string name = "v.proj_blk." + std::to_string(l) + ".";
    WEIR_RETURN_IF_ERROR(LoadAttention(loader, name + "self_attn", q_embd_, &block.self));
    if (loader.Has(name + "cross_attn_q.weight")) {
      block.cross_layer = n_cross_++;
      WEIR_RETURN_IF_ERROR(LoadAttention(loader, name + "cross_attn", d, &block.cross));
    }
    WEIR_RETURN_IF_ERROR(loader.Load(name + "ffn_up", q_ff_, q_embd_, &block.up));
    WEIR_RETURN_IF_ERROR(loader.Load(name + "ffn_down", q_embd_, q_ff_, &block.down));
    WEIR_RETURN_IF_ERROR(loader.Load(name + "ffn_norm", q_embd_, &block.norm));
  }
  if (n_cross_ == 0) return Corrupt("{}: no block of the Q-Former sees the picture", file.path());
  const GgufTensor* projection = file.Tensor("v.proj_linear.weight");
  const int64_t n_out = projection == nullptr ? 1 : projection->shape.front();
  if (n_out > (1 << 17)) {
    return Corrupt("{}: a projection to {} columns", file.path(), n_out);
  }
  config_.n_embd = static_cast<int32_t>(n_out);
  WEIR_RETURN_IF_ERROR(loader.Load("v.proj_linear", n_out, q_embd_, &projection_));
  return loader.Finish();
}

Blip2::Buffers Blip2::LayOut(Workspace* space) const {
  const int64_t n = vit_.n_pos, d = vit_.n_embd, nq = n_queries_, dq = q_embd_, most = std::max(n, nq);
  Buffers b;
  b.norm = space->Floats(n * d);
  b.tile = space->Floats(std::max(kTileRows, nq) * most);
  b.mass = space->Floats(n);
  const int64_t widest = std::max({d, vit_.n_ff, vit_.patch_values(), dq, q_ff_});
  b.scratch = space->Bytes(backend_.MatMulScratchBytes(most, widest));
  b.attention_scratch = space->Bytes(std::max(backend_.FullAttentionScratchBytes(vit_.n_heads, vit_.head_dim(), n),
                                              backend_.FullAttentionScratchBytes(q_heads_, dq / q_heads_, most)));
  // Only the picture's last norm is still needed when the queries begin.
  Workspace picture = *space, queries = *space;
  b.x = picture.Floats(n * d);
  b.qkv = picture.Floats(3 * n * d);
  b.mix = picture.Floats(n * d);
  b.wide = picture.Floats(n * std::max(vit_.n_ff, vit_.patch_values()));
  for (float** rows : {&b.h, &b.q, &b.q_mix}) *rows = queries.Floats(nq * dq);
  b.k = queries.Floats(most * dq);
  b.v = queries.Floats(most * dq);
  b.q_wide = queries.Floats(nq * q_ff_);
  space->Bytes(std::max(picture.used(), queries.used()) - space->used());
  return b;
}

void Blip2::Pass::Product(const float* in, int64_t n_rows, int64_t n_in, const LinearWeights& w, float* out,
                          bool add) const {
  const MatMulOut to = {w.w.get(), out, w.w->n_out(), w.b.get(), add};
  MatMulArgs mm;
  mm.x = in;
  mm.x_stride = mm.n_in = n_in;
  mm.n_rows = n_rows;
  mm.outs = {&to, 1};
  mm.scratch = b.scratch;
  m.backend_.MatMul(mm);
}

void Blip2::Pass::Norm(const float* in, const LayerNormWeights& w, float* out, int64_t n_rows, int64_t dim,
                       float eps) const {
  m.backend_.LayerNorm({in, w.w.get(), w.b.get(), out, n_rows, dim, eps});
}

// Attention that each image token receives, summed over rows and heads, a tile of rows at a time.
void Blip2::Pass::Mass(const FullAttentionArgs& attention) const {
  const int64_t n = attention.n_kv;
  for (int64_t head = 0; head < attention.n_heads; ++head) {
    for (int64_t row = 0; row < attention.n_q; row += kTileRows) {
      const int64_t n_rows = std::min(kTileRows, attention.n_q - row);
      m.backend_.FullAttentionWeights({attention, head, row, n_rows, b.tile});
      m.backend_.SumRows({b.tile, b.mass, n_rows, n, head > 0 || row > 0});
    }
  }
  Tell(SignalKind::kImageMass, 0, 0, b.mass);
}

void Blip2::Pass::Picture() const {
  const int64_t n = m.vit_.n_pos, d = m.vit_.n_embd;
  m.input_.Embed(m.backend_, m.vit_, args.pixels, b.wide, b.scratch, b.x);
  Observe("v.embd", n, d, b.x);
  FullAttentionArgs attention;
  attention.n_heads = m.vit_.n_heads;
  attention.head_dim = m.vit_.head_dim();
  attention.scale = 1.0f / std::sqrt(static_cast<float>(attention.head_dim));
  attention.q = b.qkv;
  attention.k = b.qkv + d;
  attention.v = b.qkv + 2 * d;
  attention.q_stride = attention.kv_stride = 3 * d;
  attention.n_q = attention.n_kv = n;
  attention.out = b.mix;
  attention.out_stride = d;
  attention.scratch = b.attention_scratch;
  for (int64_t l = 0; l < m.vit_.n_layers; ++l) {
    const Block& block = m.blocks_[l];
    const std::string name = Name("v.blk.", l);
    Norm(b.x, block.ln1, b.norm, n, d, m.vit_.eps);
    Observe(name + "ln1", n, d, b.norm);
    Product(b.norm, n, d, block.qkv, b.qkv);
    Observe(name + "qkv", n, 3 * d, b.qkv);
    m.backend_.FullAttention(attention);
    if (l + 1 == m.vit_.n_layers && Wanted(SignalKind::kImageMass, 0)) Mass(attention);
    Observe(name + "mix", n, d, b.mix);
    Product(b.mix, n, d, block.out, b.x, true);
    Observe(name + "mid", n, d, b.x);
    Norm(b.x, block.ln2, b.norm, n, d, m.vit_.eps);
    Observe(name + "ln2", n, d, b.norm);
    Product(b.norm, n, d, block.up, b.wide);
    m.backend_.Gelu({GeluKind::kErf, b.wide, b.wide, n * m.vit_.n_ff});
    Product(b.wide, n, m.vit_.n_ff, block.down, b.x, true);
    Observe(name + "out", n, d, b.x);
  }
  Norm(b.x, m.post_ln_, b.norm, n, d, m.vit_.eps);
  Observe("v.post_ln", n, d, b.norm);
}

// h = norm(h + attention of h to the n_kv rows of `kv`).
void Blip2::Pass::QueryAttention(const std::string& name, const Attention& w, const float* kv, int64_t n_kv,
                                 int64_t n_kv_in, SignalKind kind, int32_t layer) const {
  const int64_t nq = m.n_queries_, dq = m.q_embd_;
  Product(b.h, nq, dq, w.q, b.q);
  Product(kv, n_kv, n_kv_in, w.k, b.k);
  Product(kv, n_kv, n_kv_in, w.v, b.v);
  Observe(name + "q", nq, dq, b.q);
  Observe(name + "k", n_kv, dq, b.k);
  Observe(name + "v", n_kv, dq, b.v);
  FullAttentionArgs attention;
  attention.n_heads = m.q_heads_;
  attention.head_dim = dq / m.q_heads_;
  attention.scale = 1.0f / std::sqrt(static_cast<float>(attention.head_dim));
  attention.q = b.q;
  attention.k = b.k;
  attention.v = b.v;
  attention.q_stride = attention.kv_stride = attention.out_stride = dq;
  attention.n_q = nq;
  attention.n_kv = n_kv;
  attention.out = b.q_mix;
  attention.scratch = b.attention_scratch;
  m.backend_.FullAttention(attention);
  Observe(name + "mix", nq, dq, b.q_mix);
  for (int32_t head = 0; head < m.q_heads_ && Wanted(kind, layer); ++head) {
    m.backend_.FullAttentionWeights({attention, head, 0, nq, b.tile});
    Tell(kind, layer, head, b.tile);
  }
  Product(b.q_mix, nq, dq, w.out, b.h, true);
  Norm(b.h, w.norm, b.h, nq, dq, m.q_eps_);
  Observe(name + "out", nq, dq, b.h);
}

void Blip2::Pass::Queries() const {
  const int64_t nq = m.n_queries_, dq = m.q_embd_;
  EmbedAll(m.backend_, *m.queries_, nq, b.h);
  Norm(b.h, m.query_norm_, b.h, nq, dq, m.q_eps_);
  Observe("v.proj_norm", nq, dq, b.h);
  for (int64_t l = 0; l < m.q_layers_; ++l) {
    const QueryBlock& block = m.query_blocks_[l];
    const std::string name = Name("v.proj_blk.", l);
    QueryAttention(name + "self_", block.self, b.h, nq, dq, SignalKind::kQuerySelf, static_cast<int32_t>(l));
    if (block.cross_layer >= 0) {
      QueryAttention(name + "cross_", block.cross, b.norm, m.vit_.n_pos, m.vit_.n_embd, SignalKind::kQueryCross,
                     block.cross_layer);
    }
    Product(b.h, nq, dq, block.up, b.q_wide);
    m.backend_.Gelu({GeluKind::kErf, b.q_wide, b.q_wide, nq * m.q_ff_});
    Product(b.q_wide, nq, m.q_ff_, block.down, b.h, true);
    Norm(b.h, block.norm, b.h, nq, dq, m.q_eps_);
    Observe(name + "out", nq, dq, b.h);
  }
  if (Wanted(SignalKind::kOutputs, 0)) Tell(SignalKind::kOutputs, 0, 0, b.h);
  Product(b.h, nq, dq, m.projection_, args.out);
  Observe("v.proj_linear", nq, m.config_.n_embd, args.out);
}

void Blip2::Encode(const EncodeArgs& args) {
  Workspace space(args.workspace);
  const Pass pass = {*this, args, LayOut(&space)};
  pass.Picture();
  pass.Queries();
}

}  // namespace

extern const EncoderInfo kBlip2;
const EncoderInfo kBlip2 = {
    .name = "blip2",
    .projector = "qformer",
    .models = "BLIP-2 (EVA ViT-g and Q-Former)",
    .load = LoadEncoderAs<Blip2>,
};

}  // namespace weir
