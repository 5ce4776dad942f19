// weir-plugin: encoder
// CLIP's vision transformer with LLaVA-1.5's projector ("Improved Baselines with Visual Instruction Tuning",
// 2310.03744, section 3.2): the patches' hidden states before the last block, through two layers with a GELU between
// them. The class token takes part in attention and is dropped. Files of LLaVA-1.6 name grids of tiles beside that.
#include <algorithm>
#include <cmath>
#include <cstring>
#include <vector>

#include "base/workspace.h"
#include "model/weights.h"
#include "vision/encoder.h"
#include "vision/vit.h"

namespace weir {
namespace {

struct Block {
  LayerNormWeights ln1, ln2;
  LinearWeights q, k, v, out, up, down;
};

class Clip final : public Encoder {
 public:
  explicit Clip(Backend& backend) : backend_(backend) {}

  Status Load(const GgufFile& file, Ledger& ledger) {
    WEIR_RETURN_IF_ERROR(ReadMetadata(file));
    WeightLoader loader(file, backend_, ledger);
    WEIR_RETURN_IF_ERROR(input_.Load(loader, vit_));
    WEIR_RETURN_IF_ERROR(loader.Load("v.pre_ln", vit_.n_embd, &pre_ln_));
    blocks_.resize(static_cast<size_t>(depth_));
    for (int64_t l = 0; l < depth_; ++l) {
      Block& block = blocks_[l];
      const std::string name = "v.blk." + std::to_string(l) + ".";
      WEIR_RETURN_IF_ERROR(loader.Load(name + "ln1", vit_.n_embd, &block.ln1));
      WEIR_RETURN_IF_ERROR(loader.Load(name + "ln2", vit_.n_embd, &block.ln2));
      WEIR_RETURN_IF_ERROR(loader.Load(name + "attn_q", vit_.n_embd, vit_.n_embd, &block.q));
      WEIR_RETURN_IF_ERROR(loader.Load(name + "attn_k", vit_.n_embd, vit_.n_embd, &block.k));
      WEIR_RETURN_IF_ERROR(loader.Load(name + "attn_v", vit_.n_embd, vit_.n_embd, &block.v));
      WEIR_RETURN_IF_ERROR(loader.Load(name + "attn_out", vit_.n_embd, vit_.n_embd, &block.out));
      // Files of the first converters have the two layers' names exchanged; their shapes tell.
      const GgufTensor* up = file.Tensor(name + "ffn_up.weight");
      const bool swapped =
          vit_.n_ff != vit_.n_embd && up != nullptr && up->shape == std::vector<int64_t>{vit_.n_embd, vit_.n_ff};
      WEIR_RETURN_IF_ERROR(loader.Load(name + (swapped ? "ffn_down" : "ffn_up"), vit_.n_ff, vit_.n_embd, &block.up));
      WEIR_RETURN_IF_ERROR(loader.Load(name + (swapped ? "ffn_up" : "ffn_down"), vit_.n_embd, vit_.n_ff, &block.down));
    }
    // Blocks behind the chosen layer are in most files and never run.
    for (int64_t l = depth_; l < vit_.n_layers; ++l) loader.Skip("v.blk." + std::to_string(l) + ".");
    const GgufTensor* first = file.Tensor("mm.0.weight");
    const GgufTensor* second = file.Tensor("mm.2.weight");
    if (first == nullptr || second == nullptr) {
      return NotFound("%s: tensors mm.0.weight and mm.2.weight, the projector, are missing", file.path().c_str());
    }
    n_hidden_ = first->shape.front();
    const int64_t n_out = second->shape.front();
    if (n_hidden_ > (1 << 17) || n_out > (1 << 17)) {
      return Corrupt("%s: a projector of %lld and %lld rows", file.path().c_str(), static_cast<long long>(n_hidden_),
                     static_cast<long long>(n_out));
    }
    config_.n_embd = static_cast<int32_t>(n_out);
    if (!config_.grids.empty()) {
      WEIR_RETURN_IF_ERROR(loader.Load("model.image_newline", n_out, &newline_));
      config_.newline = newline_.data;
    }
    WEIR_RETURN_IF_ERROR(loader.Load("mm.0", n_hidden_, vit_.n_embd, &mm0_));
    WEIR_RETURN_IF_ERROR(loader.Load("mm.2", n_out, n_hidden_, &mm2_));
    return loader.Finish();
  }

  int64_t WorkspaceBytes() const override {
    const int64_t rows = AlignedBytes(vit_.n_pos * vit_.n_embd * 4);
    const int64_t wide = AlignedBytes(vit_.n_pos * std::max({vit_.n_ff, n_hidden_, vit_.patch_values()}) * 4);
    return 6 * rows + wide + AlignedBytes(backend_.MatMulScratchBytes(vit_.n_pos, WidestInput())) +
           AlignedBytes(backend_.FullAttentionScratchBytes(vit_.n_heads, vit_.head_dim(), vit_.n_pos));
  }

  SignalShape ShapeOf(SignalKind kind) const override {
    if (kind != SignalKind::kOutputs) return {};
    return {1, 1, vit_.n_pos - 1, vit_.n_embd};
  }

  void Encode(const EncodeArgs& args) override;

 private:
  Status ReadMetadata(const GgufFile& file);
  Status ReadGrids(const GgufFile& file);
  int64_t WidestInput() const { return std::max({vit_.n_embd, vit_.n_ff, n_hidden_, vit_.patch_values()}); }

  Backend& backend_;
  ClassVitShape vit_;
  int64_t depth_ = 0, n_hidden_ = 0;  // blocks that run; columns between the projector's two layers
  GeluKind act_ = GeluKind::kQuick;
  PatchEmbedding input_;
  Vector newline_;
  LayerNormWeights pre_ln_;
  std::vector<Block> blocks_;
  LinearWeights mm0_, mm2_;
};

Status Clip::ReadMetadata(const GgufFile& file) {
  const std::string v = "clip.vision.";
  config_.projector = "mlp";
  WEIR_ASSIGN_OR_RETURN(config_.name, file.StringOr("general.name", ""));
  WEIR_ASSIGN_OR_RETURN(vit_, ReadClassVitShape(file));
  WEIR_ASSIGN_OR_RETURN(const bool gelu, file.BoolOr("clip.use_gelu", false));
  WEIR_ASSIGN_OR_RETURN(const bool silu, file.BoolOr("clip.use_silu", false));
  if (silu) return Unsupported("%s: a CLIP encoder with SiLU", file.path().c_str());
  act_ = gelu ? GeluKind::kErf : GeluKind::kQuick;
  // Without the key the layer before the last is meant, as the projector was trained.
  depth_ = vit_.n_layers - 1;
  if (file.Has(v + "feature_layer")) {
    const std::vector<int64_t>* layers = file.IntArray(v + "feature_layer");
    if (layers == nullptr || layers->size() != 1) {
      return Unsupported("%s: features of several layers", file.path().c_str());
    }
    depth_ = layers->front();
  }
  if (depth_ < 0 || depth_ > vit_.n_layers) {
    return Corrupt("%s: features of layer %lld of %lld", file.path().c_str(), static_cast<long long>(depth_),
                   static_cast<long long>(vit_.n_layers));
  }
  config_.n_rows = static_cast<int32_t>(vit_.n_pos - 1);
  config_.n_side = static_cast<int32_t>(vit_.n_side);
  ImageTransform& transform = config_.transform;
  transform.size = static_cast<int32_t>(vit_.size);
  // LLaVA-1.5 was trained on padded pictures; a file whose own processor crops says so.
  WEIR_ASSIGN_OR_RETURN(const std::string fit, file.StringOr("weir.vision.fit", "pad"));
  if (fit != "pad" && fit != "crop") {
    return Unsupported("%s: weir.vision.fit '%s'; pad and crop are known", file.path().c_str(), fit.c_str());
  }
  transform.fit = fit == "pad" ? Fit::kPad : Fit::kCrop;
  WEIR_RETURN_IF_ERROR(ReadGrids(file));
  return ReadNormalisation(file, &transform);
}

// LLaVA-1.6: pairs of width and height. The whole picture is then stretched to the encoder's square.
Status Clip::ReadGrids(const GgufFile& file) {
  const std::string key = "clip.vision.image_grid_pinpoints";
  if (!file.Has(key)) return Status();
  WEIR_ASSIGN_OR_RETURN(const std::string merge, file.StringOr("clip.vision.mm_patch_merge_type", "flat"));
  if (merge != "spatial_unpad") {
    return Unsupported("%s: clip.vision.mm_patch_merge_type '%s'; spatial_unpad is known", file.path().c_str(),
                       merge.c_str());
  }
  const std::vector<int64_t>* sides = file.IntArray(key);
  if (sides == nullptr || sides->empty() || sides->size() % 2 != 0 || sides->size() > 256) {
    return Corrupt("%s: %s must be pairs of numbers", file.path().c_str(), key.c_str());
  }
  const int64_t size = config_.transform.size;
  for (size_t i = 0; i < sides->size(); i += 2) {
    for (const int64_t side : {(*sides)[i], (*sides)[i + 1]}) {
      if (side < size || side % size != 0 || side / size > 16) {
        return Corrupt("%s: a grid of %lld x %lld pixels for tiles of %lld", file.path().c_str(),
                       static_cast<long long>((*sides)[i]), static_cast<long long>((*sides)[i + 1]),
                       static_cast<long long>(size));
      }
    }
    config_.grids.push_back({static_cast<int32_t>((*sides)[i]), static_cast<int32_t>((*sides)[i + 1])});
  }
  if (config_.max_rows() > (1 << 16)) {
    return Unsupported("%s: %d tokens a picture; 65,536 are possible", file.path().c_str(), config_.max_rows());
  }
  config_.transform.fit = Fit::kStretch;
  return Status();
}

void Clip::Encode(const EncodeArgs& args) {
  Workspace space(args.workspace);
  const int64_t n = vit_.n_pos, d = vit_.n_embd;
  float *x = space.Floats(n * d), *norm = space.Floats(n * d), *q = space.Floats(n * d), *k = space.Floats(n * d),
        *v = space.Floats(n * d), *mix = space.Floats(n * d);
  float* wide = space.Floats(n * std::max({vit_.n_ff, n_hidden_, vit_.patch_values()}));
  void* scratch = space.Bytes(backend_.MatMulScratchBytes(n, WidestInput()));
  void* attention_scratch = space.Bytes(backend_.FullAttentionScratchBytes(vit_.n_heads, vit_.head_dim(), n));

  const auto observe = [&](const std::string& name, int64_t rows, int64_t cols, const float* data) {
    if (args.observer != nullptr) (*args.observer)(name, rows, cols, data);
  };
  const auto product = [&](const float* in, int64_t n_rows, int64_t n_in, std::initializer_list<MatMulOut> outs) {
    MatMulArgs mm;
    mm.x = in;
    mm.x_stride = mm.n_in = n_in;
    mm.n_rows = n_rows;
    mm.outs = {outs.begin(), outs.size()};
    mm.scratch = scratch;
    backend_.MatMul(mm);
  };
  const auto layer_norm = [&](const float* in, const LayerNormWeights& w, float* out) {
    backend_.LayerNorm({in, w.w.get(), w.b.get(), out, n, d, vit_.eps});
  };

  input_.Embed(backend_, vit_, args.pixels, wide, scratch, x);
  observe("v.embd", n, d, x);
  layer_norm(x, pre_ln_, x);
  observe("v.pre_ln", n, d, x);

  for (int64_t l = 0; l < depth_; ++l) {
    const Block& block = blocks_[l];
    const std::string name = args.observer == nullptr ? "" : "v.blk." + std::to_string(l) + ".";
    layer_norm(x, block.ln1, norm);
    observe(name + "ln1", n, d, norm);
    product(norm, n, d,
            {{block.q.w.get(), q, d, block.q.b.get(), false},
             {block.k.w.get(), k, d, block.k.b.get(), false},
             {block.v.w.get(), v, d, block.v.b.get(), false}});
    observe(name + "q", n, d, q);
    observe(name + "k", n, d, k);
    observe(name + "v", n, d, v);
    FullAttentionArgs attention;
    attention.n_heads = vit_.n_heads;
    attention.head_dim = vit_.head_dim();
    attention.scale = 1.0f / std::sqrt(static_cast<float>(attention.head_dim));
    attention.q = q;
    attention.k = k;
    attention.v = v;
    attention.q_stride = attention.kv_stride = attention.out_stride = d;
    attention.n_q = attention.n_kv = n;
    attention.out = mix;
    attention.scratch = attention_scratch;
    backend_.FullAttention(attention);
    observe(name + "mix", n, d, mix);
    product(mix, n, d, {{block.out.w.get(), x, d, block.out.b.get(), true}});
    observe(name + "mid", n, d, x);
    layer_norm(x, block.ln2, norm);
    observe(name + "ln2", n, d, norm);
    product(norm, n, d, {{block.up.w.get(), wide, vit_.n_ff, block.up.b.get(), false}});
    backend_.Gelu({act_, wide, wide, n * vit_.n_ff});
    product(wide, n, vit_.n_ff, {{block.down.w.get(), x, d, block.down.b.get(), true}});
    observe(name + "out", n, d, x);
  }
  if (args.signals != nullptr && args.signals->Wants(SignalKind::kOutputs, 0)) {
    args.signals->Take({SignalKind::kOutputs, 0, 0, ShapeOf(SignalKind::kOutputs), x + d});
  }
  product(x + d, n - 1, d, {{mm0_.w.get(), wide, n_hidden_, mm0_.b.get(), false}});
  observe("mm.0", n - 1, n_hidden_, wide);
  backend_.Gelu({GeluKind::kErf, wide, wide, (n - 1) * n_hidden_});
  product(wide, n - 1, n_hidden_, {{mm2_.w.get(), args.out, config_.n_embd, mm2_.b.get(), false}});
  observe("mm.2", n - 1, config_.n_embd, args.out);
}

}  // namespace

extern const EncoderInfo kClip;
const EncoderInfo kClip = {
    "clip", "mlp", "LLaVA-1.5, LLaVA-1.6 and other CLIP encoders with an MLP projector",
    [](const GgufFile& file, Backend& backend, Ledger& ledger) -> Result<std::unique_ptr<Encoder>> {
      auto encoder = std::make_unique<Clip>(backend);
      WEIR_RETURN_IF_ERROR(encoder->Load(file, ledger));
      return std::unique_ptr<Encoder>(std::move(encoder));
    }};

}  // namespace weir
