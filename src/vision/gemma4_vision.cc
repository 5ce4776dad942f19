// weir-plugin: encoder
// SPDX-License-Identifier: Apache-2.0
// Gemma 4's encoder (transformers' Gemma4VisionModel): a vision transformer for pictures of any size, with RMS norms
// before and behind both halves of a block, norms of each head's queries, keys and values, and scores without a scale.
// Positions are learned, the sum of a column's and a line's, and rotate one half of each head by column and the other
// by line. A row is the mean of a square of `scale` x `scale` patches; the large models move and stretch its numbers by
// constants of the file, then there are a norm without weights and one matrix. The small models bound what goes into
// and comes out of the blocks' matrices.
//
// Pictures are resized to the most pixels that have at most `max_rows` rows, at about their own ratio. Files of
// llama.cpp say nothing of these rows, and may have an encoder of sound, which is not read.
#include <algorithm>
#include <cmath>
#include <numeric>
#include <string>
#include <vector>

#include "vision/encoder.h"
#include "vision/vit.h"
#include "vision/vit_blocks.h"

namespace weir {
namespace {

constexpr double kFreqBase = 100;                   // of the released models; files have no key for it
constexpr int64_t kUsualScale = 3, kMaxRows = 280;  // of theirs

class Gemma4Vision final : public Encoder {
 public:
  explicit Gemma4Vision(Backend& backend) : Encoder(backend) {}

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
    float *x, *wide, *pooled;  // [n, n_embd]; pixels of patches, rows of squares; [n_rows, n_embd]
    float* angles[4];          // cosines and sines of columns, then of lines: [n, head_dim / 4]
    VitBlocks::Buffers blocks;
  };
  Buffers LayOut(Workspace* space) const {
    Buffers b;
    const int64_t d = shape_.n_embd;
    b.x = space->Floats(max_patches_ * d);
    b.wide = space->Floats(max_patches_ * std::max(patch_values(), d));
    b.pooled = space->Floats(max_patches_ / in_square() * d);
    for (float*& angles : b.angles) angles = space->Floats(max_patches_ * shape_.head_dim() / 4);
    b.blocks = blocks_.LayOut(backend_, max_patches_, patch_values(), space);
    return b;
  }
  int64_t patch_values() const { return 3 * patch_ * patch_; }
  int64_t in_square() const { return scale_ * scale_; }
  Status ReadMetadata(const GgufFile& file);
  Status MakeTable(Ledger& ledger);
  // Patches of n_x by n_y and their positions.
  void Embed(const float* pixels, PictureSize size, const Buffers& b) const;
  void Pool(int64_t n_x, int64_t n_y, const Buffers& b) const;

  VitShape shape_;
  int64_t patch_ = 0, scale_ = 0, max_patches_ = 0;
  RopeTable table_;  // of both axes: half of a head
  Buffer table_device_;
  std::unique_ptr<Matrix> patches_, columns_, lines_;  // [n_embd, 3 * patch * patch], [places, n_embd] twice
  Vector less_, times_;                                // [n_embd] or empty: what is added to a row, and multiplies it
  Vector ones_;                                        // [n_embd]: the weights of a norm without
  VitBlocks blocks_;
  LinearWeights projection_;
};

Status Gemma4Vision::ReadMetadata(const GgufFile& file) {
  const std::string v = "clip.vision.";
  config_.projector = "gemma4v";
  WEIR_ASSIGN_OR_RETURN(config_.name, file.StringOr("general.name", ""));
  WEIR_ASSIGN_OR_RETURN(patch_, BoundedInt(file, v + "patch_size", 1, 256));
  WEIR_RETURN_IF_ERROR(ReadVitShape(file, &shape_));
  if (shape_.head_dim() % 4 != 0) return Corrupt("{}: heads of {} numbers", file.path(), shape_.head_dim());
  WEIR_ASSIGN_OR_RETURN(scale_, BoundedIntOr(file, v + "projector.scale_factor", 1, 16, kUsualScale));
  WEIR_ASSIGN_OR_RETURN(const int64_t most, BoundedIntOr(file, "weir.vision.max_rows", 1, 1 << 13, kMaxRows));
  ImageTransform& transform = config_.transform;
  transform.fit = Fit::kMost;
  transform.factor = static_cast<int32_t>(patch_ * scale_);
  transform.max_pixels = most * transform.factor * transform.factor;
  if (transform.max_pixels > int64_t{kMaxImageSize} * kMaxImageSize) {
    return Unsupported("{}: pictures of {} pixels", file.path(), transform.max_pixels);
  }
  max_patches_ = most * in_square();
  if (max_patches_ > (1 << 16)) {
    return Unsupported("{}: a picture of {} patches; 65,536 are possible", file.path(), max_patches_);
  }
  config_.n_rows = static_cast<int32_t>(most);
  config_.words.text = {"<|image>", "<image|>"};
  config_.words.open = 0;
  config_.words.close = 1;
  WEIR_RETURN_IF_ERROR(ReadNormalisation(file, &transform));
  // The model's own step from there to numbers of -1 to 1.
  for (int c = 0; c < 3; ++c) {
    transform.mean[c] += 0.5f * transform.std[c];
    transform.std[c] *= 0.5f;
  }
  return Status();
}

Status Gemma4Vision::MakeTable(Ledger& ledger) {
  const int64_t quarter = shape_.head_dim() / 4;
  table_.n_rot = static_cast<int>(2 * quarter);
  for (int64_t i = 0; i < quarter; ++i) {
    table_.inv_freq.push_back(std::pow(kFreqBase, -static_cast<double>(i) / static_cast<double>(quarter)));
  }
  const std::vector<uint8_t> packed = table_.Pack();
  WEIR_ASSIGN_OR_RETURN(table_device_, backend_.Upload(ledger, MemTag::kWeights, packed.data(), std::ssize(packed)));
  table_.device = table_device_.data();
  return Status();
}

Status Gemma4Vision::Load(const GgufFile& file, Ledger& ledger) {
  WEIR_RETURN_IF_ERROR(ReadMetadata(file));
  WEIR_RETURN_IF_ERROR(MakeTable(ledger));
  const int64_t d = shape_.n_embd;
  WeightLoader loader(file, backend_, ledger);
  for (const char* sound : {"a.", "mm.a."}) loader.Skip(sound);
  WEIR_RETURN_IF_ERROR(loader.LoadKernel("v.patch_embd.weight", d, {3, patch_, patch_}, &patches_));
  const GgufTensor* table = file.Tensor("v.position_embd.weight");
  const int64_t n_places = table == nullptr || table->shape.size() < 2 ? 1 : table->shape[table->shape.size() - 2];
  // One line of squares, the longest that there is.
  const int64_t n_needed = config_.n_rows * scale_;
  if (table != nullptr && table->shape.size() == 3 && n_places < n_needed) {
    return Corrupt("{}: a table of {} positions along each side, where a picture has up to {}", file.path(), n_places,
                   n_needed);
  }
  // More than pictures can have are in the file and not kept.
  for (const auto& [axis, to] : {std::pair{0, &columns_}, std::pair{1, &lines_}}) {
    WEIR_RETURN_IF_ERROR(
        loader.LoadSlice("v.position_embd.weight", 2, axis, n_places, d, to, std::min(n_places, n_needed)));
  }
  const VitStyle style = {.act = GeluKind::kTanh,
                          .rms_norms = true,
                          .gated = true,
                          .gelu_gate = true,
                          .head_norms = true,
                          .post_norms = true,
                          .bounds = true};
  WEIR_RETURN_IF_ERROR(blocks_.Load(shape_, style, file, loader));
  if (loader.Has("v.std_bias") || loader.Has("v.std_scale")) {
    WEIR_RETURN_IF_ERROR(loader.Load("v.std_bias", d, &less_));
    WEIR_RETURN_IF_ERROR(loader.Scale(-1, &less_));
    WEIR_RETURN_IF_ERROR(loader.Load("v.std_scale", d, &times_));
  }
  WEIR_RETURN_IF_ERROR(loader.Fill(d, 1.0f, &ones_));
  WEIR_ASSIGN_OR_RETURN(const int32_t width, ProjectedWidth(file, "mm.input_projection.weight"));
  WEIR_ASSIGN_OR_RETURN(const int64_t said, BoundedIntOr(file, "clip.vision.projection_dim", 1, 1 << 17, width));
  config_.n_embd = static_cast<int32_t>(said);
  WEIR_RETURN_IF_ERROR(loader.Load("mm.input_projection.weight", config_.n_embd, d, &projection_.w));
  return loader.Finish();
}

void Gemma4Vision::Embed(const float* pixels, PictureSize size, const Buffers& b) const {
  constexpr int64_t kIds = 256;
  const int64_t d = shape_.n_embd, n_x = size.width / patch_, n = n_x * (size.height / patch_);
  int32_t ids[kIds];
  // Columns first; lines, with the memory of the patches' pixels, and patches are added to them.
  for (const bool by_line : {false, true}) {
    for (int64_t done = 0; done < n; done += kIds) {
      const int64_t n_here = std::min(kIds, n - done);
      for (int64_t i = 0; i < n_here; ++i) {
        ids[i] = static_cast<int32_t>(by_line ? (done + i) / n_x : (done + i) % n_x);
      }
      backend_.EmbedRows(by_line ? *lines_ : *columns_, ids, n_here, (by_line ? b.wide : b.x) + done * d);
    }
  }
  backend_.Add({b.x, b.wide, b.x, n * d});
  SquaresArgs patches;
  patches.x = pixels;
  patches.n_planes = 3;
  patches.height = size.height;
  patches.width = size.width;
  patches.side = patch_;
  patches.y = b.wide;
  backend_.Squares(patches);
  const MatMulOut to = {patches_.get(), b.x, d, nullptr, true};
  backend_.MatMul({b.wide, patch_values(), n, patch_values(), {&to, 1}, b.blocks.scratch});
}

void Gemma4Vision::Pool(int64_t n_x, int64_t n_y, const Buffers& b) const {
  const int64_t d = shape_.n_embd, n_rows = n_x * n_y / in_square();
  SquaresArgs squares;
  squares.x = b.x;
  squares.height = n_y;
  squares.width = n_x;
  squares.dim = d;
  squares.side = scale_;
  squares.y = b.wide;
  backend_.Squares(squares);
  for (int64_t row = 0; row < n_rows; ++row) {
    backend_.SumRows({b.wide + row * in_square() * d, b.pooled + row * d, in_square(), d});
  }
  const float factor = std::sqrt(static_cast<float>(d)) / static_cast<float>(in_square());
  backend_.Scale({factor, b.pooled, b.pooled, n_rows * d});
}

void Gemma4Vision::Encode(const EncodeArgs& args) {
  Workspace space(args.workspace);
  const Buffers b = LayOut(&space);
  const PictureSize size = InputSize(args.pixels, config_.transform);
  const int64_t d = shape_.n_embd, n_x = size.width / patch_, n_y = size.height / patch_, n = n_x * n_y;
  const int64_t n_rows = n / in_square();
  const auto observe = [&](const char* name, int64_t rows, int64_t cols, const float* data) {
    if (args.observer != nullptr) (*args.observer)(name, rows, cols, data);
  };
  Embed(args.pixels, size, b);
  observe("v.embd", n, d, b.x);
  GridAngles(backend_, table_, GridAxis::kColumn, n_x, n, b.angles[0], b.angles[1]);
  GridAngles(backend_, table_, GridAxis::kLine, n_x, n, b.angles[2], b.angles[3]);
  const VitRotation rotation = {&table_, b.angles[0], b.angles[1], b.angles[2], b.angles[3]};
  blocks_.Run(backend_, b.blocks, n, &rotation, args.observer, b.x);
  Pool(n_x, n_y, b);
  observe("mm.pool", n_rows, d, b.pooled);
  if (!less_.data.empty()) {
    for (int64_t row = 0; row < n_rows; ++row) {
      float* const at = b.pooled + row * d;
      backend_.Add({at, less_.get(), at, d});
    }
    backend_.Mul({b.pooled, times_.get(), b.pooled, n_rows * d, d});
    observe("mm.std", n_rows, d, b.pooled);
  }
  backend_.RmsNorm({b.pooled, ones_.get(), b.pooled, n_rows, d, shape_.eps});
  observe("mm.norm", n_rows, d, b.pooled);
  LinearRows(backend_, b.pooled, n_rows, d, projection_, false, args.out, b.blocks.scratch);
  observe("mm.fc", n_rows, config_.n_embd, args.out);
}

}  // namespace

extern const EncoderInfo kGemma4Vision;
const EncoderInfo kGemma4Vision = {
    .name = "gemma4_vision",
    .projector = "gemma4v",
    .models = "Gemma 4 (pictures of any size, mean of squares)",
    .load = LoadEncoderAs<Gemma4Vision>,
};

}  // namespace weir
