// weir-plugin: encoder
// SPDX-License-Identifier: Apache-2.0
// Qwen2-VL's encoder ("Qwen2-VL: Enhancing Vision-Language Model's Perception of the World at Any Resolution",
// 2409.12191, section 2.1): a vision transformer that takes pictures of any size, queries and keys rotated by line and
// column, then the merger, which puts each square of 2 x 2 patches side by side and sends it through two layers.
//
// Patches of a square are adjacent from the start, so that merging moves nothing. A patch covers two frames; a single
// picture is used for both.
#include <algorithm>
#include <cmath>
#include <iterator>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "vision/encoder.h"
#include "vision/vit.h"
#include "vision/vit_blocks.h"

namespace weir {
namespace {

constexpr int64_t kMerge = 2;  // patches along a side of a square
constexpr double kFreqBase = 10000;
// Defaults for files without the keys: the processor's own bounds.
constexpr int64_t kMinPixels = 56 * 56, kMaxPixels = 28 * 28 * 1280;

class Qwen2vlMerger final : public Encoder {
 public:
  explicit Qwen2vlMerger(Backend& backend) : Encoder(backend) {}

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
    float *x, *wide;   // [n, n_embd]; patches' pixels
    float *cos, *sin;  // [n, head_dim / 2]
    VitBlocks::Buffers blocks;
  };
  Buffers LayOut(Workspace* space) const {
    const int64_t n = max_patches_, d = shape_.n_embd;
    Buffers b;
    b.x = space->Floats(n * d);
    b.wide = space->Floats(n * std::max(patch_values(), d));
    b.cos = space->Floats(n * shape_.head_dim() / 2);
    b.sin = space->Floats(n * shape_.head_dim() / 2);
    b.blocks = blocks_.LayOut(backend_, n, std::max(patch_values(), kMerge * kMerge * d), space);
    return b;
  }
  Status ReadMetadata(const GgufFile& file);
  int64_t patch_values() const { return 3 * patch_ * patch_; }
  void Embed(const EncodeArgs& args, PictureSize size, const Buffers& b) const;

  VitShape shape_;
  int64_t patch_ = 0, max_patches_ = 0;
  RopeTable rotation_;  // of a head: all of its elements, no positions of its own
  RopeTable axis_;      // of lines, and of columns: half of them
  Buffer axis_device_;
  std::unique_ptr<Matrix> patches_[2];  // [n_embd, 3 * patch * patch], of each of the two frames
  VitBlocks blocks_;
  LayerNormWeights post_ln_;
  LinearWeights mm0_, mm2_;
};

Status Qwen2vlMerger::ReadMetadata(const GgufFile& file) {
  const std::string v = "clip.vision.";
  config_.projector = "qwen2vl_merger";
  WEIR_ASSIGN_OR_RETURN(config_.name, file.StringOr("general.name", ""));
  WEIR_ASSIGN_OR_RETURN(patch_, BoundedInt(file, v + "patch_size", 1, 256));
  WEIR_RETURN_IF_ERROR(ReadVitShape(file, &shape_));
  // Converters disagree about the key for the feed-forward part's width; its tensor is unambiguous, in either
  // orientation.
  if (const GgufTensor* up = file.Tensor("v.blk.0.ffn_up.weight"); up != nullptr && up->shape.size() == 2) {
    shape_.n_ff = up->shape[up->shape[0] == shape_.n_embd ? 1 : 0];
  }
  if (shape_.n_ff > (1 << 18) || shape_.head_dim() % 4 != 0) {
    return Corrupt("{}: heads of {} numbers and a feed-forward part of {}", file.path(), shape_.head_dim(),
                   shape_.n_ff);
  }
  ImageTransform& transform = config_.transform;
  transform.fit = Fit::kMultiples;
  transform.factor = static_cast<int32_t>(kMerge * patch_);
  transform.min_pixels = kMinPixels;
  transform.max_pixels = kMaxPixels;
  for (const auto& [key, to] : {std::pair{v + "image_min_pixels", &transform.min_pixels},
                                std::pair{v + "image_max_pixels", &transform.max_pixels}}) {
    if (!file.Has(key)) continue;
    WEIR_ASSIGN_OR_RETURN(*to, BoundedInt(file, key, 1, int64_t{kMaxImageSize} * kMaxImageSize));
  }
  const int64_t square = int64_t{transform.factor} * transform.factor;
  if (transform.min_pixels > transform.max_pixels || transform.max_pixels < square) {
    return Corrupt("{}: pictures of {} to {} pixels, in squares of {}", file.path(), transform.min_pixels,
                   transform.max_pixels, square);
  }
  const int64_t n_rows = (InputFloats(transform) - 2) / 3 / square;
  if (n_rows > (1 << 16)) {
    return Unsupported("{}: {} tokens a picture; 65,536 are possible", file.path(), n_rows);
  }
  config_.n_rows = static_cast<int32_t>(n_rows);
  max_patches_ = n_rows * kMerge * kMerge;
  config_.words.text = {"<|vision_start|>", "<|vision_end|>"};
  config_.words.open = 0;
  config_.words.close = 1;
  return ReadNormalisation(file, &transform);
}

Status Qwen2vlMerger::Load(const GgufFile& file, Ledger& ledger) {
  WEIR_RETURN_IF_ERROR(ReadMetadata(file));
  const int64_t d = shape_.n_embd, quarter = shape_.head_dim() / 4;
  rotation_.n_rot = static_cast<int>(shape_.head_dim());
  axis_.n_rot = static_cast<int>(2 * quarter);
  for (int64_t i = 0; i < quarter; ++i) {
    axis_.inv_freq.push_back(std::pow(kFreqBase, -static_cast<double>(i) / static_cast<double>(quarter)));
  }
  const std::vector<uint8_t> packed = axis_.Pack();
  WEIR_ASSIGN_OR_RETURN(axis_device_, backend_.Upload(ledger, MemTag::kWeights, packed.data(), std::ssize(packed)));
  axis_.device = axis_device_.data();
  WEIR_ASSIGN_OR_RETURN(const bool gelu, file.BoolOr("clip.use_gelu", false));
  WeightLoader loader(file, backend_, ledger);
  WEIR_RETURN_IF_ERROR(loader.LoadKernel("v.patch_embd.weight", d, {3, patch_, patch_}, &patches_[0]));
  WEIR_RETURN_IF_ERROR(loader.LoadKernel("v.patch_embd.weight.1", d, {3, patch_, patch_}, &patches_[1]));
  WEIR_RETURN_IF_ERROR(blocks_.Load(shape_, gelu ? GeluKind::kTanh : GeluKind::kQuick, file, loader));
  WEIR_RETURN_IF_ERROR(loader.Load("v.post_ln", d, &post_ln_));
  const int64_t wide = kMerge * kMerge * d;
  const GgufTensor* last = file.Tensor("mm.2.weight");
  const int64_t n_out = last == nullptr ? 1 : last->shape.front();
  if (n_out > (1 << 17)) {
    return Corrupt("{}: a projection to {} columns", file.path(), n_out);
  }
  config_.n_embd = static_cast<int32_t>(n_out);
  WEIR_RETURN_IF_ERROR(loader.Load("mm.0", wide, wide, &mm0_));
  WEIR_RETURN_IF_ERROR(loader.Load("mm.2", n_out, wide, &mm2_));
  return loader.Finish();
}

// Rows of all patches and the angles of their places, square by square.
void Qwen2vlMerger::Embed(const EncodeArgs& args, PictureSize size, const Buffers& b) const {
  SquaresArgs patches;
  patches.x = args.pixels;
  patches.n_planes = 3;
  patches.height = size.height;
  patches.width = size.width;
  patches.side = patch_;
  patches.group = kMerge;
  patches.y = b.wide;
  backend_.Squares(patches);
  const int64_t n = patches.n_squares(), half = shape_.head_dim() / 2;
  // Line and column count as two positions: their angles are the two halves of a patch's.
  int64_t places[256];
  constexpr int64_t kPlaces = std::ssize(places) / 2;
  for (int64_t done = 0; done < n; done += kPlaces) {
    const int64_t n_here = std::min(kPlaces, n - done);
    for (int64_t i = 0; i < n_here; ++i) {
      const SquarePlace at = PlaceOfSquare(patches, done + i);
      places[2 * i] = at.y;
      places[2 * i + 1] = at.x;
    }
    backend_.RopeAngles(axis_, {places, static_cast<size_t>(2 * n_here)}, b.cos + done * half, b.sin + done * half);
  }
  for (int frame = 0; frame < 2; ++frame) {
    const MatMulOut to = {patches_[frame].get(), b.x, shape_.n_embd, nullptr, frame == 1};
    MatMulArgs mm;
    mm.x = b.wide;
    mm.x_stride = mm.n_in = patch_values();
    mm.n_rows = n;
    mm.outs = {&to, 1};
    mm.scratch = b.blocks.scratch;
    backend_.MatMul(mm);
  }
}

void Qwen2vlMerger::Encode(const EncodeArgs& args) {
  Workspace space(args.workspace);
  const Buffers b = LayOut(&space);
  const PictureSize size = InputSize(args.pixels, config_.transform);
  const int64_t d = shape_.n_embd, wide = kMerge * kMerge * d, n_rows = RowsOf(args.pixels).n;
  const int64_t n = n_rows * kMerge * kMerge;
  const auto observe = [&](const char* name, int64_t rows, int64_t cols, const float* data) {
    if (args.observer != nullptr) (*args.observer)(name, rows, cols, data);
  };
  Embed(args, size, b);
  observe("v.embd", n, d, b.x);
  const VitRotation rotation = {&rotation_, b.cos, b.sin};
  blocks_.Run(backend_, b.blocks, n, &rotation, args.observer, b.x);
  backend_.LayerNorm({b.x, post_ln_.w.get(), post_ln_.b.get(), b.x, n, d, shape_.eps});
  observe("v.post_ln", n, d, b.x);
  LinearRows(backend_, b.x, n_rows, wide, mm0_, false, b.wide, b.blocks.scratch);
  observe("mm.0", n_rows, wide, b.wide);
  backend_.Gelu({GeluKind::kErf, b.wide, b.wide, n_rows * wide});
  LinearRows(backend_, b.wide, n_rows, wide, mm2_, false, args.out, b.blocks.scratch);
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
