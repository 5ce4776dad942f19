// weir-plugin: encoder
// SPDX-License-Identifier: Apache-2.0
// SigLIP's vision transformer with the connector of Idefics3 ("Building and better understanding vision-language
// models", 2408.12637, section 2) and SmolVLM (2504.05299, section 2): the rows of the last block's norm, each square
// of `scale` x `scale` patches put side by side (pixel shuffle), through one matrix. There is no class token.
#include <optional>
#include <string>

#include "vision/encoder.h"
#include "vision/siglip.h"
#include "vision/split.h"

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
  Siglip::Buffers LayOut(Workspace* space) const { return tower_.LayOut(backend_, tower_.square_width(), space); }
  Status ReadSquares(const GgufFile& file);

  Siglip tower_;
  LinearWeights connector_;
};

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
  config_.projector = "idefics3";
  config_.transform.fit = Fit::kSplit;
  config_.transform.resample = Resample::kLanczos;
  WEIR_RETURN_IF_ERROR(tower_.ReadMetadata(file, std::nullopt, &config_));
  WEIR_RETURN_IF_ERROR(ReadSquares(file));
  WeightLoader loader(file, backend_, ledger);
  WEIR_RETURN_IF_ERROR(tower_.Load(file, loader));
  WEIR_ASSIGN_OR_RETURN(config_.n_embd, ProjectedWidth(file, "mm.model.fc.weight"));
  WEIR_RETURN_IF_ERROR(loader.Load("mm.model.fc.weight", config_.n_embd, tower_.square_width(), &connector_.w));
  return loader.Finish();
}

void Idefics3::Encode(const EncodeArgs& args) {
  Workspace space(args.workspace);
  const Siglip::Buffers b = LayOut(&space);
  const int64_t n_rows = config_.n_rows, n_in = tower_.square_width();
  tower_.Run(backend_, b, args.pixels, args.observer);
  if (args.observer != nullptr) (*args.observer)("mm.shuffle", n_rows, n_in, b.wide);
  LinearRows(backend_, b.wide, n_rows, n_in, connector_, false, args.out, b.blocks.scratch);
  if (args.observer != nullptr) (*args.observer)("mm.fc", n_rows, config_.n_embd, args.out);
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
