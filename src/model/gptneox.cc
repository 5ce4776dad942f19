// weir-plugin: architecture
// SPDX-License-Identifier: Apache-2.0
// GPT-NeoX and Pythia (arXiv 2204.06745, section 2; arXiv 2304.01373): layer norm, biases everywhere, rotary positions
// on the first part of every head, and, in most of them, attention and feed-forward side by side on one residual:
//
//   parallel:    x = x + attention(ln1(x)) + ffn(ln2(x))
//   sequential:  h = x + attention(ln1(x)),  x = h + ffn(ln2(h))
//   ffn(m) = down * gelu(up * m)
//
// The file holds q, k and v as one matrix [3 * n_embd, n_embd], q's rows first; it is split while loading.

#include "base/workspace.h"
#include "model/architecture.h"
#include "model/weights.h"

namespace weir {
namespace {

struct Layer {
  LayerNormWeights attn_norm, ffn_norm;
  std::unique_ptr<Matrix> wq, wk, wv, wo, up, down;
  Vector b_qkv, bo, b_up, b_down;  // b_qkv like the matrix: q, k, v
};

class GptNeox : public Model {
 public:
  explicit GptNeox(Backend& backend) : backend_(backend) {}

  Status Load(const GgufFile& file, Ledger& ledger);

  const Matrix& head() const override { return *output_; }
  int64_t WeightBytesPerToken() const override;
  int64_t WorkspaceBytes(int64_t max_rows) const override;
  void Forward(const ForwardArgs& args) override;

 private:
  Status LoadLayer(WeightLoader& loader, int32_t l);
  // One of the widths that a product reads.
  int64_t widest() const { return std::max(config_.n_embd, config_.n_ff); }
  void Normalise(const LayerNormWeights& norm, const float* x, int64_t n, float* y) {
    backend_.LayerNorm({x, norm.w.get(), norm.b.get(), y, n, config_.n_embd, norm_eps_});
  }

  Backend& backend_;
  float norm_eps_ = 0;
  bool parallel_ = true;
  std::unique_ptr<Matrix> embedding_, output_;  // [n_vocab, n_embd]
  LayerNormWeights output_norm_;
  std::vector<Layer> layers_;
};

Status GptNeox::Load(const GgufFile& file, Ledger& ledger) {
  constexpr char kArch[] = "gptneox";
  WEIR_ASSIGN_OR_RETURN(const DecoderMetadata m, ReadDecoderMetadata(file, kArch));
  if (m.n_kv_heads != m.n_heads || m.n_heads * m.head_dim != m.n_embd) {
    return Corrupt("{}: {} heads of size {} with {} KV heads do not make the {} columns of a {} model", file.path(),
                   m.n_heads, m.head_dim, m.n_kv_heads, m.n_embd, kArch);
  }
  WeightLoader loader(file, backend_, ledger);
  WEIR_RETURN_IF_ERROR(FillConfig(file, kArch, m, &config_));
  WEIR_ASSIGN_OR_RETURN(config_.attention.rope, ReadRopeConfig(file, kArch, m, loader));
  WEIR_ASSIGN_OR_RETURN(parallel_, file.BoolOr(std::string(kArch) + ".use_parallel_residual", true));
  norm_eps_ = m.norm_eps;

  WEIR_RETURN_IF_ERROR(loader.Load("token_embd.weight", m.n_vocab, m.n_embd, &embedding_));
  WEIR_RETURN_IF_ERROR(loader.Load("output_norm", m.n_embd, &output_norm_));
  WEIR_RETURN_IF_ERROR(loader.Load("output.weight", m.n_vocab, m.n_embd, &output_));
  layers_.resize(static_cast<size_t>(m.n_layers));
  for (int32_t l = 0; l < m.n_layers; ++l) WEIR_RETURN_IF_ERROR(LoadLayer(loader, l));
  return loader.Finish();
}

Status GptNeox::LoadLayer(WeightLoader& loader, int32_t l) {
  Layer& layer = layers_[l];
  const int64_t n_embd = config_.n_embd, n_ff = config_.n_ff;
  const std::string blk = "blk." + std::to_string(l) + ".";
  WEIR_RETURN_IF_ERROR(loader.Load(blk + "attn_norm", n_embd, &layer.attn_norm));
  const std::string qkv = blk + "attn_qkv.weight";
  WEIR_RETURN_IF_ERROR(loader.LoadRows(qkv, 3 * n_embd, n_embd, 0, n_embd, &layer.wq));
  WEIR_RETURN_IF_ERROR(loader.LoadRows(qkv, 3 * n_embd, n_embd, n_embd, n_embd, &layer.wk));
  WEIR_RETURN_IF_ERROR(loader.LoadRows(qkv, 3 * n_embd, n_embd, 2 * n_embd, n_embd, &layer.wv));
  WEIR_RETURN_IF_ERROR(loader.Load(blk + "attn_qkv.bias", 3 * n_embd, &layer.b_qkv));
  WEIR_RETURN_IF_ERROR(loader.Load(blk + "attn_output.weight", n_embd, n_embd, &layer.wo));
  WEIR_RETURN_IF_ERROR(loader.Load(blk + "attn_output.bias", n_embd, &layer.bo));
  WEIR_RETURN_IF_ERROR(loader.Load(blk + "ffn_norm", n_embd, &layer.ffn_norm));
  WEIR_RETURN_IF_ERROR(loader.Load(blk + "ffn_up.weight", n_ff, n_embd, &layer.up));
  WEIR_RETURN_IF_ERROR(loader.Load(blk + "ffn_up.bias", n_ff, &layer.b_up));
  WEIR_RETURN_IF_ERROR(loader.Load(blk + "ffn_down.weight", n_embd, n_ff, &layer.down));
  return loader.Load(blk + "ffn_down.bias", n_embd, &layer.b_down);
}

int64_t GptNeox::WeightBytesPerToken() const {
  int64_t bytes = output_->bytes();
  for (const Layer& l : layers_) {
    for (const auto* w : {&l.wq, &l.wk, &l.wv, &l.wo, &l.up, &l.down}) bytes += (*w)->bytes();
  }
  return bytes;
}

int64_t GptNeox::WorkspaceBytes(int64_t n) const {
  // Two norms, then either q, k, v and their attention output or the feed-forward layer.
  const int64_t row = AlignedBytes(n * config_.n_embd * 4);
  return 2 * row + std::max(4 * row, AlignedBytes(n * config_.n_ff * 4)) +
         AlignedBytes(backend_.MatMulScratchBytes(n, widest()));
}

void GptNeox::Forward(const ForwardArgs& args) {
  int64_t n = args.n_rows;
  const int64_t n_embd = config_.n_embd, n_ff = config_.n_ff;
  float* x = args.hidden;  // the residual stream is in the output's memory
  Workspace bump(args.workspace);
  float* attn_norm = bump.Floats(n * n_embd);
  float* ffn_norm = bump.Floats(n * n_embd);
  void* scratch = bump.Bytes(backend_.MatMulScratchBytes(n, widest()));
  Workspace attention = bump, feed_forward = bump;  // the two halves of a block are never live together
  float* q = attention.Floats(n * n_embd);
  float* k = attention.Floats(n * n_embd);
  float* v = attention.Floats(n * n_embd);
  float* mix = attention.Floats(n * n_embd);
  float* up = feed_forward.Floats(n * n_ff);

  const bool watched = args.observer != nullptr;
  auto observe = [&](const std::string& name, int64_t cols, const float* data) {
    if (watched) Observe(backend_, *args.observer, name, n, cols, data);
  };
  auto product = [&](const float* in, int64_t n_in, std::initializer_list<MatMulOut> outs) {
    backend_.MatMul({in, n_in, n, n_in, {outs.begin(), outs.size()}, scratch});
  };
  // x += w * in + bias. With an observer, the sum's second part is computed separately, in memory that is free then.
  auto add_to_stream = [&](const std::string& name, const float* in, int64_t n_in, const Matrix& w, const Vector& bias,
                           float* apart) {
    if (!watched) return product(in, n_in, {{&w, x, n_embd, bias.get(), true}});
    product(in, n_in, {{&w, apart, n_embd, bias.get(), false}});
    observe(name, n_embd, apart);
    backend_.Add({x, apart, x, n * n_embd});
  };

  if (args.tokens != nullptr) {
    backend_.EmbedRows(*embedding_, args.tokens, n, x);
  } else {
    backend_.Copy(x, args.embeddings, n * n_embd * 4);
  }
  observe("embd", n_embd, x);
  for (int32_t l = 0; l < config_.n_layers; ++l) {
    const Layer& layer = layers_[l];
    const std::string blk = watched ? "blk." + std::to_string(l) + "." : std::string();
    Normalise(layer.attn_norm, x, n, attn_norm);
    observe(blk + "attn_norm", n_embd, attn_norm);
    if (parallel_) Normalise(layer.ffn_norm, x, n, ffn_norm);
    const float* bias = layer.b_qkv.get();
    product(attn_norm, n_embd,
            {{layer.wq.get(), q, n_embd, bias, false},
             {layer.wk.get(), k, n_embd, bias + n_embd, false},
             {layer.wv.get(), v, n_embd, bias + 2 * n_embd, false}});
    observe(blk + "q", n_embd, q);
    observe(blk + "k", n_embd, k);
    observe(blk + "v", n_embd, v);
    args.attender->Attend(l, q, k, v, mix);
    if (l + 1 == config_.n_layers) {
      // Nothing after the last attention reads another row.
      n -= args.first_hidden;
      for (float** rows : {&x, &mix, &ffn_norm}) *rows += args.first_hidden * n_embd;
    }
    add_to_stream(blk + "attn_out", mix, n_embd, *layer.wo, layer.bo, attn_norm);

    if (!parallel_) Normalise(layer.ffn_norm, x, n, ffn_norm);
    observe(blk + "ffn_norm", n_embd, ffn_norm);
    product(ffn_norm, n_embd, {{layer.up.get(), up, n_ff, layer.b_up.get(), false}});
    backend_.Gelu({GeluKind::kErf, up, up, n * n_ff});
    add_to_stream(blk + "ffn_out", up, n_ff, *layer.down, layer.b_down, ffn_norm);
    observe(blk + "out", n_embd, x);
  }
  Normalise(output_norm_, x, n, x);
  observe("final_norm", n_embd, x);
}

}  // namespace

extern const ArchitectureInfo kGptneox;
const ArchitectureInfo kGptneox = {
    .name = "gptneox",
    .models = "Pythia, GPT-NeoX",
    .load = [](const GgufFile& file, Backend& backend, Ledger& ledger) -> Result<std::unique_ptr<Model>> {
      auto model = std::make_unique<GptNeox>(backend);
      WEIR_RETURN_IF_ERROR(model->Load(file, ledger));
      return std::unique_ptr<Model>(std::move(model));
    },
};

}  // namespace weir
