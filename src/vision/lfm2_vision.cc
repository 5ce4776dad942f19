// weir-plugin: encoder
// SPDX-License-Identifier: Apache-2.0
// LFM2-VL's encoder (LFM2 report, 2511.23404, section 5): SigLIP 2 for pictures of any size ("NaFlex", 2502.14786),
// whose learned positions, a square table, are resized to the picture's lines and columns; each square of 2 x 2 patches
// side by side, a norm that some models have, and two layers. A large picture is read in tiles, line by line, and as a
// whole.
#include <algorithm>
#include <cmath>
#include <string>
#include <vector>

#include "vision/encoder.h"
#include "vision/stretch.h"
#include "vision/vit.h"
#include "vision/vit_blocks.h"

namespace weir {
namespace {

constexpr float kProjectorEps = 1e-5f;  // files have no key for it
// What the released processors have and llama.cpp's files do not say: rows of a picture, tiles, their size, and how
// many times the largest picture's pixels one has more than that is cut.
constexpr int64_t kMinRows = 64, kMaxRows = 256, kMinTiles = 2, kMaxTiles = 10, kTileSide = 512, kTolerance = 2;
constexpr int64_t kTapRows = 2048;  // rows of the table of positions that are mixed at once

// The weights of a table of n_from positions for place `at` of n, as resizing with antialiasing mixes them.
struct Taps {
  std::vector<int32_t> from;
  std::vector<float> weights;
  Taps(int64_t at, int64_t n, int64_t n_from) {
    const double scale = static_cast<double>(n_from) / static_cast<double>(n), support = std::max(scale, 1.0);
    const double centre = (static_cast<double>(at) + 0.5) * scale - 0.5;
    double sum = 0;
    for (int64_t i = 0; i < n_from; ++i) {
      const double weight = 1 - std::abs(static_cast<double>(i) - centre) / support;
      if (weight <= 0) continue;
      from.push_back(static_cast<int32_t>(i));
      weights.push_back(static_cast<float>(weight));
      sum += weight;
    }
    for (float& weight : weights) weight = static_cast<float>(weight / sum);
  }
};

class Lfm2Vision final : public Encoder {
 public:
  explicit Lfm2Vision(Backend& backend) : Encoder(backend) {}

  Status Load(const GgufFile& file, Ledger& ledger);
  PictureRows RowsOf(const float* pixels) const override {
    const PictureSize size = InputSize(pixels, config_.transform);
    const int32_t factor = config_.transform.factor;
    return {size.width / factor * (size.height / factor), size.width / factor};
  }
  int64_t WorkspaceBytes() const override {
    Workspace space(nullptr);
    LayOut(&space);
    return space.used();
  }
  void Encode(const EncodeArgs& args) override;

 private:
  struct Buffers {
    float *x, *wide, *hidden, *taps;  // [n, n_embd]; pixels of patches, squares; [n_rows, n_hidden]; [kTapRows, n_embd]
    VitBlocks::Buffers blocks;
  };
  Buffers LayOut(Workspace* space) const {
    Buffers b;
    b.x = space->Floats(max_patches_ * shape_.n_embd);
    b.wide = space->Floats(max_patches_ * std::max(patch_values(), shape_.n_embd));
    b.hidden = space->Floats(max_patches_ / in_square() * n_hidden_);
    b.taps = space->Floats(kTapRows * shape_.n_embd);
    b.blocks = blocks_.LayOut(backend_, max_patches_, std::max({patch_values(), n_in(), n_hidden_}), space);
    return b;
  }
  int64_t patch_values() const { return 3 * patch_ * patch_; }
  int64_t in_square() const { return scale_ * scale_; }
  int64_t n_in() const { return in_square() * shape_.n_embd; }
  Status ReadMetadata(const GgufFile& file);
  Status ReadTiles(const GgufFile& file);
  // Adds the positions of all patches of n_x by n_y to x.
  void AddPositions(int64_t n_x, int64_t n_y, const Buffers& b) const;

  VitShape shape_;
  int64_t patch_ = 0, scale_ = 0, max_patches_ = 0, side_ = 1, n_hidden_ = 0;
  std::unique_ptr<Matrix> patches_, positions_;  // [n_embd, 3 * patch * patch], [side * side, n_embd]
  Vector patch_bias_;
  LayerNormWeights post_ln_, norm_;
  VitBlocks blocks_;
  LinearWeights first_, second_;
};

Status Lfm2Vision::ReadMetadata(const GgufFile& file) {
  const std::string v = "clip.vision.";
  config_.projector = "lfm2";
  WEIR_ASSIGN_OR_RETURN(config_.name, file.StringOr("general.name", ""));
  WEIR_ASSIGN_OR_RETURN(patch_, BoundedInt(file, v + "patch_size", 1, 256));
  WEIR_RETURN_IF_ERROR(ReadVitShape(file, &shape_));
  WEIR_ASSIGN_OR_RETURN(scale_, BoundedIntOr(file, v + "projector.scale_factor", 1, 16, 2));
  ImageTransform& transform = config_.transform;
  transform.fit = Fit::kMultiples;
  transform.resample = Resample::kBilinear;
  transform.at_least_factor = true;
  transform.factor = static_cast<int32_t>(patch_ * scale_);
  const int64_t square = int64_t{transform.factor} * transform.factor;
  WEIR_ASSIGN_OR_RETURN(const int64_t least, BoundedIntOr(file, "weir.vision.min_rows", 1, 1 << 16, kMinRows));
  WEIR_ASSIGN_OR_RETURN(const int64_t most, BoundedIntOr(file, "weir.vision.max_rows", least, 1 << 16, kMaxRows));
  transform.min_pixels = least * square;
  transform.max_pixels = most * square;
  if (transform.max_pixels > int64_t{kMaxImageSize} * kMaxImageSize) {
    return Unsupported("{}: pictures of {} pixels", file.path(), transform.max_pixels);
  }
  WEIR_RETURN_IF_ERROR(ReadTiles(file));
  const int64_t n_rows = (InputFloats(transform) - 2) / 3 / square;
  if (n_rows * (1 + config_.max_tiles) > (1 << 16)) {
    return Unsupported("{}: {} tokens a picture; 65,536 are possible", file.path(), n_rows * (1 + config_.max_tiles));
  }
  config_.n_rows = static_cast<int32_t>(n_rows);
  max_patches_ = n_rows * in_square();
  return ReadNormalisation(file, &transform);
}

Status Lfm2Vision::ReadTiles(const GgufFile& file) {
  ImageTransform& transform = config_.transform;
  PictureWords& words = config_.words;
  words.text = {"<|image_start|>", "<|image_end|>", "<|img_thumbnail|>"};
  words.open = 0;
  words.close = 1;
  words.open_last = 2;
  words.open_square = 3;
  const std::string tiles = "clip.vision.preproc_";
  WEIR_ASSIGN_OR_RETURN(const int64_t most, BoundedIntOr(file, tiles + "max_tiles", 1, kMostTiles, kMaxTiles));
  WEIR_ASSIGN_OR_RETURN(const int64_t least,
                        BoundedIntOr(file, tiles + "min_tiles", 1, most, std::min(most, kMinTiles)));
  if (most == 1) return Status();
  WEIR_ASSIGN_OR_RETURN(const int64_t side, BoundedIntOr(file, "weir.vision.tile_size", 1, kMaxImageSize, kTileSide));
  if (side % transform.factor != 0 || 3 * side * side + 2 > InputFloats(transform)) {
    return Corrupt("{}: tiles of {} pixels, where a picture has squares of {} and at most {} pixels", file.path(), side,
                   transform.factor, transform.max_pixels);
  }
  transform.size = static_cast<int32_t>(side);
  config_.tile_side = static_cast<int32_t>(side);
  config_.tile_above = kTolerance * transform.max_pixels;
  config_.min_tiles = static_cast<int32_t>(least);
  config_.max_tiles = static_cast<int32_t>(most);
  for (int64_t y = 1; y <= most; ++y) {
    for (int64_t x = 1; x <= most; ++x) {
      const char* first = y == 1 && x == 1 ? "<|image_start|>" : "";
      words.text.push_back(first + ("<|img_row_" + std::to_string(y)) + "_col_" + std::to_string(x) + "|>");
    }
  }
  return Status();
}

Status Lfm2Vision::Load(const GgufFile& file, Ledger& ledger) {
  WEIR_RETURN_IF_ERROR(ReadMetadata(file));
  const int64_t d = shape_.n_embd;
  WeightLoader loader(file, backend_, ledger);
  WEIR_RETURN_IF_ERROR(loader.LoadKernel("v.patch_embd.weight", d, {3, patch_, patch_}, &patches_));
  WEIR_RETURN_IF_ERROR(loader.LoadOptional("v.patch_embd.bias", d, &patch_bias_));
  const GgufTensor* table = file.Tensor("v.position_embd.weight");
  const int64_t n_positions = table == nullptr ? 1 : table->shape.front();
  // The taps of a patch are all rows of the table at most.
  side_ = n_positions > kTapRows ? 0 : std::lround(std::sqrt(static_cast<double>(n_positions)));
  if (side_ * side_ != n_positions) return Corrupt("{}: a table of {} positions", file.path(), n_positions);
  WEIR_RETURN_IF_ERROR(loader.Load("v.position_embd.weight", n_positions, d, &positions_));
  WEIR_RETURN_IF_ERROR(blocks_.Load(shape_, GeluKind::kTanh, file, loader));
  WEIR_RETURN_IF_ERROR(loader.Load("v.post_ln", d, &post_ln_));
  if (loader.Has("mm.input_norm.weight") || loader.Has("mm.input_norm.bias")) {
    WEIR_RETURN_IF_ERROR(loader.Load("mm.input_norm", n_in(), &norm_));
  }
  WEIR_ASSIGN_OR_RETURN(n_hidden_, ProjectedWidth(file, "mm.1.weight"));
  WEIR_ASSIGN_OR_RETURN(config_.n_embd, ProjectedWidth(file, "mm.2.weight"));
  WEIR_RETURN_IF_ERROR(loader.Load("mm.1", n_hidden_, n_in(), &first_));
  WEIR_RETURN_IF_ERROR(loader.Load("mm.2", config_.n_embd, n_hidden_, &second_));
  return loader.Finish();
}

void Lfm2Vision::AddPositions(int64_t n_x, int64_t n_y, const Buffers& b) const {
  const int64_t d = shape_.n_embd;
  std::vector<Taps> columns;
  for (int64_t x = 0; x < n_x; ++x) columns.emplace_back(x, n_x, side_);
  int32_t ids[kTapRows], rows[kTapRows];
  float weights[kTapRows];
  int64_t n = 0, first = 0;
  const auto flush = [&](int64_t next) {
    backend_.EmbedRows(*positions_, ids, n, b.taps);
    backend_.ScatterAddRows({b.taps, rows, weights, b.x + first * d, n, d});
    n = 0;
    first = next;
  };
  for (int64_t y = 0; y < n_y; ++y) {
    const Taps line(y, n_y, side_);
    for (int64_t x = 0; x < n_x; ++x) {
      const Taps& column = columns[static_cast<size_t>(x)];
      const int64_t patch = y * n_x + x, n_taps = std::ssize(line.from) * std::ssize(column.from);
      if (n + n_taps > kTapRows) flush(patch);
      for (size_t i = 0; i < line.from.size(); ++i) {
        for (size_t j = 0; j < column.from.size(); ++j, ++n) {
          ids[n] = line.from[i] * static_cast<int32_t>(side_) + column.from[j];
          rows[n] = static_cast<int32_t>(patch - first);
          weights[n] = line.weights[i] * column.weights[j];
        }
      }
    }
  }
  flush(0);
}

void Lfm2Vision::Encode(const EncodeArgs& args) {
  Workspace space(args.workspace);
  const Buffers b = LayOut(&space);
  const PictureSize size = InputSize(args.pixels, config_.transform);
  const int64_t d = shape_.n_embd, n_x = size.width / patch_, n_y = size.height / patch_, n = n_x * n_y;
  const int64_t n_rows = n / in_square();
  const auto observe = [&](const char* name, int64_t rows, int64_t cols, const float* data) {
    if (args.observer != nullptr) (*args.observer)(name, rows, cols, data);
  };
  SquaresArgs patches;
  patches.x = args.pixels;
  patches.n_planes = 3;
  patches.height = size.height;
  patches.width = size.width;
  patches.side = patch_;
  patches.y = b.wide;
  backend_.Squares(patches);
  const MatMulOut to = {patches_.get(), b.x, d, patch_bias_.get(), false};
  backend_.MatMul({b.wide, patch_values(), n, patch_values(), {&to, 1}, b.blocks.scratch});
  AddPositions(n_x, n_y, b);
  observe("v.embd", n, d, b.x);
  blocks_.Run(backend_, b.blocks, n, nullptr, args.observer, b.x);
  backend_.LayerNorm({b.x, post_ln_.w.get(), post_ln_.b.get(), b.x, n, d, shape_.eps});
  observe("v.post_ln", n, d, b.x);
  SquaresArgs shuffle;
  shuffle.x = b.x;
  shuffle.height = n_y;
  shuffle.width = n_x;
  shuffle.dim = d;
  shuffle.side = scale_;
  shuffle.y = b.wide;
  backend_.Squares(shuffle);
  observe("mm.shuffle", n_rows, n_in(), b.wide);
  if (!norm_.w.data.empty()) {
    backend_.LayerNorm({b.wide, norm_.w.get(), norm_.b.get(), b.wide, n_rows, n_in(), kProjectorEps});
    observe("mm.norm", n_rows, n_in(), b.wide);
  }
  LinearRows(backend_, b.wide, n_rows, n_in(), first_, false, b.hidden, b.blocks.scratch);
  observe("mm.1", n_rows, n_hidden_, b.hidden);
  backend_.Gelu({GeluKind::kErf, b.hidden, b.hidden, n_rows * n_hidden_});
  LinearRows(backend_, b.hidden, n_rows, n_hidden_, second_, false, args.out, b.blocks.scratch);
  observe("mm.2", n_rows, config_.n_embd, args.out);
}

}  // namespace

extern const EncoderInfo kLfm2Vision;
const EncoderInfo kLfm2Vision = {
    .name = "lfm2_vision",
    .projector = "lfm2",
    .models = "LFM2-VL, LFM2.5-VL (SigLIP 2, pictures of any size, tiles)",
    .load = LoadEncoderAs<Lfm2Vision>,
};

}  // namespace weir
