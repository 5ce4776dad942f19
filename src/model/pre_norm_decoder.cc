// SPDX-License-Identifier: Apache-2.0
#include "model/pre_norm_decoder.h"

#include <algorithm>
#include <cmath>

#include "base/workspace.h"

namespace weir {

Status PreNormDecoder::LoadStandard(const GgufFile& file, const char* arch, const Options& options, Ledger& ledger) {
  options_ = options;
  WEIR_ASSIGN_OR_RETURN(DecoderMetadata m, ReadDecoderMetadata(file, arch, {.experts = options.experts}));
  if (options.experts) {
    WEIR_ASSIGN_OR_RETURN(experts_, ReadExpertsConfig(file, arch, options.of_experts));
  }
  if (options.gate == Gate::kNoneXielu && !backend_.on_host()) {
    return Unsupported("{}: models that learn their activation run on the CPU only; choose it with --device cpu",
                       file.path());
  }
  WeightLoader loader(file, backend_, ledger);
  WEIR_RETURN_IF_ERROR(SkipNextLayers(file, arch, loader, &m));
  WEIR_ASSIGN_OR_RETURN(const int64_t n_dense,
                        BoundedIntOr(file, std::string(arch) + ".leading_dense_block_count", 0, m.n_layers, 0));
  n_dense_ = static_cast<int32_t>(n_dense);
  WEIR_RETURN_IF_ERROR(FillConfig(file, arch, m, &config_));
  if (options.halved_ff) {
    if (m.n_ff % 2 != 0) return Corrupt("{}: {}.feed_forward_length is odd", file.path(), arch);
    config_.n_ff = m.n_ff / 2;
  }
  WEIR_ASSIGN_OR_RETURN(config_.attention.rope, ReadRopeConfig(file, arch, m, loader));
  norm_eps_ = m.norm_eps;
  WEIR_RETURN_IF_ERROR(loader.Load("token_embd.weight", m.n_vocab, m.n_embd, &embedding_));
  config_.attention.shows_positions = options.temperature > 0;
  WEIR_RETURN_IF_ERROR(LoadNorm(loader, "output_norm", &output_norm_, &b_output_norm_));
  for (Vector* v : {&output_norm_, &b_output_norm_}) {
    if (options.logit_scale != 1 && !v->data.empty()) WEIR_RETURN_IF_ERROR(loader.Scale(options.logit_scale, v));
  }
  if (loader.Has("output.weight")) WEIR_RETURN_IF_ERROR(loader.Load("output.weight", m.n_vocab, m.n_embd, &output_));
  WEIR_RETURN_IF_ERROR(loader.LoadOptional("output.bias", m.n_vocab, &output_bias_));
  layers_.resize(static_cast<size_t>(m.n_layers));
  for (int32_t l = 0; l < m.n_layers; ++l) WEIR_RETURN_IF_ERROR(LoadLayer(loader, l));
  return loader.Finish();
}

Status PreNormDecoder::ReadDeepstack(const GgufFile& file, const std::string& arch) {
  WEIR_ASSIGN_OR_RETURN(const int64_t n,
                        BoundedIntOr(file, arch + ".n_deepstack_layers", 0, std::min(config_.n_layers - 1, 16), 0));
  config_.n_deepstack = static_cast<int32_t>(n);
  return Status();
}

Status PreNormDecoder::LoadNorm(WeightLoader& loader, const std::string& name, Vector* w, Vector* b) {
  WEIR_RETURN_IF_ERROR(loader.Load(name + ".weight", config_.n_embd, w));
  if (!options_.layer_norms) return Status();
  return options_.norm_biases ? loader.Load(name + ".bias", config_.n_embd, b) : loader.Fill(config_.n_embd, 0, b);
}

Status PreNormDecoder::LoadLayer(WeightLoader& loader, int32_t l) {
  const AttentionLayout& a = config_.attention;
  const int64_t n_embd = config_.n_embd, n_ff = config_.n_ff;
  const int64_t q_dim = static_cast<int64_t>(a.n_heads) * a.head_dim;
  const int64_t kv_dim = static_cast<int64_t>(a.n_kv_heads) * a.head_dim;
  std::vector<int32_t> q_order, k_order;
  if (options_.interleaved_rope) {
    q_order = HalfSplitOrder(a.n_heads, a.head_dim, a.rope.n_rot);
    k_order = HalfSplitOrder(a.n_kv_heads, a.head_dim, a.rope.n_rot);
  }
  PreNormLayer& layer = layers_[l];
  const std::string blk = "blk." + std::to_string(l) + ".";
  if (options_.pre_norms) {
    WEIR_RETURN_IF_ERROR(LoadNorm(loader, blk + "attn_norm", &layer.attn_norm, &layer.b_attn_norm));
  }
  if (options_.pre_norms && !options_.parallel) {
    WEIR_RETURN_IF_ERROR(LoadNorm(loader, blk + options_.ffn_norm, &layer.ffn_norm, &layer.b_ffn_norm));
  }
  if (options_.fused_qkv || loader.Has(blk + "attn_qkv.weight")) {
    const std::string qkv = blk + "attn_qkv.";
    const int64_t rows = q_dim + 2 * kv_dim;
    const auto load = [&](int64_t first, int64_t n, std::vector<int32_t> order, std::unique_ptr<Matrix>* out) {
      if (order.empty()) return loader.LoadRows(qkv + "weight", rows, n_embd, first, n, out);
      for (int32_t& row : order) row += static_cast<int32_t>(first);
      return loader.LoadPicked(qkv + "weight", rows, n_embd, order, out);
    };
    WEIR_RETURN_IF_ERROR(load(0, q_dim, q_order, &layer.wq));
    WEIR_RETURN_IF_ERROR(load(q_dim, kv_dim, k_order, &layer.wk));
    WEIR_RETURN_IF_ERROR(load(q_dim + kv_dim, kv_dim, {}, &layer.wv));
    if (options_.fused_bias || loader.Has(qkv + "bias")) {
      WEIR_RETURN_IF_ERROR(loader.LoadPart(qkv + "bias", rows, 0, q_dim, &layer.bq, q_order));
      WEIR_RETURN_IF_ERROR(loader.LoadPart(qkv + "bias", rows, q_dim, kv_dim, &layer.bk, k_order));
      WEIR_RETURN_IF_ERROR(loader.LoadPart(qkv + "bias", rows, q_dim + kv_dim, kv_dim, &layer.bv));
    }
  } else {
    WEIR_RETURN_IF_ERROR(loader.Load(blk + "attn_q.weight", q_dim, n_embd, &layer.wq, q_order));
    WEIR_RETURN_IF_ERROR(loader.Load(blk + "attn_k.weight", kv_dim, n_embd, &layer.wk, k_order));
    WEIR_RETURN_IF_ERROR(loader.Load(blk + "attn_v.weight", kv_dim, n_embd, &layer.wv));
    WEIR_RETURN_IF_ERROR(loader.LoadOptional(blk + "attn_q.bias", q_dim, &layer.bq, q_order));
    WEIR_RETURN_IF_ERROR(loader.LoadOptional(blk + "attn_k.bias", kv_dim, &layer.bk, k_order));
    WEIR_RETURN_IF_ERROR(loader.LoadOptional(blk + "attn_v.bias", kv_dim, &layer.bv));
  }
  if (HasExperts(l)) {
    WEIR_RETURN_IF_ERROR(layer.experts.Load(loader, backend_, blk, n_embd, experts_));
  } else if (!HasGate()) {
    WEIR_RETURN_IF_ERROR(loader.Load(blk + "ffn_up.weight", n_ff, n_embd, &layer.up));
    WEIR_RETURN_IF_ERROR(loader.LoadOptional(blk + "ffn_up.bias", n_ff, &layer.b_up));
  } else if (options_.fused_gate) {
    WEIR_RETURN_IF_ERROR(loader.LoadRows(blk + "ffn_up.weight", 2 * n_ff, n_embd, 0, n_ff, &layer.gate));
    WEIR_RETURN_IF_ERROR(loader.LoadRows(blk + "ffn_up.weight", 2 * n_ff, n_embd, n_ff, n_ff, &layer.up));
  } else {
    WEIR_RETURN_IF_ERROR(loader.Load(blk + "ffn_gate.weight", n_ff, n_embd, &layer.gate));
    WEIR_RETURN_IF_ERROR(loader.Load(blk + "ffn_up.weight", n_ff, n_embd, &layer.up));
    WEIR_RETURN_IF_ERROR(loader.LoadOptional(blk + "ffn_gate.bias", n_ff, &layer.b_gate));
    WEIR_RETURN_IF_ERROR(loader.LoadOptional(blk + "ffn_up.bias", n_ff, &layer.b_up));
  }
  if (options_.head_norms || options_.wide_norms) {
    const bool wide = options_.wide_norms;
    WEIR_RETURN_IF_ERROR(loader.Load(blk + "attn_q_norm.weight", wide ? q_dim : a.head_dim, &layer.q_norm));
    WEIR_RETURN_IF_ERROR(loader.Load(blk + "attn_k_norm.weight", wide ? kv_dim : a.head_dim, &layer.k_norm));
  }
  if (options_.sinks) {
    WEIR_RETURN_IF_ERROR(loader.Load(blk + "attn_sinks.weight", a.n_heads, &layer.sinks));
    config_.attention.sinks.push_back(layer.sinks.get());
  }
  WEIR_RETURN_IF_ERROR(loader.Load(blk + "attn_output.weight", n_embd, q_dim, &layer.wo));
  WEIR_RETURN_IF_ERROR(loader.LoadOptional(blk + "attn_output.bias", n_embd, &layer.bo));
  if (!HasExperts(l)) {
    WEIR_RETURN_IF_ERROR(loader.Load(blk + "ffn_down.weight", n_embd, n_ff, &layer.down));
    WEIR_RETURN_IF_ERROR(loader.LoadOptional(blk + "ffn_down.bias", n_embd, &layer.b_down));
  }
  if (options_.post_norms) {
    WEIR_RETURN_IF_ERROR(loader.Load(blk + "post_attention_norm.weight", n_embd, &layer.attn_post_norm));
    WEIR_RETURN_IF_ERROR(loader.Load(blk + "post_ffw_norm.weight", n_embd, &layer.ffn_post_norm));
  }
  return Status();
}

int64_t PreNormDecoder::WeightBytesPerToken() const {
  int64_t bytes = head().bytes();
  for (int32_t l = 0; l < config_.n_layers; ++l) {
    const PreNormLayer& layer = layers_[l];
    for (const auto* w : {&layer.wq, &layer.wk, &layer.wv, &layer.wo, &layer.gate, &layer.up, &layer.down}) {
      bytes += *w ? (*w)->bytes() : 0;
    }
    if (HasExperts(l)) bytes += layer.experts.WeightBytesPerToken();
  }
  return bytes;
}

int64_t PreNormDecoder::WorkspaceBytes(int64_t n) const {
  const AttentionLayout& a = config_.attention;
  const int64_t q_dim = static_cast<int64_t>(a.n_heads) * a.head_dim;
  const int64_t kv_dim = static_cast<int64_t>(a.n_kv_heads) * a.head_dim;
  const int64_t attention = 2 * AlignedBytes(n * q_dim * 4) + 2 * AlignedBytes(n * kv_dim * 4);
  int64_t feed_forward = 0;
  if (!HasExperts(0)) feed_forward = 2 * AlignedBytes(n * config_.n_ff * 4);
  if (HasExperts(config_.n_layers - 1)) {
    const int64_t own = Experts::WorkspaceBytes(backend_, experts_, config_.n_embd, n);
    feed_forward = std::max(feed_forward, AlignedBytes(n * config_.n_embd * 4) + own);
  }
  const int64_t widest = std::max<int64_t>({config_.n_embd, config_.n_ff, q_dim});
  const int64_t norms = (options_.parallel ? 2 : 1) * AlignedBytes(n * config_.n_embd * 4);
  return norms + std::max(attention, feed_forward) + AlignedBytes(backend_.MatMulScratchBytes(n, widest));
}

int64_t PreNormDecoder::HostWorkspaceBytes(int64_t n) const {
  return HasExperts(config_.n_layers - 1) ? Experts::HostBytes(backend_, experts_, n) : 0;
}

void PreNormDecoder::RunGate(int32_t l, const float* gate, const float* up, float* y, int64_t n) {
  switch (options_.gate) {
    case Gate::kSilu:
      return backend_.SwiGlu({gate, up, y, n});
    case Gate::kGeluTanh:
      return backend_.GeGlu({gate, up, y, n});
    case Gate::kNoneGeluTanh:
      return backend_.Gelu({GeluKind::kTanh, up, y, n});
    case Gate::kNoneGelu:
      return backend_.Gelu({GeluKind::kErf, up, y, n});
    case Gate::kNoneXielu:
      return ref::Xielu({options_.xielu[l], up, y, n});
    case Gate::kNoneSquaredRelu:
      backend_.Relu({up, y, n});
      return backend_.Mul({y, y, y, n});
  }
}

void PreNormDecoder::ScaleQueries(const int32_t* positions, int64_t n, int64_t q_dim, float* q) {
  const auto factor = [&](int64_t row) {
    const double steps = std::floor(static_cast<double>(positions[row]) / options_.temperature_length);
    return static_cast<float>(1.0 + options_.temperature * std::log1p(steps));
  };
  for (int64_t row = 0, end; row < n; row = end) {
    const float scale = factor(row);
    for (end = row + 1; end < n && factor(end) == scale;) ++end;
    if (scale != 1) backend_.Scale({scale, q + row * q_dim, q + row * q_dim, (end - row) * q_dim});
  }
}

void PreNormDecoder::Forward(const ForwardArgs& args) {
  const AttentionLayout& a = config_.attention;
  const int32_t stop = args.end_layer > 0 ? args.end_layer : config_.n_layers;
  int64_t n = args.n_rows;
  const int64_t n_embd = config_.n_embd, n_ff = config_.n_ff;
  const int64_t q_dim = static_cast<int64_t>(a.n_heads) * a.head_dim;
  const int64_t kv_dim = static_cast<int64_t>(a.n_kv_heads) * a.head_dim;

  float* x = args.hidden;  // the residual stream is in the output's memory
  Workspace bump(args.workspace);
  float* norm = bump.Floats(n * n_embd);
  float* apart = options_.parallel ? bump.Floats(n * n_embd) : norm;  // of what an addition to the stream adds
  const int64_t widest = std::max<int64_t>({n_embd, n_ff, q_dim});
  void* scratch = bump.Bytes(backend_.MatMulScratchBytes(n, widest));
  Workspace attention = bump, feed_forward = bump;  // the two halves of a block are never live together
  float* q = attention.Floats(n * q_dim);
  float* k = attention.Floats(n * kv_dim);
  float* v = attention.Floats(n * kv_dim);
  float* mix = attention.Floats(n * q_dim);
  Workspace with_experts = feed_forward;  // nor are two layers
  const bool any_dense = !HasExperts(0), any_experts = HasExperts(config_.n_layers - 1);
  float* gate = any_dense ? feed_forward.Floats(n * n_ff) : nullptr;
  float* up = any_dense ? feed_forward.Floats(n * n_ff) : nullptr;
  float* sum = any_experts ? with_experts.Floats(n * n_embd) : nullptr;
  uint8_t* of_experts =
      any_experts ? with_experts.Bytes(Experts::WorkspaceBytes(backend_, experts_, n_embd, n)) : nullptr;

  auto observe = [&](const std::string& name, int64_t cols, const float* data) {
    if (args.observer != nullptr) Observe(backend_, *args.observer, name, n, cols, data);
  };
  auto product = [&](const float* in, int64_t n_in, std::initializer_list<MatMulOut> outs) {
    MatMulArgs mm;
    mm.x = in;
    mm.x_stride = n_in;
    mm.n_rows = n;
    mm.n_in = n_in;
    mm.outs = {outs.begin(), outs.size()};
    mm.scratch = scratch;
    backend_.MatMul(mm);
  };

  // Part `part` of every row of pictures.
  const auto copy_part = [&](int64_t part, float* to) {
    const int64_t width = config_.row_width();
    if (width == n_embd) return backend_.Copy(to, args.embeddings, n * n_embd * 4);
    for (int64_t row = 0; row < n; ++row) {
      backend_.Copy(to + row * n_embd, args.embeddings + row * width + part * n_embd, n_embd * 4);
    }
  };
  if (args.tokens != nullptr) {
    backend_.EmbedRows(*embedding_, args.tokens, n, x);
    const float scale =
        options_.embedding_scale * (options_.scaled_embedding ? std::sqrt(static_cast<float>(n_embd)) : 1.0f);
    if (scale != 1) backend_.Scale({scale, x, x, n * n_embd});
  } else if (args.embeddings != nullptr) {
    copy_part(0, x);
  }
  observe("embd", n_embd, x);
  const bool watched = args.observer != nullptr;
  // x += scale * post(w * in + bias). Added directly to x, unless there is a norm or factor in between or an observer
  // needs the sum's second part; that is then computed in the memory of the block's normalised input if no other half
  // reads it.
  auto add_block = [&](const std::string& name, float* y, const Vector& post, const std::string& post_name) {
    observe(name, n_embd, y);
    if (!post.data.empty()) {
      backend_.RmsNorm({y, post.get(), y, n, n_embd, norm_eps_});
      observe(post_name, n_embd, y);
    }
    if (options_.residual_scale != 1) backend_.Scale({options_.residual_scale, y, y, n * n_embd});
    backend_.Add({x, y, x, n * n_embd});
  };
  auto add_to_stream = [&](const std::string& name, const float* in, int64_t n_in, const Matrix& w, const float* bias,
                           const Vector& post, const std::string& post_name) {
    if (!watched && post.data.empty() && options_.residual_scale == 1) {
      return product(in, n_in, {{&w, x, n_embd, bias, true}});
    }
    product(in, n_in, {{&w, apart, n_embd, bias, false}});
    add_block(name, apart, post, post_name);
  };
  auto norm_heads = [&](const Vector& w, int64_t n_heads, float* heads) {
    if (w.data.empty()) return;
    const int64_t dim = std::ssize(w.data);
    backend_.RmsNorm({heads, w.get(), heads, n * n_heads * a.head_dim / dim, dim, norm_eps_});
  };
  auto normalise = [&](const Vector& w, const Vector& b, float* y) {
    if (options_.layer_norms) return backend_.LayerNorm({x, w.get(), b.get(), y, n, n_embd, norm_eps_});
    backend_.RmsNorm({x, w.get(), y, n, n_embd, norm_eps_});
  };

  const auto end_layer = [&](int32_t l, const std::string& blk) {
    observe(blk + "out", n_embd, x);
    if (l >= config_.n_deepstack || args.embeddings == nullptr) return;
    copy_part(l + 1, norm);
    backend_.Add({x, norm, x, n * n_embd});
  };

  for (int32_t l = args.first_layer; l < stop; ++l) {
    const PreNormLayer& layer = layers_[l];
    const std::string blk = watched ? "blk." + std::to_string(l) + "." : std::string();
    if (options_.pre_norms) {
      normalise(layer.attn_norm, layer.b_attn_norm, norm);
      observe(blk + "attn_norm", n_embd, norm);
    }
    product(options_.pre_norms ? norm : x, n_embd,
            {{layer.wq.get(), q, q_dim, layer.bq.get(), false},
             {layer.wk.get(), k, kv_dim, layer.bk.get(), false},
             {layer.wv.get(), v, kv_dim, layer.bv.get(), false}});
    norm_heads(layer.q_norm, a.n_heads, q);
    norm_heads(layer.k_norm, a.n_kv_heads, k);
    if (options_.clamp > 0) {
      backend_.Clamp({-options_.clamp, options_.clamp, q, q, n * q_dim});
      for (float* each : {k, v}) backend_.Clamp({-options_.clamp, options_.clamp, each, each, n * kv_dim});
    }
    observe(blk + "q", q_dim, q);
    observe(blk + "k", kv_dim, k);
    observe(blk + "v", kv_dim, v);
    if (options_.temperature > 0) ScaleQueries(args.attender->positions(), n, q_dim, q);
    args.attender->Attend(l, q, k, v, mix);
    if (l + 1 == config_.n_layers) {
      // Nothing after the last attention reads another row.
      n -= args.first_hidden;
      x += args.first_hidden * n_embd;
      mix += args.first_hidden * q_dim;
      if (options_.parallel) norm += args.first_hidden * n_embd;
    }
    add_to_stream(blk + "attn_out", mix, q_dim, *layer.wo, layer.bo.get(), layer.attn_post_norm,
                  blk + "attn_post_norm");

    if (options_.pre_norms) {
      if (!options_.parallel) normalise(layer.ffn_norm, layer.b_ffn_norm, norm);
      observe(blk + "ffn_norm", n_embd, norm);
    }
    const float* read = options_.pre_norms ? norm : x;
    if (HasExperts(l)) {
      layer.experts.Run(backend_, read, n, sum, of_experts, args.host_workspace);
      add_block(blk + "ffn_out", sum, layer.ffn_post_norm, blk + "ffn_post_norm");
      end_layer(l, blk);
      continue;
    }
    if (layer.gate) {
      product(read, n_embd,
              {{layer.gate.get(), gate, n_ff, layer.b_gate.get(), false},
               {layer.up.get(), up, n_ff, layer.b_up.get(), false}});
    } else {
      product(read, n_embd, {{layer.up.get(), up, n_ff, layer.b_up.get(), false}});
    }
    RunGate(l, gate, up, gate, n * n_ff);
    add_to_stream(blk + "ffn_out", gate, n_ff, *layer.down, layer.b_down.get(), layer.ffn_post_norm,
                  blk + "ffn_post_norm");
    end_layer(l, blk);
  }
  if (stop < config_.n_layers) return;
  normalise(output_norm_, b_output_norm_, x);
  observe("final_norm", n_embd, x);
}

}  // namespace weir
