// SPDX-License-Identifier: Apache-2.0
#include "vision/qwen_vit.h"

#include <algorithm>
#include <cmath>
#include <iterator>
#include <string>
#include <utility>
#include <vector>

namespace weir {
namespace {

constexpr double kFreqBase = 10000;

}  // namespace

Status SquareMerger::Load(const GgufFile& file, WeightLoader& loader, int64_t n_in,
                          const std::array<std::string, 2>& names) {
  const GgufTensor* last = file.Tensor(names[1] + ".weight");
  const int64_t n_out = last == nullptr ? 1 : last->shape.front();
  if (n_out > (1 << 17)) return Corrupt("{}: a projection to {} columns", file.path(), n_out);
  WEIR_RETURN_IF_ERROR(loader.Load(names[0], n_in, n_in, &first));
  return loader.Load(names[1], n_out, n_in, &second);
}

void SquareMerger::Run(Backend& backend, const float* x, int64_t n_rows, int64_t n_in, float* hidden, void* scratch,
                       float* out, int64_t out_stride, const VisionObserver* observer, const std::string& name) const {
  LinearRows(backend, x, n_rows, n_in, first, false, hidden, scratch);
  if (observer != nullptr) (*observer)(name, n_rows, n_in, hidden);
  backend.Gelu({GeluKind::kErf, hidden, hidden, n_rows * n_in});
  const MatMulOut to = {second.w.get(), out, out_stride, second.b.get(), false};
  MatMulArgs mm;
  mm.x = hidden;
  mm.x_stride = mm.n_in = n_in;
  mm.n_rows = n_rows;
  mm.outs = {&to, 1};
  mm.scratch = scratch;
  backend.MatMul(mm);
}

Status QwenVit::ReadMetadata(const GgufFile& file, int64_t min_pixels, int64_t max_pixels, EncoderConfig* config) {
  const std::string v = "clip.vision.";
  WEIR_ASSIGN_OR_RETURN(config->name, file.StringOr("general.name", ""));
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
  WEIR_ASSIGN_OR_RETURN(const int64_t merge, BoundedIntOr(file, v + "spatial_merge_size", 1, 256, kMerge));
  if (merge != kMerge) return Unsupported("{}: squares of {} x {} patches; 2 x 2 are known", file.path(), merge, merge);
  WEIR_ASSIGN_OR_RETURN(n_frames_, BoundedIntOr(file, v + "temporal_patch_size", 1, 2, n_frames_));
  ImageTransform& transform = config->transform;
  transform.fit = Fit::kMultiples;
  transform.factor = static_cast<int32_t>(kMerge * patch_);
  transform.min_pixels = min_pixels;
  transform.max_pixels = max_pixels;
  for (const auto& [key, to] : {std::pair{v + "image_min_pixels", &transform.min_pixels},
                                std::pair{v + "image_max_pixels", &transform.max_pixels}}) {
    if (!file.Has(key)) continue;
    WEIR_ASSIGN_OR_RETURN(*to, BoundedInt(file, key, 1, int64_t{kMaxImageSize} * kMaxImageSize));
  }
  if (!file.Has(v + "image_min_pixels")) transform.min_pixels = std::min(min_pixels, transform.max_pixels);
  const int64_t square = int64_t{transform.factor} * transform.factor;
  if (transform.min_pixels > transform.max_pixels || transform.max_pixels < square) {
    return Corrupt("{}: clip.vision.image_min_pixels {}, clip.vision.image_max_pixels {}, in squares of {}",
                   file.path(), transform.min_pixels, transform.max_pixels, square);
  }
  const int64_t n_rows = (InputFloats(transform) - 2) / 3 / square;
  if (n_rows > (1 << 16)) {
    return Unsupported("{}: {} tokens a picture; 65,536 are possible", file.path(), n_rows);
  }
  config->n_rows = static_cast<int32_t>(n_rows);
  max_patches_ = n_rows * kInSquare;
  config->words.text = {"<|vision_start|>", "<|vision_end|>"};
  config->words.open = 0;
  config->words.close = 1;
  config->pairing.on = n_frames_ == 2;
  return ReadNormalisation(file, &transform);
}

Status QwenVit::Load(const GgufFile& file, const VitStyle& style, Backend& backend, Ledger& ledger,
                     WeightLoader& loader) {
  const int64_t d = shape_.n_embd, quarter = shape_.head_dim() / 4;
  rotation_.n_rot = static_cast<int>(shape_.head_dim());
  axis_.n_rot = static_cast<int>(2 * quarter);
  for (int64_t i = 0; i < quarter; ++i) {
    axis_.inv_freq.push_back(std::pow(kFreqBase, -static_cast<double>(i) / static_cast<double>(quarter)));
  }
  const std::vector<uint8_t> packed = axis_.Pack();
  WEIR_ASSIGN_OR_RETURN(axis_device_, backend.Upload(ledger, MemTag::kWeights, packed.data(), std::ssize(packed)));
  axis_.device = axis_device_.data();
  WEIR_RETURN_IF_ERROR(loader.LoadKernel("v.patch_embd.weight", d, {3, patch_, patch_}, &patches_[0]));
  if (n_frames_ == 2) {
    WEIR_RETURN_IF_ERROR(loader.LoadKernel("v.patch_embd.weight.1", d, {3, patch_, patch_}, &patches_[1]));
  } else {
    loader.Skip("v.patch_embd.weight.1");  // zeros, for programs that do not read the key
  }
  WEIR_RETURN_IF_ERROR(loader.LoadOptional("v.patch_embd.bias", d, &patch_bias_));
  return blocks_.Load(shape_, style, file, loader);
}

PictureRows QwenVit::RowsOf(const float* pixels, const EncoderConfig& config) const {
  const PictureSize size = InputSize(pixels, config.transform);
  const int32_t factor = config.transform.factor;
  return {size.width / factor * (size.height / factor), size.width / factor};
}

QwenVit::Buffers QwenVit::LayOut(const Backend& backend, Workspace* space) const {
  const int64_t n = max_patches_, d = shape_.n_embd;
  Buffers b;
  b.x = space->Floats(n * d);
  b.wide = space->Floats(n * std::max(patch_values(), d));
  b.cos = space->Floats(n * shape_.head_dim() / 2);
  b.sin = space->Floats(n * shape_.head_dim() / 2);
  b.blocks = blocks_.LayOut(backend, n, std::max(patch_values(), square_width()), space);
  return b;
}

SquaresArgs QwenVit::Patches(PictureSize size) const {
  SquaresArgs patches;
  patches.n_planes = 3;
  patches.height = size.height;
  patches.width = size.width;
  patches.side = patch_;
  patches.group = kMerge;
  return patches;
}

void QwenVit::Embed(Backend& backend, const EncodeArgs& args, PictureSize size, const Buffers& b) const {
  SquaresArgs patches = Patches(size);
  patches.y = b.wide;
  for (int64_t frame = 0; frame < n_frames_; ++frame) {
    patches.x = frame == 0 ? args.pixels : args.second;
    if (patches.x != nullptr) backend.Squares(patches);
    const float* bias = frame == 0 ? patch_bias_.get() : nullptr;
    const MatMulOut to = {patches_[frame].get(), b.x, shape_.n_embd, bias, frame == 1};
    MatMulArgs mm;
    mm.x = b.wide;
    mm.x_stride = mm.n_in = patch_values();
    mm.n_rows = patches.n_squares();
    mm.outs = {&to, 1};
    mm.scratch = b.blocks.scratch;
    backend.MatMul(mm);
  }
}

SquarePlace QwenVit::PlaceOf(PictureSize size, int64_t i) const { return PlaceOfSquare(Patches(size), i); }

void QwenVit::Angles(Backend& backend, int64_t n, const std::function<SquarePlace(int64_t i)>& place,
                     const Buffers& b) const {
  // Line and column count as two positions: their angles are the two halves of a patch's.
  int64_t places[256];
  constexpr int64_t kPlaces = std::ssize(places) / 2;
  const int64_t half = shape_.head_dim() / 2;
  for (int64_t done = 0; done < n; done += kPlaces) {
    const int64_t n_here = std::min(kPlaces, n - done);
    for (int64_t i = 0; i < n_here; ++i) {
      const SquarePlace at = place(done + i);
      places[2 * i] = at.y;
      places[2 * i + 1] = at.x;
    }
    backend.RopeAngles(axis_, {places, static_cast<size_t>(2 * n_here)}, b.cos + done * half, b.sin + done * half);
  }
}

void QwenVit::Run(Backend& backend, const Buffers& b, int64_t n, const VisionObserver* observer, float* x,
                  const VitWindows* windows, const std::function<void(int64_t block, const float* x)>& after) const {
  const VitRotation rotation = {&rotation_, b.cos, b.sin};
  blocks_.Run(backend, b.blocks, n, &rotation, observer, x, windows, after);
}

}  // namespace weir
