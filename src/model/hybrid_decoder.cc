// SPDX-License-Identifier: Apache-2.0
#include "model/hybrid_decoder.h"

#include <algorithm>

#include "base/workspace.h"

namespace weir {

Status HybridDecoder::Load(const GgufFile& file, const DecoderMetadata& m, const Family& family, WeightLoader& loader) {
  norm_eps_ = m.norm_eps;
  embedding_scale_ = family.embedding_scale;
  residual_scale_ = family.residual_scale;
  const int64_t n_embd = m.n_embd;
  WEIR_RETURN_IF_ERROR(loader.Load("token_embd.weight", m.n_vocab, n_embd, &embedding_));
  WEIR_RETURN_IF_ERROR(loader.Load(family.output_norm, n_embd, &output_norm_));
  if (family.logit_scale != 1) WEIR_RETURN_IF_ERROR(loader.Scale(family.logit_scale, &output_norm_));
  if (loader.Has("output.weight")) WEIR_RETURN_IF_ERROR(loader.Load("output.weight", m.n_vocab, n_embd, &output_));
  layers_.resize(static_cast<size_t>(m.n_layers));
  AttentionLayout& attention = config_.attention;
  attention.n_layers = 0;
  for (int32_t l = 0; l < m.n_layers; ++l) {
    Layer& layer = layers_[static_cast<size_t>(l)];
    const std::string blk = "blk." + std::to_string(l) + ".";
    WEIR_ASSIGN_OR_RETURN(Parts parts, family.layer(loader, l, blk));
    WEIR_RETURN_IF_ERROR(LoadMixers(loader, blk, std::move(parts.mixers), &layer));
    layer.feed_forward = std::move(parts.feed_forward);
    if (layer.feed_forward) WEIR_RETURN_IF_ERROR(loader.Load(blk + parts.ffn_norm, n_embd, &layer.ffn_norm));
  }
  if (attention.n_layers == 0) {
    return Unsupported("{}: no layer of this model attends, so there is nothing for a pot to hold", file.path());
  }
  return loader.Finish();
}

Status HybridDecoder::LoadMixers(WeightLoader& loader, const std::string& blk, std::vector<Mixer> mixers,
                                 Layer* layer) {
  if (mixers.empty()) return Status();
  WEIR_RETURN_IF_ERROR(loader.Load(blk + "attn_norm.weight", config_.n_embd, &layer->attn_norm));
  AttentionLayout& attention = config_.attention;
  for (Mixer& made : mixers) {
    LoadedMixer part{std::move(made.mixer), nullptr};
    WEIR_RETURN_IF_ERROR(loader.Load(blk + made.out, config_.n_embd, part.mixer->n_out(), &part.out));
    if (part.mixer->n_state() == 0) {
      part.mixer->Place(attention.n_layers++);
    } else {
      part.mixer->Place(attention.n_state);
      attention.n_state += part.mixer->n_state();
      ++attention.n_state_layers;
    }
    layer->mixers.push_back(std::move(part));
  }
  return Status();
}

int64_t HybridDecoder::WeightBytesPerToken() const {
  int64_t bytes = head().bytes();
  for (const Layer& l : layers_) {
    for (const LoadedMixer& m : l.mixers) bytes += m.mixer->WeightBytes() + m.out->bytes();
    if (l.feed_forward) bytes += l.feed_forward->WeightBytes();
  }
  return bytes;
}

int64_t HybridDecoder::widest() const {
  int64_t widest = config_.n_embd;
  for (const Layer& l : layers_) {
    for (const LoadedMixer& m : l.mixers) widest = std::max({widest, m.mixer->widest(), m.mixer->n_out()});
    if (l.feed_forward) widest = std::max(widest, l.feed_forward->widest());
  }
  return widest;
}

int64_t HybridDecoder::WorkspaceBytes(int64_t n) const {
  int64_t part = 0;  // a layer's parts are never live together
  for (const Layer& l : layers_) {
    for (const LoadedMixer& m : l.mixers) {
      part = std::max(part, AlignedBytes(n * m.mixer->n_out() * 4) + m.mixer->WorkspaceBytes(n));
    }
    if (l.feed_forward) part = std::max(part, l.feed_forward->WorkspaceBytes(n));
  }
  // Two rows of the stream's width: a part's input, and its result where that is not added at once.
  return 2 * AlignedBytes(n * config_.n_embd * 4) + part + AlignedBytes(backend_.MatMulScratchBytes(n, widest()));
}

int64_t HybridDecoder::HostWorkspaceBytes(int64_t n) const {
  int64_t bytes = 0;  // no two layers use it at the same time
  for (const Layer& l : layers_) {
    if (l.feed_forward) bytes = std::max(bytes, l.feed_forward->HostBytes(n));
  }
  return bytes;
}

void HybridDecoder::Forward(const ForwardArgs& args) {
  int64_t n = args.n_rows;
  const int64_t n_embd = config_.n_embd;
  float* x = args.hidden;  // the residual stream is in the output's memory
  Workspace bump(args.workspace);
  float* const norm = bump.Floats(n * n_embd);
  float* apart = bump.Floats(n * n_embd);
  void* const scratch = bump.Bytes(backend_.MatMulScratchBytes(n, widest()));

  const bool watched = args.observer != nullptr;
  auto observe = [&](const std::string& name, int64_t cols, const float* data) {
    if (watched) Observe(backend_, *args.observer, name, n, cols, data);
  };
  // Parts add to the stream themselves, unless their results are scaled or observed before.
  const bool at_once = !watched && residual_scale_ == 1;
  auto add = [&](const std::string& name) {
    if (at_once) return;
    observe(name, n_embd, apart);
    if (residual_scale_ != 1) backend_.Scale({residual_scale_, apart, apart, n * n_embd});
    backend_.Add({x, apart, x, n * n_embd});
  };

  if (args.tokens != nullptr) {
    backend_.EmbedRows(*embedding_, args.tokens, n, x);
    if (embedding_scale_ != 1) backend_.Scale({embedding_scale_, x, x, n * n_embd});
  } else {
    backend_.Copy(x, args.embeddings, n * n_embd * 4);
  }
  observe("embd", n_embd, x);
  // Nothing after the last mixer reads another row.
  size_t last = layers_.size() - 1;
  while (layers_[last].mixers.empty()) --last;
  for (size_t l = 0; l < layers_.size(); ++l) {
    const Layer& layer = layers_[l];
    const std::string blk = watched ? "blk." + std::to_string(l) + "." : std::string();
    if (!layer.mixers.empty()) {
      backend_.RmsNorm({x, layer.attn_norm.get(), norm, n, n_embd, norm_eps_});
      observe(blk + "attn_norm", n_embd, norm);
      const int64_t first = l == last ? args.first_hidden : 0;
      for (const LoadedMixer& part : layer.mixers) {
        Workspace space = bump;
        const int64_t n_out = part.mixer->n_out();
        float* const mix = space.Floats(n * n_out);
        TokenMixer::Call call{.attender = args.attender,
                              .x = norm,
                              .n_rows = n,
                              .out = mix,
                              .space = space,
                              .scratch = scratch,
                              .observe = {}};
        if (watched) {
          call.observe = [&](const char* name, int64_t cols, const float* data) { observe(blk + name, cols, data); };
        }
        part.mixer->Run(call);
        float* const to = (at_once ? x : apart) + first * n_embd;
        const MatMulOut out = {part.out.get(), to, n_embd, nullptr, at_once || &part != &layer.mixers.front()};
        backend_.MatMul({mix + first * n_out, n_out, n - first, n_out, {&out, 1}, scratch});
      }
      n -= first;
      x += first * n_embd;
      apart += first * n_embd;
      add(blk + "attn_out");
    }
    if (layer.feed_forward) {
      backend_.RmsNorm({x, layer.ffn_norm.get(), norm, n, n_embd, norm_eps_});
      observe(blk + "ffn_norm", n_embd, norm);
      layer.feed_forward->Run(norm, n, at_once ? x : apart, at_once, bump, args.host_workspace, scratch);
      add(blk + "ffn_out");
    }
    observe(blk + "out", n_embd, x);
  }
  backend_.RmsNorm({x, output_norm_.get(), x, n, n_embd, norm_eps_});
  observe("final_norm", n_embd, x);
}

}  // namespace weir
