#include "model/pre_norm_decoder.h"

#include <algorithm>
#include <cmath>
#include <cstring>

#include "base/workspace.h"

namespace weir {

Status PreNormDecoder::LoadStandard(const GgufFile& file, const char* arch, const Options& options, Ledger& ledger) {
  WEIR_ASSIGN_OR_RETURN(const DecoderMetadata m, ReadDecoderMetadata(file, arch));
  WeightLoader loader(file, backend_, ledger);
  config_.architecture = arch;
  WEIR_ASSIGN_OR_RETURN(config_.name, file.StringOr("general.name", ""));
  config_.n_layers = m.n_layers;
  config_.n_embd = m.n_embd;
  config_.n_ff = m.n_ff;
  config_.n_vocab = m.n_vocab;
  config_.n_ctx_train = m.n_ctx_train;
  AttentionLayout& attention = config_.attention;
  attention.n_layers = m.n_layers;
  attention.n_heads = m.n_heads;
  attention.n_kv_heads = m.n_kv_heads;
  attention.head_dim = m.head_dim;
  attention.scale = 1.0f / std::sqrt(static_cast<float>(m.head_dim));
  WEIR_ASSIGN_OR_RETURN(attention.rope, ReadRopeConfig(file, arch, m, loader));
  norm_eps_ = m.norm_eps;

  const int64_t q_dim = static_cast<int64_t>(m.n_heads) * m.head_dim;
  const int64_t kv_dim = static_cast<int64_t>(m.n_kv_heads) * m.head_dim;
  std::vector<int32_t> q_order, k_order;
  if (options.interleaved_rope) {
    q_order = HalfSplitOrder(m.n_heads, m.head_dim, attention.rope.n_rot);
    k_order = HalfSplitOrder(m.n_kv_heads, m.head_dim, attention.rope.n_rot);
  }
  WEIR_RETURN_IF_ERROR(loader.Load("token_embd.weight", m.n_vocab, m.n_embd, &embedding_));
  WEIR_RETURN_IF_ERROR(loader.Load("output_norm.weight", m.n_embd, &output_norm_));
  if (loader.Has("output.weight")) WEIR_RETURN_IF_ERROR(loader.Load("output.weight", m.n_vocab, m.n_embd, &output_));
  layers_.resize(static_cast<size_t>(m.n_layers));
  for (int32_t l = 0; l < m.n_layers; ++l) {
    PreNormLayer& layer = layers_[l];
    const std::string blk = "blk." + std::to_string(l) + ".";
    WEIR_RETURN_IF_ERROR(loader.Load(blk + "attn_norm.weight", m.n_embd, &layer.attn_norm));
    WEIR_RETURN_IF_ERROR(loader.Load(blk + "attn_q.weight", q_dim, m.n_embd, &layer.wq, q_order));
    WEIR_RETURN_IF_ERROR(loader.Load(blk + "attn_k.weight", kv_dim, m.n_embd, &layer.wk, k_order));
    WEIR_RETURN_IF_ERROR(loader.Load(blk + "attn_v.weight", kv_dim, m.n_embd, &layer.wv));
    WEIR_RETURN_IF_ERROR(loader.Load(blk + "attn_output.weight", m.n_embd, q_dim, &layer.wo));
    WEIR_RETURN_IF_ERROR(loader.LoadOptional(blk + "attn_q.bias", q_dim, &layer.bq, q_order));
    WEIR_RETURN_IF_ERROR(loader.LoadOptional(blk + "attn_k.bias", kv_dim, &layer.bk, k_order));
    WEIR_RETURN_IF_ERROR(loader.LoadOptional(blk + "attn_v.bias", kv_dim, &layer.bv));
    WEIR_RETURN_IF_ERROR(loader.LoadOptional(blk + "attn_output.bias", m.n_embd, &layer.bo));
    WEIR_RETURN_IF_ERROR(loader.Load(blk + "ffn_norm.weight", m.n_embd, &layer.ffn_norm));
    WEIR_RETURN_IF_ERROR(loader.Load(blk + "ffn_gate.weight", m.n_ff, m.n_embd, &layer.gate));
    WEIR_RETURN_IF_ERROR(loader.Load(blk + "ffn_up.weight", m.n_ff, m.n_embd, &layer.up));
    WEIR_RETURN_IF_ERROR(loader.Load(blk + "ffn_down.weight", m.n_embd, m.n_ff, &layer.down));
    WEIR_RETURN_IF_ERROR(loader.LoadOptional(blk + "ffn_gate.bias", m.n_ff, &layer.b_gate));
    WEIR_RETURN_IF_ERROR(loader.LoadOptional(blk + "ffn_up.bias", m.n_ff, &layer.b_up));
    WEIR_RETURN_IF_ERROR(loader.LoadOptional(blk + "ffn_down.bias", m.n_embd, &layer.b_down));
  }
  return loader.Finish();
}

int64_t PreNormDecoder::WeightBytesPerToken() const {
  int64_t bytes = head().bytes();
  for (const PreNormLayer& l : layers_) {
    for (const auto* w : {&l.wq, &l.wk, &l.wv, &l.wo, &l.gate, &l.up, &l.down}) bytes += (*w)->bytes();
  }
  return bytes;
}

int64_t PreNormDecoder::WorkspaceBytes(int64_t n) const {
  const AttentionLayout& a = config_.attention;
  const int64_t q_dim = static_cast<int64_t>(a.n_heads) * a.head_dim;
  const int64_t kv_dim = static_cast<int64_t>(a.n_kv_heads) * a.head_dim;
  const int64_t attention = 2 * AlignedBytes(n * q_dim * 4) + 2 * AlignedBytes(n * kv_dim * 4);
  const int64_t feed_forward = 2 * AlignedBytes(n * config_.n_ff * 4);
  const int64_t widest = std::max<int64_t>({config_.n_embd, config_.n_ff, q_dim});
  return AlignedBytes(n * config_.n_embd * 4) + std::max(attention, feed_forward) +
         AlignedBytes(backend_.MatMulScratchBytes(n, widest));
}

void PreNormDecoder::Forward(const ForwardArgs& args) {
  const AttentionLayout& a = config_.attention;
  const int64_t n = args.n_rows, n_embd = config_.n_embd, n_ff = config_.n_ff;
  const int64_t q_dim = static_cast<int64_t>(a.n_heads) * a.head_dim;
  const int64_t kv_dim = static_cast<int64_t>(a.n_kv_heads) * a.head_dim;

  float* x = args.hidden;  // the residual stream lives where the result goes
  Workspace bump(args.workspace);
  float* norm = bump.Floats(n * n_embd);
  const int64_t widest = std::max<int64_t>({n_embd, n_ff, q_dim});
  void* scratch = bump.Bytes(backend_.MatMulScratchBytes(n, widest));
  Workspace attention = bump, feed_forward = bump;  // the two halves of a block never live together
  float* q = attention.Floats(n * q_dim);
  float* k = attention.Floats(n * kv_dim);
  float* v = attention.Floats(n * kv_dim);
  float* mix = attention.Floats(n * q_dim);
  float* gate = feed_forward.Floats(n * n_ff);
  float* up = feed_forward.Floats(n * n_ff);

  auto observe = [&](const std::string& name, int64_t cols, const float* data) {
    if (args.observer != nullptr) (*args.observer)(name, n, cols, data);
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

  if (args.tokens != nullptr) {
    backend_.EmbedRows(*embedding_, args.tokens, n, x);
  } else {
    std::memcpy(x, args.embeddings, static_cast<size_t>(n * n_embd) * 4);
  }
  observe("embd", n_embd, x);
  // What a block adds to the residual stream is only computed apart when somebody wants to see it.
  const bool apart = args.observer != nullptr;
  std::vector<float> added(apart ? static_cast<size_t>(n * n_embd) : 0);
  auto add_to_stream = [&](const std::string& name, const float* in, int64_t n_in, const Matrix& w, const float* bias) {
    if (!apart) {
      product(in, n_in, {{&w, x, n_embd, bias, true}});
      return;
    }
    product(in, n_in, {{&w, added.data(), n_embd, bias, false}});
    observe(name, n_embd, added.data());
    for (int64_t i = 0; i < n * n_embd; ++i) x[i] += added[i];
  };

  for (int32_t l = 0; l < config_.n_layers; ++l) {
    const PreNormLayer& layer = layers_[l];
    const std::string blk = apart ? "blk." + std::to_string(l) + "." : std::string();
    backend_.RmsNorm({x, layer.attn_norm.get(), norm, n, n_embd, norm_eps_});
    observe(blk + "attn_norm", n_embd, norm);
    product(norm, n_embd,
            {{layer.wq.get(), q, q_dim, layer.bq.get(), false},
             {layer.wk.get(), k, kv_dim, layer.bk.get(), false},
             {layer.wv.get(), v, kv_dim, layer.bv.get(), false}});
    observe(blk + "q", q_dim, q);
    observe(blk + "k", kv_dim, k);
    observe(blk + "v", kv_dim, v);
    args.attender->Attend(l, q, k, v, mix);
    add_to_stream(blk + "attn_out", mix, q_dim, *layer.wo, layer.bo.get());

    backend_.RmsNorm({x, layer.ffn_norm.get(), norm, n, n_embd, norm_eps_});
    observe(blk + "ffn_norm", n_embd, norm);
    product(norm, n_embd,
            {{layer.gate.get(), gate, n_ff, layer.b_gate.get(), false},
             {layer.up.get(), up, n_ff, layer.b_up.get(), false}});
    backend_.SwiGlu({gate, up, gate, n * n_ff});
    add_to_stream(blk + "ffn_out", gate, n_ff, *layer.down, layer.b_down.get());
    observe(blk + "out", n_embd, x);
  }
  backend_.RmsNorm({x, output_norm_.get(), x, n, n_embd, norm_eps_});
  observe("final_norm", n_embd, x);
}

}  // namespace weir
