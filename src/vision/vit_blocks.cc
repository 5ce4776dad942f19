// SPDX-License-Identifier: Apache-2.0
#include "vision/vit_blocks.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <utility>

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

Result<int32_t> ProjectedWidth(const GgufFile& file, const std::string& tensor, size_t side) {
  const GgufTensor* found = file.Tensor(tensor);
  const int64_t n = found == nullptr || found->shape.size() <= side ? 1 : found->shape[side];
  if (n > (1 << 17)) return Corrupt("{}: a projection to {} columns", file.path(), n);
  return static_cast<int32_t>(n);
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

bool AnyBlockHas(const GgufFile& file, const VitShape& shape, const std::string& name) {
  for (int64_t l = 0; l < shape.n_layers; ++l) {
    if (file.Tensor("v.blk." + std::to_string(l) + "." + name) != nullptr) return true;
  }
  return false;
}

Status VitBlocks::Load(const VitShape& shape, const VitStyle& style, const GgufFile& file, WeightLoader& loader) {
  shape_ = shape;
  style_ = style;
  blocks_.resize(static_cast<size_t>(shape.n_layers));
  if (style.head_norms) WEIR_RETURN_IF_ERROR(loader.Fill(shape.head_dim(), 1.0f, &ones_));
  for (int64_t l = 0; l < shape.n_layers; ++l) {
    WEIR_RETURN_IF_ERROR(LoadBlock(file, "v.blk." + std::to_string(l) + ".", loader, &blocks_[l]));
  }
  rounds_ = std::any_of(blocks_.begin(), blocks_.end(), [](const Block& block) {
    return std::ranges::any_of(block.Layers(),
                               [](const Layer* layer) { return layer->w != nullptr && IsBlocked(layer->w->type()); });
  });
  return Status();
}

Status VitBlocks::LoadBlock(const GgufFile& file, const std::string& name, WeightLoader& loader, Block* block) const {
  const int64_t d = shape_.n_embd, n_ff = shape_.n_ff;
  for (const auto& [norm, to] : {std::pair{"ln1", &block->ln1}, std::pair{"ln2", &block->ln2}}) {
    if (style_.rms_norms) {
      WEIR_RETURN_IF_ERROR(loader.Load(name + norm + ".weight", d, &to->w));
    } else {
      WEIR_RETURN_IF_ERROR(loader.Load(name + norm, d, to));
    }
  }
  if (AnyBlockHas(file, shape_, "attn_qkv.weight")) {
    const std::string qkv = name + "attn_qkv";
    int64_t first = 0;
    for (Layer* to : {&block->q, &block->k, &block->v}) {
      WEIR_RETURN_IF_ERROR(loader.LoadRows(qkv + ".weight", 3 * d, d, first, d, &to->w));
      if (loader.Has(qkv + ".bias")) {
        WEIR_RETURN_IF_ERROR(loader.LoadPart(qkv + ".bias", 3 * d, first, d, &to->b));
      }
      first += d;
    }
  } else {
    std::vector<int32_t> order;
    if (style_.interleaved_halves) {
      const int32_t half = static_cast<int32_t>(shape_.head_dim() / 2);
      order = HalfSplitOrder(static_cast<int32_t>(2 * shape_.n_heads), half, half);
    }
    for (const auto& [part, to] : {std::pair{"attn_q", &block->q}, std::pair{"attn_k", &block->k}}) {
      WEIR_RETURN_IF_ERROR(loader.Load(name + part + ".weight", d, d, &to->w, order));
      WEIR_RETURN_IF_ERROR(loader.LoadOptional(name + part + ".bias", d, &to->b, order));
    }
    WEIR_RETURN_IF_ERROR(loader.Load(name + "attn_v", d, d, &block->v));
  }
  if (style_.qk_norms || style_.head_norms) {
    const int64_t width = style_.head_norms ? shape_.head_dim() : d;
    WEIR_RETURN_IF_ERROR(loader.Load(name + "attn_q_norm.weight", width, &block->q_norm));
    WEIR_RETURN_IF_ERROR(loader.Load(name + "attn_k_norm.weight", width, &block->k_norm));
  }
  if (style_.post_norms) {
    WEIR_RETURN_IF_ERROR(loader.Load(name + "attn_post_norm.weight", d, &block->attn_post_norm));
    WEIR_RETURN_IF_ERROR(loader.Load(name + "ffn_post_norm.weight", d, &block->ffn_post_norm));
  }
  WEIR_RETURN_IF_ERROR(loader.Load(name + "attn_out", d, d, &block->out));
  // Files from the first converters have the two layers' names swapped; the shapes reveal it.
  const GgufTensor* up = file.Tensor(name + "ffn_up.weight");
  const bool swapped = n_ff != d && up != nullptr && up->shape == std::vector<int64_t>{d, n_ff};
  WEIR_RETURN_IF_ERROR(loader.Load(name + (swapped ? "ffn_down" : "ffn_up"), n_ff, d, &block->up));
  WEIR_RETURN_IF_ERROR(loader.Load(name + (swapped ? "ffn_up" : "ffn_down"), d, n_ff, &block->down));
  if (style_.gated) WEIR_RETURN_IF_ERROR(loader.Load(name + "ffn_gate", n_ff, d, &block->gate));
  if (style_.layer_scales) {
    WEIR_RETURN_IF_ERROR(loader.Load(name + "ls1.weight", d, &block->ls1));
    WEIR_RETURN_IF_ERROR(loader.Load(name + "ls2.weight", d, &block->ls2));
  }
  if (!style_.bounds) return Status();
  for (const auto& [part, to] :
       {std::pair{"attn_q", &block->q}, std::pair{"attn_k", &block->k}, std::pair{"attn_v", &block->v},
        std::pair{"attn_out", &block->out}, std::pair{"ffn_up", &block->up}, std::pair{"ffn_down", &block->down},
        std::pair{"ffn_gate", &block->gate}}) {
    WEIR_RETURN_IF_ERROR(LoadBounds(name + part, loader, to));
  }
  return Status();
}

Status VitBlocks::LoadBounds(const std::string& name, WeightLoader& loader, Layer* layer) const {
  for (const auto& [side, to] : {std::pair{"input", &layer->in}, std::pair{"output", &layer->out}}) {
    const std::string stem = name + "." + side;
    for (const auto& [end, bound] : {std::pair{"_min", &to->low}, std::pair{"_max", &to->high}}) {
      Vector value;
      WEIR_RETURN_IF_ERROR(loader.LoadOptional(stem + end, 1, &value));
      if (!value.data.empty()) *bound = value.data[0];
    }
    if (to->low > to->high) {
      return Corrupt("{}: tensors {}_min and {}_max are {:g} and {:g}", loader.path(), stem, stem, to->low, to->high);
    }
  }
  return Status();
}

VitBlocks::Buffers VitBlocks::LayOut(const Backend& backend, int64_t n, int64_t widest_in, Workspace* space,
                                     int64_t n_wide) const {
  Buffers b;
  for (float** rows : {&b.norm, &b.q, &b.k, &b.v, &b.mix}) *rows = space->Floats(n * shape_.n_embd);
  b.wide = space->Floats(n * std::max(shape_.n_ff, n_wide));
  if (style_.gated) b.gate = space->Floats(n * shape_.n_ff);
  b.scratch = space->Bytes(backend.RoundedMatMulScratchBytes(n, std::max({shape_.n_embd, shape_.n_ff, widest_in})));
  b.attention_scratch = space->Bytes(backend.FullAttentionScratchBytes(shape_.n_heads, shape_.head_dim(), n));
  return b;
}

void VitBlocks::Norm(Backend& backend, const float* x, const LayerNormWeights& w, int64_t n, float* y) const {
  const int64_t d = shape_.n_embd;
  if (style_.rms_norms) return backend.RmsNorm({x, w.w.get(), y, n, d, shape_.eps});
  backend.LayerNorm({x, w.w.get(), w.b.get(), y, n, d, shape_.eps});
}

void VitBlocks::Multiply(Backend& backend, const float* in, int64_t n, int64_t n_in, std::span<const Product> products,
                         float* free, void* scratch) const {
  std::array<MatMulOut, 3> outs;
  for (size_t i = 0; i < products.size(); ++i) {
    const Layer& layer = *products[i].layer;
    outs[i] = {layer.w.get(), products[i].out, layer.w->n_out(), layer.b.get(), products[i].adds};
  }
  if (!style_.bounds) return backend.MatMul({in, n_in, n, n_in, {outs.data(), products.size()}, scratch, rounds_});
  for (size_t i = 0; i < products.size(); ++i) {
    const Bounds &inner = products[i].layer->in, &outer = products[i].layer->out;
    if (inner.any()) backend.Clamp({inner.low, inner.high, in, free, n * n_in});
    backend.MatMul({inner.any() ? free : in, n_in, n, n_in, {&outs[i], 1}, scratch, rounds_});
    if (outer.any()) backend.Clamp({outer.low, outer.high, outs[i].y, outs[i].y, n * outs[i].w->n_out()});
  }
}

void VitBlocks::AddLinear(Backend& backend, float* in, int64_t n, int64_t n_in, const Layer& layer,
                          const Vector& post_norm, const Vector& scale, float* free, void* scratch, float* x) const {
  if (!style_.layer_scales && !style_.post_norms && !style_.bounds) {
    const Product product = {&layer, x, true};
    return Multiply(backend, in, n, n_in, {&product, 1}, nullptr, scratch);
  }
  const int64_t d = shape_.n_embd;
  const Product product = {&layer, free};
  Multiply(backend, in, n, n_in, {&product, 1}, in, scratch);
  if (style_.post_norms) backend.RmsNorm({free, post_norm.get(), free, n, d, shape_.eps});
  if (style_.layer_scales) backend.Mul({free, scale.get(), free, n * d, d});
  backend.Add({x, free, x, n * d});
}

void VitBlocks::Run(Backend& backend, const Buffers& b, int64_t n, const VitRotation* rotation,
                    const VisionObserver* observer, float* x, const VitWindows* windows,
                    const std::function<void(int64_t block, const float* x)>& after) const {
  const int64_t d = shape_.n_embd, n_ff = shape_.n_ff;
  FullAttentionArgs attention;
  attention.n_heads = shape_.n_heads;
  attention.head_dim = shape_.head_dim();
  attention.scale = style_.head_norms ? 1.0f : 1.0f / std::sqrt(static_cast<float>(attention.head_dim));
  attention.q_stride = attention.kv_stride = attention.out_stride = d;
  attention.scratch = b.attention_scratch;
  const auto attend = [&](int64_t begin, int64_t end) {
    attention.q = b.q + begin * d;
    attention.k = b.k + begin * d;
    attention.v = b.v + begin * d;
    attention.n_q = attention.n_kv = end - begin;
    attention.out = b.mix + begin * d;
    backend.FullAttention(attention);
  };
  for (size_t l = 0; l < blocks_.size(); ++l) {
    const Block& block = blocks_[l];
    const auto observe = [&](const char* name, const float* data) {
      if (observer != nullptr) (*observer)("v.blk." + std::to_string(l) + "." + name, n, d, data);
    };
    Norm(backend, x, block.ln1, n, b.norm);
    observe("ln1", b.norm);
    const Product heads[] = {{&block.q, b.q}, {&block.k, b.k}, {&block.v, b.v}};
    Multiply(backend, b.norm, n, d, heads, b.mix, b.scratch);
    observe("q", b.q);
    observe("k", b.k);
    observe("v", b.v);
    if (style_.qk_norms) {
      backend.RmsNorm({b.q, block.q_norm.get(), b.q, n, d, shape_.eps});
      backend.RmsNorm({b.k, block.k_norm.get(), b.k, n, d, shape_.eps});
    }
    if (style_.head_norms) {
      for (const auto& [rows, weights] :
           {std::pair{b.q, &block.q_norm}, std::pair{b.k, &block.k_norm}, std::pair{b.v, &ones_}}) {
        backend.RmsNorm({rows, weights->get(), rows, n * shape_.n_heads, shape_.head_dim(), shape_.eps});
      }
    }
    for (float* rows : {b.q, b.k}) {
      if (rotation == nullptr) break;
      backend.Rotate({rotation->table, rotation->cos, rotation->sin, rows, n, shape_.n_heads, shape_.head_dim()});
      if (rotation->column_cos == nullptr) continue;
      backend.Rotate({rotation->table, rotation->column_cos, rotation->column_sin, rows + shape_.head_dim() / 2, n,
                      shape_.n_heads, shape_.head_dim()});
    }
    if (windows == nullptr || (static_cast<int64_t>(l) + 1) % windows->full_every == 0) {
      attend(0, n);
    } else {
      int64_t begin = 0;
      for (int64_t y = 0; y < windows->n_y; y += windows->side) {
        for (int64_t x_of = 0; x_of < windows->n_x; x_of += windows->side) {
          const int64_t height = std::min(windows->side, windows->n_y - y);
          const int64_t end = begin + height * std::min(windows->side, windows->n_x - x_of) * windows->rows;
          attend(begin, end);
          begin = end;
        }
      }
    }
    observe("mix", b.mix);
    AddLinear(backend, b.mix, n, d, block.out, block.attn_post_norm, block.ls1, b.norm, b.scratch, x);
    observe("mid", x);
    Norm(backend, x, block.ln2, n, b.norm);
    observe("ln2", b.norm);
    const Product up = {&block.up, b.wide}, gate = {&block.gate, b.gate};
    Multiply(backend, b.norm, n, d, {&up, 1}, b.mix, b.scratch);
    if (style_.gated) {
      Multiply(backend, b.norm, n, d, {&gate, 1}, b.mix, b.scratch);
      if (style_.gelu_gate) {
        backend.Gelu({style_.act, b.gate, b.gate, n * n_ff});
        backend.Mul({b.gate, b.wide, b.wide, n * n_ff});
      } else {
        backend.SwiGlu({b.gate, b.wide, b.wide, n * n_ff});
      }
    } else {
      backend.Gelu({style_.act, b.wide, b.wide, n * n_ff});
    }
    AddLinear(backend, b.wide, n, n_ff, block.down, block.ffn_post_norm, block.ls2, b.norm, b.scratch, x);
    observe("out", x);
    if (after) after(static_cast<int64_t>(l), x);
  }
}

}  // namespace weir
