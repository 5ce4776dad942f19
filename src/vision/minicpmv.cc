// weir-plugin: encoder
// SPDX-License-Identifier: Apache-2.0
// MiniCPM-V's encoder (2408.01800, section 3.1): SigLIP for pictures of any size, a patch of which has the learned
// position of the same place in a square table, then a layer of cross-attention in which learned queries, 64 or 96,
// read the patches (vision/resampler.h). A large picture is read as a whole and in slices (vision/slices.h).
//
// Files name the generation (clip.minicpmv_version): 2 is MiniCPM-Llama3-V 2.5, 3 MiniCPM-V 2.6, 4 MiniCPM-o 2.6, 5
// MiniCPM-V 4.0, 6 MiniCPM-V 4.5, 100045 MiniCPM-o 4.5. From 2.6 on other words stand around slices.
#include <algorithm>
#include <cmath>
#include <string>
#include <vector>

#include "vision/encoder.h"
#include "vision/resampler.h"
#include "vision/slices.h"
#include "vision/vit.h"
#include "vision/vit_blocks.h"

namespace weir {
namespace {

constexpr int64_t kHeadDim = 128;      // of the resampler; files have no key for it
constexpr int64_t kMaxSlices = 9;      // of the released processors; the same
constexpr double kFreqBase = 10000.0;  // of the resampler's positions

class Minicpmv final : public Encoder {
 public:
  explicit Minicpmv(Backend& backend) : Encoder(backend) {}

  Status Load(const GgufFile& file, Ledger& ledger);
  int64_t WorkspaceBytes() const override {
    Workspace space(nullptr);
    LayOut(&space);
    return space.used();
  }
  SignalShape ShapeOf(SignalKind kind) const override {
    // Pictures in slices are not pruned.
    return kind == SignalKind::kOutputs && !config_.in_parts() ? resampler_.outputs() : SignalShape();
  }
  void Encode(const EncodeArgs& args) override;

 private:
  struct Buffers {
    float *x, *wide;  // [n, n_embd]; patches' pixels
    VitBlocks::Buffers blocks;
    Resampler::Buffers resampler;
  };
  Buffers LayOut(Workspace* space) const;
  Status ReadMetadata(const GgufFile& file);
  Status SetWords(const GgufFile& file);
  // The tables of positions of patches among the resampler's keys, by column and by line.
  Status MakePlaces(Ledger& ledger);
  // Rows of a table by patch: those of the columns, then those of the lines are added, in `to`, with `free`.
  void AddPlaces(int64_t n_x, int64_t n, float* free, float* to) const;
  int64_t patch_values() const { return 3 * patch_ * patch_; }

  VitShape shape_;
  int64_t patch_ = 0, side_ = 0, n_queries_ = 0, max_patches_ = 0, max_side_ = 0;
  std::unique_ptr<Matrix> patches_, positions_;  // [n_embd, 3 * patch * patch], [side * side, n_embd]
  Vector patch_bias_;
  VitBlocks blocks_;
  LayerNormWeights post_ln_;
  std::unique_ptr<Matrix> columns_, lines_;  // [max_side, n_out]: zero in the other's half
  Resampler resampler_;
};

Status Minicpmv::SetWords(const GgufFile& file) {
  WEIR_ASSIGN_OR_RETURN(const int64_t version, file.Int("clip.minicpmv_version"));
  PictureWords& words = config_.words;
  words.open = 0;
  words.close = 1;
  words.open_square = 2;
  if (version == 2) {
    words.text = {"<image>",         "</image>",          "</image><slice><image>",
                  "</image><image>", "</image>\n<image>", "</image></slice>"};
  } else if ((version >= 3 && version <= 6) || version == 100045) {
    words.text = {"<image>", "</image>", "</image><slice>", "</slice><slice>", "</slice>\n<slice>", "</slice>"};
  } else {
    return Unsupported("{}: clip.minicpmv_version {}; this build knows 2 to 6 and 100045", file.path(), version);
  }
  // The oldest files have no number of queries.
  WEIR_ASSIGN_OR_RETURN(n_queries_, BoundedIntOr(file, "clip.minicpmv_query_num", 0, 1 << 12, 0));
  if (n_queries_ == 0) n_queries_ = version == 2 ? 96 : 64;
  return Status();
}

Status Minicpmv::ReadMetadata(const GgufFile& file) {
  const std::string v = "clip.vision.";
  config_.projector = "resampler";
  WEIR_ASSIGN_OR_RETURN(config_.name, file.StringOr("general.name", ""));
  WEIR_ASSIGN_OR_RETURN(const int64_t size, BoundedInt(file, v + "image_size", 1, kMaxImageSize));
  WEIR_ASSIGN_OR_RETURN(patch_, BoundedInt(file, v + "patch_size", 1, size));
  WEIR_RETURN_IF_ERROR(ReadVitShape(file, &shape_));
  WEIR_RETURN_IF_ERROR(SetWords(file));
  WEIR_ASSIGN_OR_RETURN(const int64_t slices, BoundedIntOr(file, "weir.vision.max_slices", 0, 64, kMaxSlices));
  ImageTransform& transform = config_.transform;
  transform.fit = Fit::kArea;
  transform.size = static_cast<int32_t>(size);
  transform.factor = static_cast<int32_t>(patch_);
  config_.max_slices = static_cast<int32_t>(slices);
  max_patches_ = (InputFloats(transform) - 2) / patch_values();
  max_side_ = MaxAreaSide(transform) / patch_;
  if (max_patches_ > (1 << 16)) {
    return Unsupported("{}: a picture of {} patches; 65,536 are possible", file.path(), max_patches_);
  }
  config_.n_rows = static_cast<int32_t>(n_queries_);
  return ReadNormalisation(file, &transform);
}

Status Minicpmv::MakePlaces(Ledger& ledger) {
  const int64_t e = config_.n_embd, quarter = e / 4;
  std::vector<float> rows(static_cast<size_t>(max_side_ * e));
  for (const bool by_line : {false, true}) {
    std::fill(rows.begin(), rows.end(), 0.0f);
    for (int64_t at = 0; at < max_side_; ++at) {
      float* const row = rows.data() + at * e + (by_line ? 2 * quarter : 0);
      for (int64_t i = 0; i < quarter; ++i) {
        const double angle =
            static_cast<double>(at) * std::pow(kFreqBase, -static_cast<double>(i) / static_cast<double>(quarter));
        row[i] = static_cast<float>(std::sin(angle));
        row[quarter + i] = static_cast<float>(std::cos(angle));
      }
    }
    MatrixSource source;
    source.name = "positions of the resampler";
    source.type = DType::kF32;
    source.n_out = max_side_;
    source.n_in = e;
    source.data = reinterpret_cast<const uint8_t*>(rows.data());
    std::unique_ptr<Matrix>& to = by_line ? lines_ : columns_;
    WEIR_ASSIGN_OR_RETURN(to, backend_.PrepareMatrix(source, ledger));
  }
  return Status();
}

Status Minicpmv::Load(const GgufFile& file, Ledger& ledger) {
  WEIR_RETURN_IF_ERROR(ReadMetadata(file));
  const int64_t d = shape_.n_embd;
  WeightLoader loader(file, backend_, ledger);
  WEIR_RETURN_IF_ERROR(loader.LoadKernel("v.patch_embd.weight", d, {3, patch_, patch_}, &patches_));
  WEIR_RETURN_IF_ERROR(loader.LoadOptional("v.patch_embd.bias", d, &patch_bias_));
  const GgufTensor* table = file.Tensor("v.position_embd.weight");
  const int64_t n_positions = table == nullptr ? 1 : table->shape.front();
  side_ = n_positions > (1 << 20) ? 0 : std::lround(std::sqrt(static_cast<double>(n_positions)));
  if (side_ * side_ != n_positions) return Corrupt("{}: a table of {} positions", file.path(), n_positions);
  WEIR_RETURN_IF_ERROR(loader.Load("v.position_embd.weight", n_positions, d, &positions_));
  WEIR_RETURN_IF_ERROR(blocks_.Load(shape_, GeluKind::kTanh, file, loader));
  WEIR_RETURN_IF_ERROR(loader.Load("v.post_ln", d, &post_ln_));
  WEIR_ASSIGN_OR_RETURN(config_.n_embd, ProjectedWidth(file, "resampler.kv.weight"));
  loader.Skip("resampler.pos_embed_k");  // of one size of pictures; these are computed for every one
  ResamplerShape shape;
  shape.n_in = d;
  shape.n_out = config_.n_embd;
  shape.n_queries = n_queries_;
  shape.n_heads = std::max<int64_t>(1, config_.n_embd / kHeadDim);
  shape.eps = shape_.eps;
  WEIR_RETURN_IF_ERROR(resampler_.Load(shape, loader));
  if (shape.n_out % kHeadDim != 0) {
    return Corrupt("{}: a resampler of {} columns; heads have {}", file.path(), shape.n_out, kHeadDim);
  }
  WEIR_RETURN_IF_ERROR(loader.Finish());
  return MakePlaces(ledger);
}

Minicpmv::Buffers Minicpmv::LayOut(Workspace* space) const {
  Buffers b;
  b.x = space->Floats(max_patches_ * shape_.n_embd);
  // Of the picture only x is still needed when the queries begin.
  Workspace picture = *space, queries = *space;
  b.wide = picture.Floats(max_patches_ * patch_values());
  b.blocks = blocks_.LayOut(backend_, max_patches_, patch_values(), &picture);
  b.resampler = resampler_.LayOut(backend_, max_patches_, &queries);
  space->Bytes(std::max(picture.used(), queries.used()) - space->used());
  return b;
}

void Minicpmv::AddPlaces(int64_t n_x, int64_t n, float* free, float* to) const {
  constexpr int64_t kIds = 256;
  const int64_t e = config_.n_embd;
  int32_t ids[kIds];
  for (const bool by_line : {false, true}) {
    for (int64_t done = 0; done < n; done += kIds) {
      const int64_t n_here = std::min(kIds, n - done);
      for (int64_t i = 0; i < n_here; ++i) {
        ids[i] = static_cast<int32_t>(by_line ? (done + i) / n_x : (done + i) % n_x);
      }
      backend_.EmbedRows(by_line ? *lines_ : *columns_, ids, n_here, (by_line ? free : to) + done * e);
    }
  }
  backend_.Add({to, free, to, n * e});
}

void Minicpmv::Encode(const EncodeArgs& args) {
  constexpr int64_t kIds = 256;
  Workspace space(args.workspace);
  const Buffers b = LayOut(&space);
  const PictureSize size = InputSize(args.pixels, config_.transform);
  const int64_t d = shape_.n_embd, n_x = size.width / patch_, n_y = size.height / patch_, n = n_x * n_y;
  const auto observe = [&](const char* name, const float* data) {
    if (args.observer != nullptr) (*args.observer)(name, n, d, data);
  };
  // Positions first; the patches are added to them. A patch has the position at the same part of the table's sides.
  int32_t ids[kIds];
  for (int64_t done = 0; done < n; done += kIds) {
    const int64_t n_here = std::min(kIds, n - done);
    for (int64_t i = 0; i < n_here; ++i) {
      const int64_t at = done + i;
      ids[i] = static_cast<int32_t>(at / n_x * side_ / n_y * side_ + at % n_x * side_ / n_x);
    }
    backend_.EmbedRows(*positions_, ids, n_here, b.x + done * d);
  }
  SquaresArgs patches;
  patches.x = args.pixels;
  patches.n_planes = 3;
  patches.height = size.height;
  patches.width = size.width;
  patches.side = patch_;
  patches.y = b.wide;
  backend_.Squares(patches);
  const MatMulOut to = {patches_.get(), b.x, d, patch_bias_.get(), true};
  backend_.MatMul({b.wide, patch_values(), n, patch_values(), {&to, 1}, b.blocks.scratch});
  observe("v.embd", b.x);
  blocks_.Run(backend_, b.blocks, n, nullptr, args.observer, b.x);
  backend_.LayerNorm({b.x, post_ln_.w.get(), post_ln_.b.get(), b.x, n, d, shape_.eps});
  observe("v.post_ln", b.x);
  AddPlaces(n_x, n, b.resampler.kv, b.resampler.at);
  resampler_.Run(backend_, b.x, n, b.resampler, nullptr, args);
}

}  // namespace

extern const EncoderInfo kMinicpmv;
const EncoderInfo kMinicpmv = {
    .name = "minicpmv",
    .projector = "resampler",
    .models = "MiniCPM-V 2.5 to 4.5 (SigLIP, cross-attention of 64 queries, slices)",
    .load = LoadEncoderAs<Minicpmv>,
};

}  // namespace weir
