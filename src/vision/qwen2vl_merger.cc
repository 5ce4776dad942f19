// weir-plugin: encoder
// SPDX-License-Identifier: Apache-2.0
// Qwen2-VL's encoder ("Qwen2-VL: Enhancing Vision-Language Model's Perception of the World at Any Resolution",
// 2409.12191, section 2.1): a vision transformer that takes pictures of any size, queries and keys rotated by line and
// column, then the merger, which puts each square of 2 x 2 patches side by side and sends it through two layers.
#include "vision/qwen_vit.h"

namespace weir {
namespace {

// Defaults for files without the keys: the processor's own bounds.
constexpr int64_t kMinPixels = 56 * 56, kMaxPixels = 28 * 28 * 1280;

class Qwen2vlMerger final : public Encoder {
 public:
  explicit Qwen2vlMerger(Backend& backend) : Encoder(backend) {}

  Status Load(const GgufFile& file, Ledger& ledger);
  PictureRows RowsOf(const float* pixels) const override { return vit_.RowsOf(pixels, config_); }
  int64_t WorkspaceBytes() const override {
    Workspace space(nullptr);
    vit_.LayOut(backend_, &space);
    return space.used();
  }
  void Encode(const EncodeArgs& args) override;

 private:
  QwenVit vit_;
  LayerNormWeights post_ln_;
  SquareMerger merger_;
};

Status Qwen2vlMerger::Load(const GgufFile& file, Ledger& ledger) {
  config_.projector = "qwen2vl_merger";
  WEIR_RETURN_IF_ERROR(vit_.ReadMetadata(file, kMinPixels, kMaxPixels, &config_));
  config_.pairing.one_video = true;
  WEIR_ASSIGN_OR_RETURN(const bool gelu, file.BoolOr("clip.use_gelu", false));
  WeightLoader loader(file, backend_, ledger);
  const VitStyle style = {.act = gelu ? GeluKind::kTanh : GeluKind::kQuick};
  WEIR_RETURN_IF_ERROR(vit_.Load(file, style, backend_, ledger, loader));
  WEIR_RETURN_IF_ERROR(loader.Load("v.post_ln", vit_.shape().n_embd, &post_ln_));
  WEIR_RETURN_IF_ERROR(merger_.Load(file, loader, vit_.square_width(), {"mm.0", "mm.2"}));
  config_.n_embd = static_cast<int32_t>(merger_.n_out());
  return loader.Finish();
}

void Qwen2vlMerger::Encode(const EncodeArgs& args) {
  Workspace space(args.workspace);
  const QwenVit::Buffers b = vit_.LayOut(backend_, &space);
  const PictureSize size = InputSize(args.pixels, config_.transform);
  const int64_t d = vit_.shape().n_embd, n_rows = RowsOf(args.pixels).n, n = n_rows * QwenVit::kInSquare;
  const auto observe = [&](const char* name, int64_t rows, int64_t cols, const float* data) {
    if (args.observer != nullptr) (*args.observer)(name, rows, cols, data);
  };
  vit_.Embed(backend_, args, size, b);
  observe("v.embd", n, d, b.x);
  vit_.Angles(
      backend_, n, [&](int64_t i) { return vit_.PlaceOf(size, i); }, b);
  vit_.Run(backend_, b, n, args.observer, b.x);
  backend_.LayerNorm({b.x, post_ln_.w.get(), post_ln_.b.get(), b.x, n, d, vit_.shape().eps});
  observe("v.post_ln", n, d, b.x);
  merger_.Run(backend_, b.x, n_rows, vit_.square_width(), b.wide, b.blocks.scratch, args.out, config_.n_embd,
              args.observer, "mm.0");
  observe("mm.2", n_rows, config_.n_embd, args.out);
}

}  // namespace

extern const EncoderInfo kQwen2vlMerger;
const EncoderInfo kQwen2vlMerger = {
    .name = "qwen2vl_merger",
    .projector = "qwen2vl_merger",
    .models = "Qwen2-VL (pictures of any size, 2D RoPE)",
    .load = LoadEncoderAs<Qwen2vlMerger>,
};

}  // namespace weir
