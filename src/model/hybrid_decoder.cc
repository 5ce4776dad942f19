// SPDX-License-Identifier: Apache-2.0
#include "model/hybrid_decoder.h"

#include <algorithm>

#include "base/workspace.h"

namespace weir {

Status HybridDecoder::Load(const GgufFile& file, const DecoderMetadata& m, const Family& family,
                           WeightLoader& loader) {
  if (!backend_.on_host()) {
    return Unsupported("{}: architecture '{}' runs on the CPU only; leave --device away", file.path(), family.arch);
  }
  norm_eps_ = m.norm_eps;
  const int64_t n_embd = m.n_embd, n_ff = m.n_ff;
  WEIR_RETURN_IF_ERROR(loader.Load("token_embd.weight", m.n_vocab, n_embd, &embedding_));
  WEIR_RETURN_IF_ERROR(loader.Load(family.output_norm, n_embd, &output_norm_));
  if (loader.Has("output.weight")) WEIR_RETURN_IF_ERROR(loader.Load("output.weight", m.n_vocab, n_embd, &output_));
  layers_.resize(static_cast<size_t>(m.n_layers));
  AttentionLayout& attention = config_.attention;
  attention.n_layers = 0;
  for (int32_t l = 0; l < m.n_layers; ++l) {
    Layer& layer = layers_[static_cast<size_t>(l)];
    const std::string blk = "blk." + std::to_string(l) + ".";
    WEIR_RETURN_IF_ERROR(loader.Load(blk + "attn_norm.weight", n_embd, &layer.attn_norm));
    WEIR_ASSIGN_OR_RETURN(Family::Mixer made, family.mixer(loader, l, blk));
    layer.mixer = std::move(made.mixer);
    WEIR_RETURN_IF_ERROR(loader.Load(blk + made.out, n_embd, layer.mixer->n_out(), &layer.out));
    if (layer.mixer->n_state() == 0) {
      layer.mixer->Place(attention.n_layers++);
    } else {
      layer.mixer->Place(attention.n_state);
      attention.n_state += layer.mixer->n_state();
    }
    WEIR_RETURN_IF_ERROR(loader.Load(blk + family.ffn_norm, n_embd, &layer.ffn_norm));
    WEIR_RETURN_IF_ERROR(loader.Load(blk + "ffn_gate.weight", n_ff, n_embd, &layer.gate));
    WEIR_RETURN_IF_ERROR(loader.Load(blk + "ffn_up.weight", n_ff, n_embd, &layer.up));
    WEIR_RETURN_IF_ERROR(loader.Load(blk + "ffn_down.weight", n_embd, n_ff, &layer.down));
  }
  if (attention.n_layers == 0) {
    return Unsupported("{}: no layer of this model attends, so there is nothing for a pot to hold", file.path());
  }
  return loader.Finish();
}

int64_t HybridDecoder::WeightBytesPerToken() const {
  int64_t bytes = head().bytes();
  for (const Layer& l : layers_) {
    bytes += l.mixer->WeightBytes();
    for (const auto* w : {&l.out, &l.gate, &l.up, &l.down}) bytes += (*w)->bytes();
  }
  return bytes;
}

int64_t HybridDecoder::widest() const {
  int64_t widest = std::max(config_.n_embd, config_.n_ff);
  for (const Layer& l : layers_) widest = std::max({widest, l.mixer->widest(), l.mixer->n_out()});
  return widest;
}

int64_t HybridDecoder::WorkspaceBytes(int64_t n) const {
  int64_t mixing = 0;
  for (const Layer& l : layers_) {
    mixing = std::max(mixing, AlignedBytes(n * l.mixer->n_out() * 4) + l.mixer->WorkspaceBytes(n));
  }
  const int64_t feed_forward = 2 * AlignedBytes(n * config_.n_ff * 4);
  return AlignedBytes(n * config_.n_embd * 4) + std::max(mixing, feed_forward) +
         AlignedBytes(backend_.MatMulScratchBytes(n, widest()));
}

void HybridDecoder::Forward(const ForwardArgs& args) {
  int64_t n = args.n_rows;
  const int64_t n_embd = config_.n_embd, n_ff = config_.n_ff;
  float* x = args.hidden;  // the residual stream is in the output's memory
  Workspace bump(args.workspace);
  float* const norm = bump.Floats(n * n_embd);
  void* const scratch = bump.Bytes(backend_.MatMulScratchBytes(n, widest()));

  const bool watched = args.observer != nullptr;
  auto observe = [&](const std::string& name, int64_t cols, const float* data) {
    if (watched) Observe(backend_, *args.observer, name, n, cols, data);
  };
  auto product = [&](const float* in, int64_t n_in, std::initializer_list<MatMulOut> outs) {
    backend_.MatMul({in, n_in, n, n_in, {outs.begin(), outs.size()}, scratch});
  };
  // x += w * in. With an observer, the sum's second part is computed separately, in memory that is free then.
  auto add_to_stream = [&](const std::string& name, const float* in, int64_t n_in, const Matrix& w) {
    if (!watched) return product(in, n_in, {{&w, x, n_embd, nullptr, true}});
    product(in, n_in, {{&w, norm, n_embd, nullptr, false}});
    observe(name, n_embd, norm);
    backend_.Add({x, norm, x, n * n_embd});
  };

  if (args.tokens != nullptr) {
    backend_.EmbedRows(*embedding_, args.tokens, n, x);
  } else {
    backend_.Copy(x, args.embeddings, n * n_embd * 4);
  }
  observe("embd", n_embd, x);
  for (size_t l = 0; l < layers_.size(); ++l) {
    const Layer& layer = layers_[l];
    const std::string blk = watched ? "blk." + std::to_string(l) + "." : std::string();
    backend_.RmsNorm({x, layer.attn_norm.get(), norm, n, n_embd, norm_eps_});
    observe(blk + "attn_norm", n_embd, norm);
    Workspace mixing = bump, feed_forward = bump;  // never live together
    const int64_t n_out = layer.mixer->n_out();
    float* mix = mixing.Floats(n * n_out);
    TokenMixer::Call call{.attender = args.attender, .x = norm, .n_rows = n, .out = mix, .space = mixing,
                          .scratch = scratch, .observe = {}};
    if (watched) {
      call.observe = [&](const char* name, int64_t cols, const float* data) { observe(blk + name, cols, data); };
    }
    layer.mixer->Run(call);
    if (l + 1 == layers_.size()) {
      // Nothing after the last mixer reads another row.
      n -= args.first_hidden;
      x += args.first_hidden * n_embd;
      mix += args.first_hidden * n_out;
    }
    add_to_stream(blk + "attn_out", mix, n_out, *layer.out);

    float* const gate = feed_forward.Floats(n * n_ff);
    float* const up = feed_forward.Floats(n * n_ff);
    backend_.RmsNorm({x, layer.ffn_norm.get(), norm, n, n_embd, norm_eps_});
    observe(blk + "ffn_norm", n_embd, norm);
    product(norm, n_embd, {{layer.gate.get(), gate, n_ff, nullptr, false}, {layer.up.get(), up, n_ff, nullptr, false}});
    backend_.SwiGlu({gate, up, gate, n * n_ff});
    add_to_stream(blk + "ffn_out", gate, n_ff, *layer.down);
    observe(blk + "out", n_embd, x);
  }
  backend_.RmsNorm({x, output_norm_.get(), x, n, n_embd, norm_eps_});
  observe("final_norm", n_embd, x);
}

}  // namespace weir
