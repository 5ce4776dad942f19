// weir-plugin: encoder
// SPDX-License-Identifier: Apache-2.0
// Pixtral's encoder (2410.07073, section 2): a vision transformer for pictures of any size, with RMS norms and gates,
// that rotates one half of each head by line and the other by column; two layers. A row of the language model's word
// for a line's end stands behind every line but the last. Mistral Small 3.1 and later put each square of 2 x 2 patches,
// after a norm, through one matrix first.
#include <algorithm>
#include <cmath>
#include <string>
#include <vector>

#include "vision/encoder.h"
#include "vision/vit.h"
#include "vision/vit_blocks.h"

namespace weir {
namespace {

constexpr double kFreqBase = 10000;

class Pixtral final : public Encoder {
 public:
  explicit Pixtral(Backend& backend) : Encoder(backend) {}

  Status Load(const GgufFile& file, Ledger& ledger);
  PictureRows RowsOf(const float* pixels) const override {
    const PictureSize size = InputSize(pixels, config_.transform);
    const int32_t n_x = size.width / config_.transform.factor, n_y = size.height / config_.transform.factor;
    return {n_y * (n_x + 1) - 1, n_x + 1};
  }
  int64_t WorkspaceBytes() const override {
    Workspace space(nullptr);
    LayOut(&space);
    return space.used();
  }
  void Encode(const EncodeArgs& args) override;

 private:
  struct Buffers {
    float *x, *wide, *merged, *hidden;  // [n, n_embd]; pixels of patches, squares; [n_rows, n_embd]; [n_rows, n_hidden]
    float* angles[4];                   // cosines and sines of lines, then of columns: [n, head_dim / 4]
    VitBlocks::Buffers blocks;
  };
  Buffers LayOut(Workspace* space) const {
    Buffers b;
    const int64_t d = shape_.n_embd, n_squares = max_patches_ / (merge_ * merge_);
    b.x = space->Floats(max_patches_ * d);
    b.wide = space->Floats(max_patches_ * std::max(patch_values(), d));
    b.merged = space->Floats(n_squares * d);
    b.hidden = space->Floats(n_squares * n_hidden_);
    for (float*& angles : b.angles) angles = space->Floats(max_patches_ * shape_.head_dim() / 4);
    b.blocks =
        blocks_.LayOut(backend_, max_patches_, std::max({patch_values(), merge_ * merge_ * d, n_hidden_}), space);
    return b;
  }
  int64_t patch_values() const { return 3 * patch_ * patch_; }
  Status ReadMetadata(const GgufFile& file);
  Status MakeTables(Ledger& ledger);

  VitShape shape_;
  int64_t patch_ = 0, merge_ = 1, max_patches_ = 0, n_hidden_ = 0;
  bool gelu_gate_ = false;
  RopeTable tables_[2];  // of lines and of columns: half of a head each, every other frequency
  Buffer tables_device_[2];
  std::unique_ptr<Matrix> patches_, merger_;  // [n_embd, 3 * patch * patch]; [n_embd, merge * merge * n_embd] or null
  Vector pre_norm_, merge_norm_, line_end_;   // [n_embd]; [n_embd] or empty; [the language model's]
  VitBlocks blocks_;
  LinearWeights first_, second_;
};

Status Pixtral::ReadMetadata(const GgufFile& file) {
  const std::string v = "clip.vision.";
  config_.projector = "pixtral";
  WEIR_ASSIGN_OR_RETURN(config_.name, file.StringOr("general.name", ""));
  WEIR_ASSIGN_OR_RETURN(const int64_t longest, BoundedInt(file, v + "image_size", 1, kMaxImageSize));
  WEIR_ASSIGN_OR_RETURN(patch_, BoundedInt(file, v + "patch_size", 1, 256));
  WEIR_RETURN_IF_ERROR(ReadVitShape(file, &shape_));
  if (shape_.head_dim() % 4 != 0) return Corrupt("{}: heads of {} numbers", file.path(), shape_.head_dim());
  WEIR_ASSIGN_OR_RETURN(merge_, BoundedIntOr(file, v + "spatial_merge_size", 1, 16, 1));
  WEIR_ASSIGN_OR_RETURN(const bool silu, file.BoolOr("clip.use_silu", false));
  WEIR_ASSIGN_OR_RETURN(const bool gelu, file.BoolOr("clip.use_gelu", false));
  if (silu == gelu) return Corrupt("{}: one of clip.use_silu and clip.use_gelu must be set", file.path());
  gelu_gate_ = gelu;
  ImageTransform& transform = config_.transform;
  transform.fit = Fit::kLongest;
  transform.size = static_cast<int32_t>(longest);
  transform.longest_side = static_cast<int32_t>(longest);
  transform.factor = static_cast<int32_t>(patch_ * merge_);
  const int64_t n_side = (longest + transform.factor - 1) / transform.factor;
  max_patches_ = n_side * n_side * merge_ * merge_;
  if (max_patches_ > (1 << 16) || n_side * transform.factor > kMaxImageSize) {
    return Unsupported("{}: a picture of {} x {} patches; 65,536 together are possible", file.path(), n_side * merge_,
                       n_side * merge_);
  }
  config_.n_rows = static_cast<int32_t>(n_side * (n_side + 1) - 1);
  config_.words.text = {"[IMG_END]"};
  config_.words.close = 0;
  return ReadNormalisation(file, &transform);
}

Status Pixtral::MakeTables(Ledger& ledger) {
  // A head of d numbers has d / 2 frequencies; lines have those of even number, columns the others.
  const int64_t d = shape_.head_dim();
  for (int axis = 0; axis < 2; ++axis) {
    RopeTable& table = tables_[axis];
    table.n_rot = static_cast<int>(d / 2);
    for (int64_t i = 0; i < d / 4; ++i) {
      table.inv_freq.push_back(std::pow(kFreqBase, -static_cast<double>(2 * (2 * i + axis)) / static_cast<double>(d)));
    }
    const std::vector<uint8_t> packed = table.Pack();
    WEIR_ASSIGN_OR_RETURN(tables_device_[axis],
                          backend_.Upload(ledger, MemTag::kWeights, packed.data(), std::ssize(packed)));
    table.device = tables_device_[axis].data();
  }
  return Status();
}

Status Pixtral::Load(const GgufFile& file, Ledger& ledger) {
  WEIR_RETURN_IF_ERROR(ReadMetadata(file));
  WEIR_RETURN_IF_ERROR(MakeTables(ledger));
  const int64_t d = shape_.n_embd, in_square = merge_ * merge_;
  WeightLoader loader(file, backend_, ledger);
  WEIR_RETURN_IF_ERROR(loader.LoadKernel("v.patch_embd.weight", d, {3, patch_, patch_}, &patches_));
  WEIR_RETURN_IF_ERROR(loader.Load("v.pre_ln.weight", d, &pre_norm_));
  const VitStyle style = {.rms_norms = true, .gated = true, .gelu_gate = gelu_gate_, .interleaved_halves = true};
  WEIR_RETURN_IF_ERROR(blocks_.Load(shape_, style, file, loader));
  if (loader.Has("mm.patch_merger.weight")) {
    WEIR_RETURN_IF_ERROR(loader.Load("mm.input_norm.weight", d, &merge_norm_));
    // The file has the patches of a square side by side number by number; here they follow each other.
    std::vector<int32_t> order;
    for (int64_t patch = 0; patch < in_square; ++patch) {
      for (int64_t i = 0; i < d; ++i) order.push_back(static_cast<int32_t>(i * in_square + patch));
    }
    WEIR_RETURN_IF_ERROR(loader.LoadColumns("mm.patch_merger.weight", d, in_square * d, order, &merger_));
  } else if (merge_ != 1) {
    return NotFound("{}: no tensor mm.patch_merger.weight for squares of {} x {} patches", file.path(), merge_, merge_);
  }
  WEIR_ASSIGN_OR_RETURN(n_hidden_, ProjectedWidth(file, "mm.1.weight"));
  WEIR_ASSIGN_OR_RETURN(config_.n_embd, ProjectedWidth(file, "mm.2.weight"));
  WEIR_RETURN_IF_ERROR(loader.Load("mm.1", n_hidden_, d, &first_));
  WEIR_RETURN_IF_ERROR(loader.Load("mm.2", config_.n_embd, n_hidden_, &second_));
  WEIR_RETURN_IF_ERROR(loader.Load("v.token_embd.img_break", config_.n_embd, &line_end_));
  return loader.Finish();
}

void Pixtral::Encode(const EncodeArgs& args) {
  Workspace space(args.workspace);
  const Buffers b = LayOut(&space);
  const PictureSize size = InputSize(args.pixels, config_.transform);
  const int64_t d = shape_.n_embd, n_x = size.width / patch_, n_y = size.height / patch_, n = n_x * n_y;
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
  const MatMulOut to = {patches_.get(), b.x, d, nullptr, false};
  backend_.MatMul({b.wide, patch_values(), n, patch_values(), {&to, 1}, b.blocks.scratch});
  observe("v.embd", n, d, b.x);
  backend_.RmsNorm({b.x, pre_norm_.get(), b.x, n, d, shape_.eps});
  observe("v.pre_ln", n, d, b.x);
  GridAngles(backend_, tables_[0], GridAxis::kLine, n_x, n, b.angles[0], b.angles[1]);
  GridAngles(backend_, tables_[1], GridAxis::kColumn, n_x, n, b.angles[2], b.angles[3]);
  const VitRotation rotation = {&tables_[0], b.angles[0], b.angles[1], b.angles[2], b.angles[3]};
  blocks_.Run(backend_, b.blocks, n, &rotation, args.observer, b.x);
  const float* rows = b.x;
  const int64_t n_columns = n_x / merge_, n_lines = n_y / merge_, n_rows = n_columns * n_lines;
  if (merger_ != nullptr) {
    backend_.RmsNorm({b.x, merge_norm_.get(), b.x, n, d, shape_.eps});
    observe("mm.norm", n, d, b.x);
    SquaresArgs squares;
    squares.x = b.x;
    squares.height = n_y;
    squares.width = n_x;
    squares.dim = d;
    squares.side = merge_;
    squares.y = b.wide;
    backend_.Squares(squares);
    const int64_t n_in = merge_ * merge_ * d;
    const MatMulOut merged = {merger_.get(), b.merged, d, nullptr, false};
    backend_.MatMul({b.wide, n_in, n_rows, n_in, {&merged, 1}, b.blocks.scratch});
    observe("mm.merge", n_rows, d, b.merged);
    rows = b.merged;
  }
  LinearRows(backend_, rows, n_rows, d, first_, false, b.hidden, b.blocks.scratch);
  observe("mm.1", n_rows, n_hidden_, b.hidden);
  backend_.Gelu({GeluKind::kErf, b.hidden, b.hidden, n_rows * n_hidden_});
  // Line by line: their ends stand between them.
  const int64_t n_embd = config_.n_embd;
  for (int64_t line = 0; line < n_lines; ++line) {
    float* const out = args.out + line * (n_columns + 1) * n_embd;
    LinearRows(backend_, b.hidden + line * n_columns * n_hidden_, n_columns, n_hidden_, second_, false, out,
               b.blocks.scratch);
    if (line + 1 < n_lines) backend_.Scale({1.0f, line_end_.get(), out + n_columns * n_embd, n_embd});
  }
  observe("mm.rows", n_rows + n_lines - 1, n_embd, args.out);
}

}  // namespace

extern const EncoderInfo kPixtral;
const EncoderInfo kPixtral = {
    .name = "pixtral",
    .projector = "pixtral",
    .models = "Pixtral, Mistral Small 3.1 and 3.2, Ministral 3 (pictures of any size, line ends)",
    .load = LoadEncoderAs<Pixtral>,
};

}  // namespace weir
