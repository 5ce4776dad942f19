// weir-plugin: encoder
// SPDX-License-Identifier: Apache-2.0
// SigLIP's vision transformer with the connector of Idefics3 ("Building and better understanding vision-language
// models", 2408.12637, section 2) and SmolVLM (2504.05299, section 2): the rows of the last block's norm, each square
// of `scale` x `scale` patches put side by side (pixel shuffle), through one matrix. There is no class token.
#include <algorithm>

#include "vision/encoder.h"
#include "vision/split.h"
#include "vision/vit.h"
#include "vision/vit_blocks.h"

namespace weir {
namespace {

constexpr int64_t kMostSquares = 16;  // along a side: more than any model has, and few enough to name each

class Idefics3 final : public Encoder {
 public:
  explicit Idefics3(Backend& backend) : Encoder(backend) {}

  Status Load(const GgufFile& file, Ledger& ledger);
  int64_t WorkspaceBytes() const override {
    Workspace space(nullptr);
    LayOut(&space);
    return space.used();
  }
  void Encode(const EncodeArgs& args) override;

 private:
  struct Buffers {
    float *x, *wide;  // [n_pos, n_embd]; patches, later the connector's input
    VitBlocks::Buffers blocks;
  };
  Buffers LayOut(Workspace* space) const {
    Buffers b;
    b.x = space->Floats(n_pos_ * shape_.n_embd);
    b.wide = space->Floats(n_pos_ * std::max(shape_.n_embd, 3 * patch_ * patch_));
    b.blocks = blocks_.LayOut(backend_, n_pos_, std::max(3 * patch_ * patch_, n_in()), space);
    return b;
  }
  Status ReadMetadata(const GgufFile& file);
  Status ReadSquares(const GgufFile& file);
  int64_t n_in() const { return scale_ * scale_ * shape_.n_embd; }  // of the connector

  VitShape shape_;
  int64_t patch_ = 0, n_side_ = 0, n_pos_ = 0, scale_ = 0;
  std::unique_ptr<Matrix> patches_;    // [n_embd, 3 * patch * patch]
  std::unique_ptr<Matrix> positions_;  // [n_pos, n_embd]
  Vector patch_bias_;
  LayerNormWeights post_ln_;
  VitBlocks blocks_;
  LinearWeights connector_;
};

Status Idefics3::ReadMetadata(const GgufFile& file) {
  const std::string v = "clip.vision.";
  config_.projector = "idefics3";
  WEIR_ASSIGN_OR_RETURN(config_.name, file.StringOr("general.name", ""));
  WEIR_ASSIGN_OR_RETURN(const int64_t size, BoundedInt(file, v + "image_size", 1, kMaxImageSize));
  WEIR_ASSIGN_OR_RETURN(patch_, BoundedInt(file, v + "patch_size", 1, size));
  WEIR_RETURN_IF_ERROR(ReadVitShape(file, &shape_));
  n_side_ = size / patch_;
  n_pos_ = n_side_ * n_side_;
  WEIR_ASSIGN_OR_RETURN(scale_, BoundedInt(file, v + "projector.scale_factor", 1, n_side_));
  if (n_pos_ > (1 << 16) || n_side_ % scale_ != 0) {
    return Corrupt("{}: a picture of {} x {} patches, {} of them a row along each side", file.path(), n_side_, n_side_,
                   scale_);
  }
  config_.n_side = static_cast<int32_t>(n_side_ / scale_);
  config_.n_rows = config_.n_side * config_.n_side;
  ImageTransform& transform = config_.transform;
  transform.size = static_cast<int32_t>(size);
  transform.fit = Fit::kSplit;
  transform.resample = Resample::kLanczos;
  WEIR_RETURN_IF_ERROR(ReadNormalisation(file, &transform));
  return ReadSquares(file);
}

// How pictures are cut, and the words between the squares (transformers' processing_idefics3.py).
Status Idefics3::ReadSquares(const GgufFile& file) {
  ImageTransform& transform = config_.transform;
  transform.longest_side = transform.size;
  const std::string longest = "clip.vision.preproc_image_size";
  if (file.Has(longest)) {
    WEIR_ASSIGN_OR_RETURN(const int64_t side, BoundedInt(file, longest, 1, kMaxImageSize));
    transform.longest_side = static_cast<int32_t>(side);
  }
  PictureWords& words = config_.words;
  const std::string mark = "<fake_token_around_image>", whole = mark + "<global-img>";
  words.text = {mark, whole};
  words.close = 0;
  words.open = 1;
  WEIR_ASSIGN_OR_RETURN(const bool split, file.BoolOr("weir.vision.split", true));
  const int32_t n = MaxSquares(transform.longest_side, transform.size);
  if (!split || n == 1) return Status();
  config_.max_squares = n;
  if (n > kMostSquares || config_.max_rows() > (1 << 16)) {
    return Unsupported("{}: pictures of {} x {} squares; {} x {} and 65,536 tokens are possible", file.path(), n, n,
                       kMostSquares, kMostSquares);
  }
  words.text.push_back("\n\n" + whole);
  words.open_last = 2;
  words.open_square = 3;
  for (int32_t y = 1; y <= n; ++y) {
    for (int32_t x = 1; x <= n; ++x) {
      const char* line = y > 1 && x == 1 ? "\n" : "";
      words.text.push_back(line + mark + "<row_" + std::to_string(y) + "_col_" + std::to_string(x) + ">");
    }
  }
  return Status();
}

Status Idefics3::Load(const GgufFile& file, Ledger& ledger) {
  WEIR_RETURN_IF_ERROR(ReadMetadata(file));
  const int64_t d = shape_.n_embd;
  WeightLoader loader(file, backend_, ledger);
  WEIR_RETURN_IF_ERROR(loader.LoadKernel("v.patch_embd.weight", d, {3, patch_, patch_}, &patches_));
  WEIR_RETURN_IF_ERROR(loader.LoadOptional("v.patch_embd.bias", d, &patch_bias_));
  WEIR_RETURN_IF_ERROR(loader.Load("v.position_embd.weight", n_pos_, d, &positions_));
  WEIR_RETURN_IF_ERROR(blocks_.Load(shape_, GeluKind::kTanh, file, loader));
  WEIR_RETURN_IF_ERROR(loader.Load("v.post_ln", d, &post_ln_));
  const GgufTensor* connector = file.Tensor("mm.model.fc.weight");
  const int64_t n_out = connector == nullptr ? 1 : connector->shape.front();
  if (n_out > (1 << 17)) {
    return Corrupt("{}: a projection to {} columns", file.path(), n_out);
  }
  config_.n_embd = static_cast<int32_t>(n_out);
  WEIR_RETURN_IF_ERROR(loader.Load("mm.model.fc.weight", n_out, n_in(), &connector_.w));
  return loader.Finish();
}

void Idefics3::Encode(const EncodeArgs& args) {
  Workspace space(args.workspace);
  const Buffers b = LayOut(&space);
  const int64_t n = n_pos_, d = shape_.n_embd;
  const auto observe = [&](const char* name, int64_t rows, int64_t cols, const float* data) {
    if (args.observer != nullptr) (*args.observer)(name, rows, cols, data);
  };
  // Positions first; the patches are added to them.
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
  SquaresArgs shuffle;
  shuffle.x = b.x;
  shuffle.height = shuffle.width = n_side_;
  shuffle.dim = d;
  shuffle.side = scale_;
  shuffle.y = b.wide;
  backend_.Squares(shuffle);
  observe("mm.shuffle", config_.n_rows, n_in(), b.wide);
  LinearRows(backend_, b.wide, config_.n_rows, n_in(), connector_, false, args.out, b.blocks.scratch);
  observe("mm.fc", config_.n_rows, config_.n_embd, args.out);
}

}  // namespace

extern const EncoderInfo kIdefics3;
const EncoderInfo kIdefics3 = {
    .name = "idefics3",
    .projector = "idefics3",
    .models = "SmolVLM, SmolVLM2, Idefics3 (SigLIP, pixel shuffle)",
    .load = LoadEncoderAs<Idefics3>,
};

}  // namespace weir
