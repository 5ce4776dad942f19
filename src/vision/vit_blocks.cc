// SPDX-License-Identifier: Apache-2.0
#include "vision/vit_blocks.h"

#include <algorithm>
#include <cmath>

namespace weir {

Status ReadVitShape(const GgufFile& file, VitShape* shape) {
  const std::string v = "clip.vision.";
  WEIR_ASSIGN_OR_RETURN(shape->n_embd, BoundedInt(file, v + "embedding_length", 1, 1 << 16));
  WEIR_ASSIGN_OR_RETURN(shape->n_ff, BoundedInt(file, v + "feed_forward_length", 1, 1 << 18));
  WEIR_ASSIGN_OR_RETURN(shape->n_layers, BoundedInt(file, v + "block_count", 1, 1024));
  WEIR_ASSIGN_OR_RETURN(shape->n_heads, BoundedInt(file, v + "attention.head_count", 1, shape->n_embd));
  WEIR_RETURN_IF_ERROR(CheckHeads(file, shape->n_embd, shape->n_heads));
  WEIR_ASSIGN_OR_RETURN(shape->eps, ReadNormEps(file, v + "attention.layer_norm_epsilon"));
  return Status();
}

Status CheckHeads(const GgufFile& file, int64_t n_cols, int64_t n_heads) {
  if (n_cols % n_heads == 0 && n_cols / n_heads <= kMaxHeadDim) return Status();
  return Corrupt("{}: {} columns cannot be shared by {} heads", file.path(), n_cols, n_heads);
}

Result<float> ReadNormEps(const GgufFile& file, const std::string& key) {
  WEIR_ASSIGN_OR_RETURN(const double eps, file.Float(key));
  if (!std::isfinite(eps) || eps < 0) return Corrupt("{}: {} is {:g}", file.path(), key, eps);
  return static_cast<float>(eps);
}

void LinearRows(Backend& backend, const float* in, int64_t n_rows, int64_t n_in, const LinearWeights& w, bool add,
                float* out, void* scratch) {
  const MatMulOut to = {w.w.get(), out, w.w->n_out(), w.b.get(), add};
  MatMulArgs mm;
  mm.x = in;
  mm.x_stride = mm.n_in = n_in;
  mm.n_rows = n_rows;
  mm.outs = {&to, 1};
  mm.scratch = scratch;
  backend.MatMul(mm);
}

Status VitBlocks::Load(const VitShape& shape, GeluKind act, const GgufFile& file, WeightLoader& loader) {
  shape_ = shape;
  act_ = act;
  const int64_t d = shape.n_embd, n_ff = shape.n_ff;
  blocks_.resize(static_cast<size_t>(shape.n_layers));
  for (int64_t l = 0; l < shape.n_layers; ++l) {
    Block& block = blocks_[l];
    const std::string name = "v.blk." + std::to_string(l) + ".";
    WEIR_RETURN_IF_ERROR(loader.Load(name + "ln1", d, &block.ln1));
    WEIR_RETURN_IF_ERROR(loader.Load(name + "ln2", d, &block.ln2));
    WEIR_RETURN_IF_ERROR(loader.Load(name + "attn_q", d, d, &block.q));
    WEIR_RETURN_IF_ERROR(loader.Load(name + "attn_k", d, d, &block.k));
    WEIR_RETURN_IF_ERROR(loader.Load(name + "attn_v", d, d, &block.v));
    WEIR_RETURN_IF_ERROR(loader.Load(name + "attn_out", d, d, &block.out));
    // Files from the first converters have the two layers' names swapped; the shapes reveal it.
    const GgufTensor* up = file.Tensor(name + "ffn_up.weight");
    const bool swapped = n_ff != d && up != nullptr && up->shape == std::vector<int64_t>{d, n_ff};
    WEIR_RETURN_IF_ERROR(loader.Load(name + (swapped ? "ffn_down" : "ffn_up"), n_ff, d, &block.up));
    WEIR_RETURN_IF_ERROR(loader.Load(name + (swapped ? "ffn_up" : "ffn_down"), d, n_ff, &block.down));
  }
  return Status();
}

VitBlocks::Buffers VitBlocks::LayOut(const Backend& backend, int64_t n, int64_t widest_in, Workspace* space,
                                     int64_t n_wide) const {
  Buffers b;
  for (float** rows : {&b.norm, &b.q, &b.k, &b.v, &b.mix}) *rows = space->Floats(n * shape_.n_embd);
  b.wide = space->Floats(n * std::max(shape_.n_ff, n_wide));
  b.scratch = space->Bytes(backend.MatMulScratchBytes(n, std::max({shape_.n_embd, shape_.n_ff, widest_in})));
  b.attention_scratch = space->Bytes(backend.FullAttentionScratchBytes(shape_.n_heads, shape_.head_dim(), n));
  return b;
}

void VitBlocks::Run(Backend& backend, const Buffers& b, int64_t n, const VitRotation* rotation,
                    const VisionObserver* observer, float* x) const {
  const int64_t d = shape_.n_embd, n_ff = shape_.n_ff;
  FullAttentionArgs attention;
  attention.n_heads = shape_.n_heads;
  attention.head_dim = shape_.head_dim();
  attention.scale = 1.0f / std::sqrt(static_cast<float>(attention.head_dim));
  attention.q = b.q;
  attention.k = b.k;
  attention.v = b.v;
  attention.q_stride = attention.kv_stride = attention.out_stride = d;
  attention.n_q = attention.n_kv = n;
  attention.out = b.mix;
  attention.scratch = b.attention_scratch;
  const auto layer_norm = [&](const LayerNormWeights& w) {
    backend.LayerNorm({x, w.w.get(), w.b.get(), b.norm, n, d, shape_.eps});
  };
  for (size_t l = 0; l < blocks_.size(); ++l) {
    const Block& block = blocks_[l];
    const auto observe = [&](const char* name, const float* data) {
      if (observer != nullptr) (*observer)("v.blk." + std::to_string(l) + "." + name, n, d, data);
    };
    layer_norm(block.ln1);
    observe("ln1", b.norm);
    const MatMulOut outs[] = {{block.q.w.get(), b.q, d, block.q.b.get(), false},
                              {block.k.w.get(), b.k, d, block.k.b.get(), false},
                              {block.v.w.get(), b.v, d, block.v.b.get(), false}};
    backend.MatMul({b.norm, d, n, d, outs, b.scratch});
    observe("q", b.q);
    observe("k", b.k);
    observe("v", b.v);
    for (float* rows : {b.q, b.k}) {
      if (rotation == nullptr) break;
      backend.Rotate({rotation->table, rotation->cos, rotation->sin, rows, n, shape_.n_heads, shape_.head_dim()});
    }
    backend.FullAttention(attention);
    observe("mix", b.mix);
    LinearRows(backend, b.mix, n, d, block.out, true, x, b.scratch);
    observe("mid", x);
    layer_norm(block.ln2);
    observe("ln2", b.norm);
    LinearRows(backend, b.norm, n, d, block.up, false, b.wide, b.scratch);
    backend.Gelu({act_, b.wide, b.wide, n * n_ff});
    LinearRows(backend, b.wide, n, n_ff, block.down, true, x, b.scratch);
    observe("out", x);
  }
}

}  // namespace weir
