// weir-plugin: encoder
// SPDX-License-Identifier: Apache-2.0
// Gemma 3's encoder (2503.19786, section 2.1): SigLIP's vision transformer without a class token; the mean of each
// square of `scale` x `scale` patches, an RMS norm and one matrix. A picture has the same number of rows whatever its
// shape; "pan and scan", which shows cuts of long pictures too, is off in the released processors and not done.
#include <algorithm>

#include "vision/encoder.h"
#include "vision/vit.h"
#include "vision/vit_blocks.h"

namespace weir {
namespace {

class Gemma3Vision final : public Encoder {
 public:
  explicit Gemma3Vision(Backend& backend) : Encoder(backend) {}

  Status Load(const GgufFile& file, Ledger& ledger);
  int64_t WorkspaceBytes() const override {
    Workspace space(nullptr);
    LayOut(&space);
    return space.used();
  }
  void Encode(const EncodeArgs& args) override;

 private:
  struct Buffers {
    float *x, *wide, *pooled;  // [n_pos, n_embd]; pixels of patches, squares of rows; [n_rows, n_embd]
    VitBlocks::Buffers blocks;
  };
  Buffers LayOut(Workspace* space) const {
    Buffers b;
    const int64_t pixels = 3 * patch_ * patch_;
    b.x = space->Floats(n_pos_ * shape_.n_embd);
    b.wide = space->Floats(n_pos_ * std::max(shape_.n_embd, pixels));
    b.pooled = space->Floats(config_.n_rows * shape_.n_embd);
    b.blocks = blocks_.LayOut(backend_, n_pos_, pixels, space);
    return b;
  }
  Status ReadMetadata(const GgufFile& file);

  VitShape shape_;
  int64_t patch_ = 0, n_side_ = 0, n_pos_ = 0, scale_ = 0;
  std::unique_ptr<Matrix> patches_, positions_;  // [n_embd, 3 * patch * patch], [n_pos, n_embd]
  Vector patch_bias_, soft_norm_;
  LayerNormWeights post_ln_;
  VitBlocks blocks_;
  LinearWeights projection_;
};

Status Gemma3Vision::ReadMetadata(const GgufFile& file) {
  const std::string v = "clip.vision.";
  config_.projector = "gemma3";
  WEIR_ASSIGN_OR_RETURN(config_.name, file.StringOr("general.name", ""));
  WEIR_ASSIGN_OR_RETURN(const int64_t size, BoundedInt(file, v + "image_size", 1, kMaxImageSize));
  WEIR_ASSIGN_OR_RETURN(patch_, BoundedInt(file, v + "patch_size", 1, size));
  WEIR_RETURN_IF_ERROR(ReadVitShape(file, &shape_));
  n_side_ = size / patch_;
  n_pos_ = n_side_ * n_side_;
  // Files of the released models do not have the key.
  WEIR_ASSIGN_OR_RETURN(scale_, BoundedIntOr(file, v + "projector.scale_factor", 1, n_side_, 4));
  if (n_pos_ > (1 << 16) || n_side_ % scale_ != 0) {
    return Corrupt("{}: a picture of {} x {} patches, {} of them a row along each side", file.path(), n_side_, n_side_,
                   scale_);
  }
  config_.n_side = static_cast<int32_t>(n_side_ / scale_);
  config_.n_rows = config_.n_side * config_.n_side;
  config_.words.text = {"<start_of_image>", "\n\n<start_of_image>", "<end_of_image>\n\n"};
  config_.words.open = 1;
  config_.words.close = 2;
  config_.transform.size = static_cast<int32_t>(size);
  config_.transform.fit = Fit::kStretch;
  config_.transform.resample = Resample::kBilinear;
  return ReadNormalisation(file, &config_.transform);
}

Status Gemma3Vision::Load(const GgufFile& file, Ledger& ledger) {
  WEIR_RETURN_IF_ERROR(ReadMetadata(file));
  const int64_t d = shape_.n_embd;
  WeightLoader loader(file, backend_, ledger);
  WEIR_RETURN_IF_ERROR(loader.LoadKernel("v.patch_embd.weight", d, {3, patch_, patch_}, &patches_));
  WEIR_RETURN_IF_ERROR(loader.LoadOptional("v.patch_embd.bias", d, &patch_bias_));
  WEIR_RETURN_IF_ERROR(loader.Load("v.position_embd.weight", n_pos_, d, &positions_));
  WEIR_RETURN_IF_ERROR(blocks_.Load(shape_, GeluKind::kTanh, file, loader));
  WEIR_RETURN_IF_ERROR(loader.Load("v.post_ln", d, &post_ln_));
  WEIR_RETURN_IF_ERROR(loader.Load("mm.soft_emb_norm.weight", d, &soft_norm_));
  // Stored as the model multiplies it: a row for each number that goes in.
  const GgufTensor* projection = file.Tensor("mm.input_projection.weight");
  const int64_t n_out = projection == nullptr || projection->shape.size() != 2 ? 1 : projection->shape[1];
  if (n_out > (1 << 17)) return Corrupt("{}: a projection to {} columns", file.path(), n_out);
  config_.n_embd = static_cast<int32_t>(n_out);
  WEIR_RETURN_IF_ERROR(loader.LoadTransposed("mm.input_projection.weight", d, n_out, 0, d, &projection_.w));
  return loader.Finish();
}

void Gemma3Vision::Encode(const EncodeArgs& args) {
  Workspace space(args.workspace);
  const Buffers b = LayOut(&space);
  const int64_t n = n_pos_, d = shape_.n_embd, n_rows = config_.n_rows, in_square = scale_ * scale_;
  const auto observe = [&](const char* name, int64_t rows, int64_t cols, const float* data) {
    if (args.observer != nullptr) (*args.observer)(name, rows, cols, data);
  };
  EmbedAll(backend_, *positions_, n, b.x);
  GatherPatches(backend_, args.pixels, config_.transform.size, patch_, b.wide);
  const MatMulOut to = {patches_.get(), b.x, d, patch_bias_.get(), true};
  MatMulArgs mm;
  mm.x = b.wide;
  mm.x_stride = mm.n_in = 3 * patch_ * patch_;
  mm.n_rows = n;
  mm.outs = {&to, 1};
  mm.scratch = b.blocks.scratch;
  backend_.MatMul(mm);
  observe("v.embd", n, d, b.x);
  blocks_.Run(backend_, b.blocks, n, nullptr, args.observer, b.x);
  backend_.LayerNorm({b.x, post_ln_.w.get(), post_ln_.b.get(), b.x, n, d, shape_.eps});
  observe("v.post_ln", n, d, b.x);
  SquaresArgs squares;
  squares.x = b.x;
  squares.height = squares.width = n_side_;
  squares.dim = d;
  squares.side = scale_;
  squares.y = b.wide;
  backend_.Squares(squares);
  for (int64_t row = 0; row < n_rows; ++row) {
    backend_.SumRows({b.wide + row * in_square * d, b.pooled + row * d, in_square, d});
  }
  backend_.Scale({1.0f / static_cast<float>(in_square), b.pooled, b.pooled, n_rows * d});
  observe("mm.pool", n_rows, d, b.pooled);
  backend_.RmsNorm({b.pooled, soft_norm_.get(), b.pooled, n_rows, d, shape_.eps});
  observe("mm.norm", n_rows, d, b.pooled);
  LinearRows(backend_, b.pooled, n_rows, d, projection_, false, args.out, b.blocks.scratch);
  observe("mm.fc", n_rows, config_.n_embd, args.out);
}

}  // namespace

extern const EncoderInfo kGemma3Vision;
const EncoderInfo kGemma3Vision = {
    .name = "gemma3_vision",
    .projector = "gemma3",
    .models = "Gemma 3 (SigLIP, mean of squares)",
    .load = LoadEncoderAs<Gemma3Vision>,
};

}  // namespace weir
