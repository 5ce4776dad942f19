// weir-plugin: encoder
// SPDX-License-Identifier: Apache-2.0
// Gemma 3's encoder (2503.19786, section 2.1): SigLIP's vision transformer without a class token; the mean of each
// square of `scale` x `scale` patches, an RMS norm and one matrix. A picture has the same number of rows whatever its
// shape; "pan and scan", which shows cuts of long pictures too, is off in the released processors and not done.
#include "vision/encoder.h"
#include "vision/siglip.h"

namespace weir {
namespace {

constexpr int64_t kScale = 4;  // of the released models, whose files do not have the key

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
    Siglip::Buffers tower;
    float* pooled;  // [n_rows, n_embd]
  };
  Buffers LayOut(Workspace* space) const {
    Buffers b;
    b.tower = tower_.LayOut(backend_, tower_.n_embd(), space);
    b.pooled = space->Floats(config_.n_rows * tower_.n_embd());
    return b;
  }

  Siglip tower_;
  Vector norm_;
  LinearWeights projection_;
};

Status Gemma3Vision::Load(const GgufFile& file, Ledger& ledger) {
  config_.projector = "gemma3";
  config_.words.text = {"<start_of_image>", "\n\n<start_of_image>", "<end_of_image>\n\n"};
  config_.words.open = 1;
  config_.words.close = 2;
  config_.transform.fit = Fit::kStretch;
  config_.transform.resample = Resample::kBilinear;
  WEIR_RETURN_IF_ERROR(tower_.ReadMetadata(file, kScale, &config_));
  const int64_t d = tower_.n_embd();
  WeightLoader loader(file, backend_, ledger);
  WEIR_RETURN_IF_ERROR(tower_.Load(file, loader));
  WEIR_RETURN_IF_ERROR(loader.Load("mm.soft_emb_norm.weight", d, &norm_));
  // Stored as the model multiplies it: a row for each number that goes in.
  WEIR_ASSIGN_OR_RETURN(config_.n_embd, ProjectedWidth(file, "mm.input_projection.weight", 1));
  WEIR_RETURN_IF_ERROR(loader.LoadTransposed("mm.input_projection.weight", d, config_.n_embd, 0, d, &projection_.w));
  return loader.Finish();
}

void Gemma3Vision::Encode(const EncodeArgs& args) {
  Workspace space(args.workspace);
  const Buffers b = LayOut(&space);
  const int64_t d = tower_.n_embd(), n_rows = config_.n_rows, in_square = tower_.in_square();
  const auto observe = [&](const char* name, int64_t cols, const float* data) {
    if (args.observer != nullptr) (*args.observer)(name, n_rows, cols, data);
  };
  tower_.Run(backend_, b.tower, args.pixels, args.observer);
  for (int64_t row = 0; row < n_rows; ++row) {
    backend_.SumRows({b.tower.wide + row * in_square * d, b.pooled + row * d, in_square, d});
  }
  backend_.Scale({1.0f / static_cast<float>(in_square), b.pooled, b.pooled, n_rows * d});
  observe("mm.pool", d, b.pooled);
  backend_.RmsNorm({b.pooled, norm_.get(), b.pooled, n_rows, d, tower_.eps()});
  observe("mm.norm", d, b.pooled);
  LinearRows(backend_, b.pooled, n_rows, d, projection_, false, args.out, b.tower.blocks.scratch);
  observe("mm.fc", config_.n_embd, args.out);
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
