// SPDX-License-Identifier: Apache-2.0
#include "model/gemma_decoder.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <optional>

#include "base/workspace.h"
#include "ops/sparse_gate.h"
#include "quant/format.h"

namespace weir {

Result<std::vector<int32_t>> ReadPerLayer(const GgufFile& file, const std::string& name, int32_t n_layers,
                                          int64_t least, int64_t most) {
  std::vector<int64_t> truths;
  const std::vector<int64_t>* list = file.IntArray(name);
  const auto at = file.metadata().find(name);
  if (at != file.metadata().end()) {
    if (const auto* bools = std::get_if<std::vector<bool>>(&at->second.v)) {
      truths.assign(bools->begin(), bools->end());
      list = &truths;
    }
  }
  if (list == nullptr) {
    WEIR_ASSIGN_OR_RETURN(const int64_t value, BoundedInt(file, name, least, most));
    return std::vector<int32_t>(static_cast<size_t>(n_layers), static_cast<int32_t>(value));
  }
  if (std::ssize(*list) != n_layers) {
    return Corrupt("{}: {} has {} numbers for {} layers", file.path(), name, list->size(), n_layers);
  }
  std::vector<int32_t> out;
  for (const int64_t value : *list) {
    if (value < least || value > most) {
      return Corrupt("{}: {} has the number {}, expected {} to {}", file.path(), name, value, least, most);
    }
    out.push_back(static_cast<int32_t>(value));
  }
  return out;
}

Result<std::vector<int32_t>> GemmaDecoder::ReadAttention(const GgufFile& file, const char* arch,
                                                         const DecoderMetadata& m, WeightLoader& loader, double cap) {
  WEIR_RETURN_IF_ERROR(FillConfig(file, arch, m, &config_));
  config_.attention.scale = 1;
  WEIR_ASSIGN_OR_RETURN(config_.attention.rope, ReadRopeConfig(file, arch, m, loader));
  WEIR_ASSIGN_OR_RETURN(config_.logit_softcap, ReadSoftCap(file, std::string(arch) + ".final_logit_softcapping", cap));
  return ReadPerLayer(file, std::string(arch) + ".attention.sliding_window_pattern", m.n_layers, 0, 1);
}

Status GemmaDecoder::SetLayers(const GgufFile& file, const char* arch, std::vector<LayerHeads> layers) {
  AttentionLayout& a = config_.attention;
  WEIR_ASSIGN_OR_RETURN(const int64_t n_shared, BoundedIntOr(file, std::string(arch) + ".attention.shared_kv_layers", 0,
                                                             config_.n_layers - 1, 0));
  int32_t newest[2] = {-1, -1};  // the last layer of each kind that stores
  for (int32_t l = 0; l < config_.n_layers; ++l) {
    LayerHeads& layer = layers[l];
    const int32_t kind = a.is_window(l) ? 1 : 0;
    if (layer.n_heads % layer.n_kv_heads != 0) {
      return Corrupt("{}: {} heads of layer {} cannot be shared by {} KV heads", file.path(), layer.n_heads, l,
                     layer.n_kv_heads);
    }
    if (l < config_.n_layers - n_shared) {
      newest[kind] = last_stored_ = l;
      continue;
    }
    layer.kv_layer = newest[kind];
    if (layer.kv_layer < 0 || layers[layer.kv_layer].n_kv_heads != layer.n_kv_heads) {
      return Corrupt("{}: layer {} reads keys and values of an earlier layer, and none before the last {} is like it",
                     file.path(), l, n_shared);
    }
  }
  a.SetLayers(std::move(layers));
  return Status();
}

Status GemmaDecoder::LoadLayer(WeightLoader& loader, int32_t l) {
  Layer& layer = layers_[l];
  const LayerHeads heads = config_.attention.heads_of(l);
  const int64_t d = config_.n_embd, dim = heads.head_dim, q_dim = heads.n_heads * dim, kv_dim = heads.n_kv_heads * dim;
  const std::string blk = "blk." + std::to_string(l) + ".";
  WEIR_RETURN_IF_ERROR(loader.Load(blk + "attn_norm.weight", d, &layer.attn_norm));
  WEIR_RETURN_IF_ERROR(loader.Load(blk + "attn_q.weight", q_dim, d, &layer.q));
  WEIR_RETURN_IF_ERROR(loader.Load(blk + "attn_q_norm.weight", dim, &layer.q_norm));
  if (heads.kv_layer < 0) {
    WEIR_RETURN_IF_ERROR(loader.Load(blk + "attn_k.weight", kv_dim, d, &layer.k));
    WEIR_RETURN_IF_ERROR(loader.Load(blk + "attn_k_norm.weight", dim, &layer.k_norm));
    // Layers without a window, all of them or none, may take the keys' projection for their values.
    if (config_.attention.is_window(l) || has_values_) {
      WEIR_RETURN_IF_ERROR(loader.Load(blk + "attn_v.weight", kv_dim, d, &layer.v));
    }
  } else {
    // Published weights have projections that nothing reads.
    for (const char* name : {"attn_k.", "attn_k_norm.", "attn_v."}) loader.Skip(blk + name);
  }
  WEIR_RETURN_IF_ERROR(loader.Load(blk + "attn_output.weight", d, q_dim, &layer.out));
  WEIR_RETURN_IF_ERROR(loader.Load(blk + "post_attention_norm.weight", d, &layer.attn_post_norm));
  WEIR_RETURN_IF_ERROR(loader.Load(blk + "ffn_norm.weight", d, &layer.ffn_norm));
  WEIR_RETURN_IF_ERROR(loader.Load(blk + "ffn_gate.weight", layer.n_ff, d, &layer.gate));
  WEIR_RETURN_IF_ERROR(loader.Load(blk + "ffn_up.weight", layer.n_ff, d, &layer.up));
  WEIR_RETURN_IF_ERROR(loader.Load(blk + "ffn_down.weight", d, layer.n_ff, &layer.down));
  WEIR_RETURN_IF_ERROR(loader.Load(blk + "post_ffw_norm.weight", d, &layer.ffn_post_norm));
  WEIR_RETURN_IF_ERROR(loader.LoadOptional(blk + "layer_output_scale.weight", 1, &layer.out_scale));
  if (altup_) {
    WEIR_RETURN_IF_ERROR(loader.Load(blk + "laurel_l.weight", n_laurel_, d, &layer.laurel_left));
    WEIR_RETURN_IF_ERROR(loader.Load(blk + "laurel_r.weight", d, n_laurel_, &layer.laurel_right));
    WEIR_RETURN_IF_ERROR(loader.Load(blk + "laurel_post_norm.weight", d, &layer.laurel_norm));
  }
  if (n_own_ == 0) return Status();
  WEIR_RETURN_IF_ERROR(loader.LoadRows("per_layer_model_proj.weight", n_own_ * config_.n_layers, d, l * n_own_, n_own_,
                                       &layer.input_model));
  WEIR_RETURN_IF_ERROR(loader.Load(blk + "inp_gate.weight", n_own_, d, &layer.input_gate));
  WEIR_RETURN_IF_ERROR(loader.Load(blk + "proj.weight", d, n_own_, &layer.input_proj));
  return loader.Load(blk + "post_norm.weight", d, &layer.input_post_norm);
}

Status GemmaDecoder::LoadOwn(const GgufFile& file, WeightLoader& loader, Ledger& ledger) {
  const char* const name = "per_layer_token_embd.weight";
  WEIR_RETURN_IF_ERROR(loader.Load("per_layer_proj_norm.weight", n_own_, &own_norm_));
  const GgufTensor* table = file.Tensor(name);
  if (table == nullptr) return NotFound("{}: tensor {} is missing", file.path(), name);
  const int64_t n_rows = int64_t{config_.n_vocab} * config_.n_layers;
  if (table->shape != std::vector<int64_t>{config_.n_vocab, n_own_ * config_.n_layers}) {
    return Corrupt("{}: tensor {} is not [{}, {}]", file.path(), name, config_.n_vocab, n_own_ * config_.n_layers);
  }
  if (n_own_ % InfoOf(table->type).block_elements != 0 || n_rows > std::numeric_limits<int32_t>::max()) {
    return Unsupported("{}: tensor {} of type {} cannot be cut into vectors of {} for each layer", file.path(), name,
                       InfoOf(table->type).name, n_own_);
  }
  loader.Skip(name);
  const std::string where = file.path() + ": " + name;
  MatrixSource source;
  source.name = where.c_str();
  source.type = table->type;
  source.n_out = n_rows;
  source.n_in = n_own_;
  source.data = table->data;
  WEIR_ASSIGN_OR_RETURN(own_table_, backend_.PrepareMatrix(source, ledger));
  file.ReleasePages();
  return Status();
}

// The rows of the first layer's bottleneck are those of all.
Status GemmaDecoder::LoadLaurel(const GgufFile& file) {
  const char* const name = "blk.0.laurel_l.weight";
  const GgufTensor* tensor = file.Tensor(name);
  if (tensor == nullptr) return NotFound("{}: tensor {} is missing", file.path(), name);
  n_laurel_ = tensor->shape.front();
  return Status();
}

Status GemmaDecoder::Load(const GgufFile& file, const DecoderMetadata& m, const Family& family, WeightLoader& loader,
                          Ledger& ledger) {
  const std::string arch = family.arch;
  norm_eps_ = m.norm_eps;
  WEIR_ASSIGN_OR_RETURN(n_own_, BoundedIntOr(file, arch + ".embedding_length_per_layer_input", 0, 1 << 16, 0));
  WEIR_RETURN_IF_ERROR(loader.Load("token_embd.weight", m.n_vocab, m.n_embd, &embedding_));
  WEIR_RETURN_IF_ERROR(loader.Load("output_norm.weight", m.n_embd, &output_norm_));
  if (loader.Has("output.weight")) WEIR_RETURN_IF_ERROR(loader.Load("output.weight", m.n_vocab, m.n_embd, &output_));
  if (n_own_ > 0) WEIR_RETURN_IF_ERROR(LoadOwn(file, loader, ledger));
  WEIR_RETURN_IF_ERROR(loader.Fill(config_.attention.head_dim, 1.0f, &ones_));
  if (family.streams) {
    altup_ = std::make_unique<AltUp>(backend_);
    WEIR_RETURN_IF_ERROR(altup_->Load(file, arch, config_, norm_eps_, loader));
    WEIR_RETURN_IF_ERROR(LoadLaurel(file));
  }
  WEIR_ASSIGN_OR_RETURN(const auto n_ff, ReadPerLayer(file, arch + ".feed_forward_length", m.n_layers, 8, 1 << 20));
  layers_.resize(static_cast<size_t>(m.n_layers));
  has_values_ = !family.keys_are_values;
  for (int32_t l = 0; l < m.n_layers; ++l) {
    const bool own = config_.attention.stores(l) && !config_.attention.is_window(l);
    has_values_ |= own && loader.Has("blk." + std::to_string(l) + ".attn_v.weight");
  }
  for (int32_t l = 0; l < m.n_layers; ++l) {
    layers_[l].n_ff = n_ff[l];
    if (!family.gate_cutoffs.empty()) layers_[l].cutoff = family.gate_cutoffs[l];
    n_ff_most_ = std::max<int64_t>(n_ff_most_, n_ff[l]);
    WEIR_RETURN_IF_ERROR(LoadLayer(loader, l));
  }
  return loader.Finish();
}

int64_t GemmaDecoder::WeightBytesPerToken() const {
  int64_t bytes = head().bytes() + (altup_ ? altup_->WeightBytes() : 0);
  for (const Layer& l : layers_) {
    for (const auto* w : {&l.q, &l.k, &l.v, &l.out, &l.gate, &l.up, &l.down, &l.input_model, &l.input_gate,
                          &l.input_proj, &l.laurel_left, &l.laurel_right}) {
      if (*w != nullptr) bytes += (*w)->bytes();
    }
  }
  return bytes;
}

int64_t GemmaDecoder::LayOut(int64_t n, Workspace space, Memory* memory) const {
  const AttentionLayout& a = config_.attention;
  int64_t q_dim = 0, kv_dim = 0;
  for (const LayerHeads& heads : a.layers) {
    q_dim = std::max(q_dim, int64_t{heads.n_heads} * heads.head_dim);
    kv_dim = std::max(kv_dim, int64_t{heads.n_kv_heads} * heads.head_dim);
  }
  const int64_t d = config_.n_embd;
  memory->norm = space.Floats(n * d);
  memory->input = n_own_ > 0 ? space.Floats(n * d) : nullptr;
  memory->laurel = altup_ ? space.Floats(n * d) : nullptr;
  memory->laurel_left = altup_ ? space.Floats(n * n_laurel_) : nullptr;
  memory->streams = altup_ ? altup_->LayOut(n, &space) : AltUp::Memory();
  memory->scratch = space.Bytes(backend_.MatMulScratchBytes(n, std::max({d, n_ff_most_, q_dim, n_own_, n_laurel_})));
  Workspace attention = space, feed_forward = space, own = space;
  memory->q = attention.Floats(n * q_dim);
  memory->k = attention.Floats(n * kv_dim);
  memory->v = attention.Floats(n * kv_dim);
  memory->mix = attention.Floats(n * q_dim);
  memory->gate = feed_forward.Floats(n * n_ff_most_);
  memory->up = feed_forward.Floats(n * n_ff_most_);
  memory->own = own.Floats(n * n_own_);
  memory->own_gate = own.Floats(n * n_own_);
  return std::max({attention.used(), feed_forward.used(), own.used()});
}

void GemmaDecoder::Forward(const ForwardArgs& args) {
  int64_t n = args.n_rows, first = 0;  // first: the first of them that is still computed
  const int64_t d = config_.n_embd;
  float* x = args.hidden;  // the residual stream is in the output's memory
  Memory memory;
  LayOut(n, Workspace(args.workspace), &memory);
  float* const norm = memory.norm;

  const auto observe = [&](const std::string& name, int64_t cols, const float* data) {
    if (args.observer != nullptr) Observe(backend_, *args.observer, name, n, cols, data);
  };
  const auto product = [&](const float* in, int64_t n_in, std::span<const MatMulOut> outs) {
    MatMulArgs mm;
    mm.x = in;
    mm.x_stride = mm.n_in = n_in;
    mm.n_rows = n;
    mm.outs = outs;
    mm.scratch = memory.scratch;
    backend_.MatMul(mm);
  };
  const auto multiply = [&](const float* in, int64_t n_in, const Matrix& w, float* out, int64_t n_out) {
    const MatMulOut one = {&w, out, n_out, nullptr, false};
    product(in, n_in, {&one, 1});
  };
  const auto rms = [&](const float* in, const Vector& w, float* out, int64_t n_rows, int64_t dim) {
    backend_.RmsNorm({in, w.get(), out, n_rows, dim, norm_eps_});
  };
  const auto add_normed = [&](const Vector& w, const std::string& name) {
    rms(norm, w, norm, n, d);
    observe(name, d, norm);
    backend_.Add({x, norm, x, n * d});
  };

  if (args.tokens != nullptr) {
    backend_.EmbedRows(*embedding_, args.tokens, n, x);
    backend_.Scale({std::sqrt(static_cast<float>(d)), x, x, n * d});
  } else {
    backend_.Copy(x, args.embeddings, n * d * 4);
  }
  observe("embd", d, x);
  std::optional<AltUp::Pass> streams;
  if (altup_) {
    streams.emplace(*altup_, memory.streams, n, memory.scratch);
    streams->Begin(x);
  }
  if (n_own_ > 0) backend_.Copy(memory.input, x, n * d * 4);
  std::vector<int32_t> rows(n_own_ > 0 ? static_cast<size_t>(n) : 0);
  // Layers that borrow keys need no row for others' sake, unless rows vote.
  const int32_t last_row_reader = args.attender->MayLeaveOutRows() ? last_stored_ : config_.n_layers - 1;

  for (int32_t l = 0; l < config_.n_layers; ++l) {
    const Layer& layer = layers_[l];
    const LayerHeads heads = config_.attention.heads_of(l);
    const int64_t dim = heads.head_dim, q_dim = heads.n_heads * dim, kv_dim = heads.n_kv_heads * dim;
    const std::string blk = args.observer == nullptr ? std::string() : "blk." + std::to_string(l) + ".";
    float *q = memory.q, *k = memory.k, *v = memory.v, *mix = memory.mix, *laurel = memory.laurel;
    if (streams) streams->Predict(l, x);
    rms(x, layer.attn_norm, norm, n, d);
    observe(blk + "attn_norm", d, norm);
    if (streams) {
      multiply(norm, d, *layer.laurel_left, memory.laurel_left, n_laurel_);
      multiply(memory.laurel_left, n_laurel_, *layer.laurel_right, laurel, d);
      rms(laurel, layer.laurel_norm, laurel, n, d);
      backend_.Add({laurel, norm, laurel, n * d});
      observe(blk + "laurel", d, laurel);
    }
    std::vector<MatMulOut> outs = {{layer.q.get(), q, q_dim, nullptr, false}};
    if (layer.k) outs.push_back({layer.k.get(), k, kv_dim, nullptr, false});
    if (layer.v) outs.push_back({layer.v.get(), v, kv_dim, nullptr, false});
    product(norm, d, outs);
    rms(q, layer.q_norm, q, n * heads.n_heads, dim);
    observe(blk + "q", q_dim, q);
    if (layer.k) {
      rms(layer.v ? v : k, ones_, v, n * heads.n_kv_heads, dim);
      rms(k, layer.k_norm, k, n * heads.n_kv_heads, dim);
      observe(blk + "k", kv_dim, k);
      observe(blk + "v", kv_dim, v);
      args.attender->Attend(l, q, k, v, mix);
    } else {
      args.attender->Attend(l, q, nullptr, nullptr, mix, first);
    }
    if (l == last_row_reader) {
      // Nothing after it reads another row.
      first = args.first_hidden;
      n -= first;
      x += first * d;
      mix += first * q_dim;
      if (streams) {
        laurel += first * d;
        streams->LeaveOut(first);
      }
    }
    multiply(mix, q_dim, *layer.out, norm, d);
    observe(blk + "attn_out", d, norm);
    add_normed(layer.attn_post_norm, blk + "attn_post_norm");
    if (streams) {
      backend_.Add({x, laurel, x, n * d});
      backend_.Scale({std::sqrt(0.5f), x, x, n * d});
    }

    rms(x, layer.ffn_norm, norm, n, d);
    observe(blk + "ffn_norm", d, norm);
    const MatMulOut wide[] = {{layer.gate.get(), memory.gate, layer.n_ff, nullptr, false},
                              {layer.up.get(), memory.up, layer.n_ff, nullptr, false}};
    product(norm, d, wide);
    if (std::isfinite(layer.cutoff)) ref::SparseGate({memory.gate, memory.gate, n, layer.n_ff, layer.cutoff});
    backend_.GeGlu({memory.gate, memory.up, memory.gate, n * layer.n_ff});
    multiply(memory.gate, layer.n_ff, *layer.down, norm, d);
    observe(blk + "ffn_out", d, norm);
    add_normed(layer.ffn_post_norm, blk + "ffn_post_norm");
    if (streams) streams->Correct(l, x);

    if (n_own_ > 0) {
      float *own = memory.own, *gate = memory.own_gate;
      const int64_t count = n * n_own_;
      // Rows without a token, of pictures, have the vector of token 0.
      for (int64_t i = 0; i < n; ++i) {
        rows[i] = (args.tokens == nullptr ? 0 : args.tokens[first + i]) * config_.n_layers + l;
      }
      multiply(memory.input + first * d, d, *layer.input_model, own, n_own_);
      backend_.Scale({1 / std::sqrt(static_cast<float>(d)), own, own, count});
      rms(own, own_norm_, own, n, n_own_);
      backend_.EmbedRows(*own_table_, rows.data(), n, gate);
      backend_.Scale({std::sqrt(static_cast<float>(n_own_)), gate, gate, count});
      backend_.Add({own, gate, own, count});
      backend_.Scale({std::sqrt(0.5f), own, own, count});
      if (streams) streams->ReadScaled(l, norm);
      multiply(streams ? norm : x, d, *layer.input_gate, gate, n_own_);
      backend_.GeGlu({gate, own, gate, count});
      multiply(gate, n_own_, *layer.input_proj, norm, d);
      if (streams) {
        rms(norm, layer.input_post_norm, norm, n, d);
        observe(blk + "input_post_norm", d, norm);
        streams->AddToOthers(norm);
      } else {
        add_normed(layer.input_post_norm, blk + "input_post_norm");
      }
    }
    if (!layer.out_scale.data.empty()) backend_.Scale({layer.out_scale.data[0], x, x, n * d});
    if (streams) {
      if (args.observer != nullptr) observe(blk + "out", altup_->n_streams() * d, streams->Rows().data());
    } else {
      observe(blk + "out", d, x);
    }
  }
  if (streams) streams->Merge(x);
  rms(x, output_norm_, x, n, d);
  observe("final_norm", d, x);
}

}  // namespace weir
