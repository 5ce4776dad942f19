// weir-plugin: architecture
// SPDX-License-Identifier: Apache-2.0
// OPT ("OPT: Open Pre-trained Transformer Language Models", 2205.01068): learned positions added to the embeddings,
// layer norm with a bias, biases everywhere, ReLU, head tied to the embedding.
//
//   x_0 = embedding + position
//   norm before (all sizes but 350M)    h = x + attn(norm1(x)),    x' = h + ffn(norm2(h)),   final norm
//   norm after (350M)                   h = norm1(x + attn(x)),    x' = norm2(h + ffn(h)),   no final norm
//
// Positions come from the Attender. What was added at the input is part of every key and value, so that a kept entry
// cannot be renumbered when others leave (docs/decisions/0006-learned-positions.md).
//
// No other program defines names for this architecture in GGUF; these follow those of its relatives:
//   opt.*                 the keys of every decoder; attention.layer_norm_epsilon; opt.norm_before, true where absent
//   position_embd.weight  [context_length, n_embd], without the two rows that the original table has in front
//   attn_norm, ffn_norm   the first and second norm of a block; output_norm only where norms come before
//   output.weight         where the head is not the embedding. 350M's embeddings are half as wide as the model, with a
//                         projection on both sides; the converter multiplies both into the tables.
#include <algorithm>
#include <vector>

#include "base/workspace.h"
#include "model/architecture.h"
#include "model/weights.h"

namespace weir {
namespace {

struct Layer {
  LayerNormWeights attn_norm, ffn_norm;
  LinearWeights q, k, v, out, up, down;
};

class Opt final : public Model {
 public:
  explicit Opt(Backend& backend) : backend_(backend) {}

  Status Load(const GgufFile& file, Ledger& ledger);
  const Matrix& head() const override { return output_ ? *output_ : *embedding_; }
  int64_t WeightBytesPerToken() const override;
  int64_t WorkspaceBytes(int64_t n) const override {
    const int64_t d = config_.n_embd;
    return 2 * AlignedBytes(n * d * 4) + std::max(4 * AlignedBytes(n * d * 4), AlignedBytes(n * config_.n_ff * 4)) +
           AlignedBytes(backend_.MatMulScratchBytes(n, std::max(config_.n_embd, config_.n_ff)));
  }
  void Forward(const ForwardArgs& args) override;

 private:
  Backend& backend_;
  float eps_ = 0;
  bool norm_before_ = true;
  std::unique_ptr<Matrix> embedding_, positions_;  // [n_vocab, n_embd], [n_positions, n_embd]
  std::unique_ptr<Matrix> output_;                 // [n_vocab, n_embd], or null when tied to the embedding
  LayerNormWeights output_norm_;
  std::vector<Layer> layers_;
};

Status Opt::Load(const GgufFile& file, Ledger& ledger) {
  WEIR_ASSIGN_OR_RETURN(const DecoderMetadata m, ReadDecoderMetadata(file, "opt"));
  if (m.n_kv_heads != m.n_heads || m.n_heads * m.head_dim != m.n_embd) {
    return Corrupt("{}: {} heads and {} KV heads of {} columns do not make a width of {}", file.path(), m.n_heads,
                   m.n_kv_heads, m.head_dim, m.n_embd);
  }
  WEIR_RETURN_IF_ERROR(FillConfig(file, "opt", m, &config_));
  WEIR_ASSIGN_OR_RETURN(norm_before_, file.BoolOr("opt.norm_before", true));
  config_.attention.n_learned_positions = m.n_ctx_train;
  eps_ = m.norm_eps;

  WeightLoader loader(file, backend_, ledger);
  const int64_t d = m.n_embd;
  WEIR_RETURN_IF_ERROR(loader.Load("token_embd.weight", m.n_vocab, d, &embedding_));
  WEIR_RETURN_IF_ERROR(loader.Load("position_embd.weight", m.n_ctx_train, d, &positions_));
  if (loader.Has("output.weight")) WEIR_RETURN_IF_ERROR(loader.Load("output.weight", m.n_vocab, d, &output_));
  if (norm_before_) WEIR_RETURN_IF_ERROR(loader.Load("output_norm", d, &output_norm_));
  layers_.resize(static_cast<size_t>(m.n_layers));
  for (int32_t l = 0; l < m.n_layers; ++l) {
    Layer& layer = layers_[l];
    const std::string blk = "blk." + std::to_string(l) + ".";
    WEIR_RETURN_IF_ERROR(loader.Load(blk + "attn_norm", d, &layer.attn_norm));
    WEIR_RETURN_IF_ERROR(loader.Load(blk + "attn_q", d, d, &layer.q));
    WEIR_RETURN_IF_ERROR(loader.Load(blk + "attn_k", d, d, &layer.k));
    WEIR_RETURN_IF_ERROR(loader.Load(blk + "attn_v", d, d, &layer.v));
    WEIR_RETURN_IF_ERROR(loader.Load(blk + "attn_output", d, d, &layer.out));
    WEIR_RETURN_IF_ERROR(loader.Load(blk + "ffn_norm", d, &layer.ffn_norm));
    WEIR_RETURN_IF_ERROR(loader.Load(blk + "ffn_up", m.n_ff, d, &layer.up));
    WEIR_RETURN_IF_ERROR(loader.Load(blk + "ffn_down", d, m.n_ff, &layer.down));
  }
  return loader.Finish();
}

int64_t Opt::WeightBytesPerToken() const {
  int64_t bytes = head().bytes();
  for (const Layer& l : layers_) {
    for (const LinearWeights* linear : {&l.q, &l.k, &l.v, &l.out, &l.up, &l.down}) bytes += linear->w->bytes();
  }
  return bytes;
}

void Opt::Forward(const ForwardArgs& args) {
  int64_t n = args.n_rows;
  const int64_t d = config_.n_embd, n_ff = config_.n_ff;
  float* x = args.hidden;  // the residual stream is in the output's memory
  Workspace space(args.workspace);
  float* norm = space.Floats(n * d);
  float* added = space.Floats(n * d);
  void* scratch = space.Bytes(backend_.MatMulScratchBytes(n, std::max(d, n_ff)));
  Workspace attention = space, feed_forward = space;  // the two halves of a block are never live together
  float *q = attention.Floats(n * d), *k = attention.Floats(n * d), *v = attention.Floats(n * d),
        *mix = attention.Floats(n * d);
  float* wide = feed_forward.Floats(n * n_ff);

  const auto observe = [&](const std::string& name, int64_t cols, const float* data) {
    if (args.observer != nullptr) Observe(backend_, *args.observer, name, n, cols, data);
  };
  const auto product = [&](const float* in, int64_t n_in, std::initializer_list<MatMulOut> outs) {
    MatMulArgs mm;
    mm.x = in;
    mm.x_stride = mm.n_in = n_in;
    mm.n_rows = n;
    mm.outs = {outs.begin(), outs.size()};
    mm.scratch = scratch;
    backend_.MatMul(mm);
  };
  const auto layer_norm = [&](const float* in, const LayerNormWeights& w, float* out) {
    backend_.LayerNorm({in, w.w.get(), w.b.get(), out, n, d, eps_});
  };
  const auto add = [&](const float* what) { backend_.Add({x, what, x, n * d}); };

  if (args.tokens != nullptr) {
    backend_.EmbedRows(*embedding_, args.tokens, n, x);
  } else {
    backend_.Copy(x, args.embeddings, n * d * 4);
  }
  backend_.EmbedRows(*positions_, args.attender->positions(), n, added);
  add(added);
  observe("embd", d, x);

  for (int32_t l = 0; l < config_.n_layers; ++l) {
    const Layer& layer = layers_[l];
    const std::string blk = args.observer == nullptr ? std::string() : "blk." + std::to_string(l) + ".";
    if (norm_before_) {
      layer_norm(x, layer.attn_norm, norm);
      observe(blk + "attn_norm", d, norm);
    }
    const auto in = [&] { return norm_before_ ? norm : x; };  // x changes its memory in the last layer
    product(in(), d,
            {{layer.q.w.get(), q, d, layer.q.b.get(), false},
             {layer.k.w.get(), k, d, layer.k.b.get(), false},
             {layer.v.w.get(), v, d, layer.v.b.get(), false}});
    observe(blk + "q", d, q);
    observe(blk + "k", d, k);
    observe(blk + "v", d, v);
    args.attender->Attend(l, q, k, v, mix);
    if (l + 1 == config_.n_layers) {
      // Nothing after the last attention reads another row.
      n -= args.first_hidden;
      x += args.first_hidden * d;
      mix += args.first_hidden * d;
    }
    product(mix, d, {{layer.out.w.get(), added, d, layer.out.b.get(), false}});
    observe(blk + "attn_out", d, added);
    add(added);
    if (norm_before_) {
      layer_norm(x, layer.ffn_norm, norm);
      observe(blk + "ffn_norm", d, norm);
    } else {
      layer_norm(x, layer.attn_norm, x);
      observe(blk + "attn_norm", d, x);
    }
    product(in(), d, {{layer.up.w.get(), wide, n_ff, layer.up.b.get(), false}});
    backend_.Relu({wide, wide, n * n_ff});
    product(wide, n_ff, {{layer.down.w.get(), added, d, layer.down.b.get(), false}});
    observe(blk + "ffn_out", d, added);
    add(added);
    if (!norm_before_) {
      layer_norm(x, layer.ffn_norm, x);
      observe(blk + "ffn_norm", d, x);
    }
    observe(blk + "out", d, x);
  }
  if (norm_before_) layer_norm(x, output_norm_, x);
  observe("final_norm", d, x);
}

}  // namespace

extern const ArchitectureInfo kOpt;
const ArchitectureInfo kOpt = {
    .name = "opt",
    .models = "OPT (the language model of BLIP-2)",
    .load = [](const GgufFile& file, Backend& backend, Ledger& ledger) -> Result<std::unique_ptr<Model>> {
      auto model = std::make_unique<Opt>(backend);
      WEIR_RETURN_IF_ERROR(model->Load(file, ledger));
      return std::unique_ptr<Model>(std::move(model));
    },
};

}  // namespace weir
