// weir-plugin: encoder
// SPDX-License-Identifier: Apache-2.0
// Qwen2.5-VL's encoder (2502.13923, section 2.1): Qwen2-VL's with RMS norms and gates, whose blocks attend within
// windows of the picture, all but every fourth or so.
//
// Rows are stored window by window from the blocks on, so that a window is a range of rows, and put back at the end.
#include <algorithm>
#include <iterator>
#include <string>

#include "vision/qwen_vit.h"

namespace weir {
namespace {

constexpr int64_t kMinPixels = 56 * 56, kMaxPixels = 28 * 28 * 1280;  // the processor's bounds
// Of files without the keys: pixels along a side; steps of a video's time axis.
constexpr int64_t kWindow = 112, kStepsPerSecond = 2;

// Squares of a picture window by window: `side` squares along a window's sides, fewer at the right and at the bottom.
struct WindowOrder {
  int64_t n_x = 0, n_y = 0, side = 1;
  // Where square (x, y) is among them.
  int64_t At(SquarePlace p) const {
    const int64_t left = p.x / side * side, top = p.y / side * side;
    const int64_t height = std::min(side, n_y - top), width = std::min(side, n_x - left);
    return top * n_x + height * left + (p.y - top) * width + (p.x - left);
  }
  // The square at i.
  SquarePlace Of(int64_t i) const {
    const int64_t top = i / (side * n_x) * side, height = std::min(side, n_y - top);
    const int64_t in_band = i - top * n_x, left = in_band / (height * side) * side;
    const int64_t width = std::min(side, n_x - left), in_window = in_band - height * left;
    return {left + in_window % width, top + in_window / width};
  }
};

class Qwen25vlMerger final : public Encoder {
 public:
  explicit Qwen25vlMerger(Backend& backend) : Encoder(backend) {}

  Status Load(const GgufFile& file, Ledger& ledger);
  PictureRows RowsOf(const float* pixels) const override { return vit_.RowsOf(pixels, config_); }
  int64_t WorkspaceBytes() const override {
    Workspace space(nullptr);
    LayOut(&space);
    return space.used();
  }
  void Encode(const EncodeArgs& args) override;

 private:
  struct Buffers : QwenVit::Buffers {
    float* rows = nullptr;  // [n_rows, n_embd of the language model], window by window
  };
  Buffers LayOut(Workspace* space) const {
    Buffers b;
    static_cast<QwenVit::Buffers&>(b) = vit_.LayOut(backend_, space);
    b.rows = space->Floats(int64_t{config_.n_rows} * config_.n_embd);
    return b;
  }
  // y[i] = x[from(i)], rows of `dim` numbers.
  template <typename From>
  void Gather(const float* x, int64_t n, int64_t dim, const From& from, float* y) const;

  QwenVit vit_;
  int64_t full_every_ = 1, window_ = 1;  // squares along a side
  Vector post_ln_;
  SquareMerger merger_;
};

Status Qwen25vlMerger::Load(const GgufFile& file, Ledger& ledger) {
  const std::string v = "clip.vision.";
  config_.projector = "qwen2.5vl_merger";
  WEIR_RETURN_IF_ERROR(vit_.ReadMetadata(file, kMinPixels, kMaxPixels, &config_));
  config_.pairing.one_video = true;
  WEIR_ASSIGN_OR_RETURN(const int64_t steps, BoundedIntOr(file, v + "tokens_per_second", 1, 1000, kStepsPerSecond));
  config_.pairing.steps_per_second = static_cast<double>(steps);
  WEIR_ASSIGN_OR_RETURN(full_every_, BoundedInt(file, v + "n_wa_pattern", 1, 1024));
  const int64_t square = config_.transform.factor;
  WEIR_ASSIGN_OR_RETURN(const int64_t pixels,
                        BoundedIntOr(file, v + "window_size", square, kMaxImageSize, std::max(kWindow, square)));
  window_ = pixels / square;
  WeightLoader loader(file, backend_, ledger);
  const VitStyle style = {.rms_norms = true, .gated = true};
  WEIR_RETURN_IF_ERROR(vit_.Load(file, style, backend_, ledger, loader));
  WEIR_RETURN_IF_ERROR(loader.Load("v.post_ln.weight", vit_.shape().n_embd, &post_ln_));
  WEIR_RETURN_IF_ERROR(merger_.Load(file, loader, vit_.square_width(), {"mm.0", "mm.2"}));
  config_.n_embd = static_cast<int32_t>(merger_.n_out());
  return loader.Finish();
}

template <typename From>
void Qwen25vlMerger::Gather(const float* x, int64_t n, int64_t dim, const From& from, float* y) const {
  int32_t rows[256];
  for (int64_t done = 0; done < n; done += std::ssize(rows)) {
    const int64_t n_here = std::min<int64_t>(std::ssize(rows), n - done);
    for (int64_t i = 0; i < n_here; ++i) rows[i] = static_cast<int32_t>(from(done + i));
    backend_.GatherRows({x, rows, y + done * dim, n_here, dim});
  }
}

void Qwen25vlMerger::Encode(const EncodeArgs& args) {
  Workspace space(args.workspace);
  const Buffers b = LayOut(&space);
  const PictureSize size = InputSize(args.pixels, config_.transform);
  const PictureRows rows = RowsOf(args.pixels);
  const int64_t d = vit_.shape().n_embd, wide = vit_.square_width(), n_rows = rows.n;
  const int64_t n = n_rows * QwenVit::kInSquare;
  const WindowOrder order = {rows.columns, n_rows / rows.columns, window_};
  const auto square_at = [&](int64_t i) {
    const SquarePlace place = order.Of(i);
    return place.y * order.n_x + place.x;
  };
  const auto observe = [&](const char* name, int64_t n_of, int64_t cols, const float* data) {
    if (args.observer != nullptr) (*args.observer)(name, n_of, cols, data);
  };
  vit_.Embed(backend_, args, size, b);
  observe("v.embd", n, d, b.x);
  Gather(b.x, n_rows, wide, square_at, b.wide);
  const auto place = [&](int64_t i) {
    return vit_.PlaceOf(size, square_at(i / QwenVit::kInSquare) * QwenVit::kInSquare + i % QwenVit::kInSquare);
  };
  vit_.Angles(backend_, n, place, b);
  const VitWindows windows = {order.n_x, order.n_y, order.side, QwenVit::kInSquare, full_every_};
  vit_.Run(backend_, b, n, args.observer, b.wide, &windows);
  backend_.RmsNorm({b.wide, post_ln_.get(), b.wide, n, d, vit_.shape().eps});
  observe("v.post_ln", n, d, b.wide);
  merger_.Run(backend_, b.wide, n_rows, wide, b.x, b.blocks.scratch, b.rows, config_.n_embd, args.observer, "mm.0");
  Gather(
      b.rows, n_rows, config_.n_embd,
      [&](int64_t i) {
        return order.At({i % order.n_x, i / order.n_x});
      },
      args.out);
  observe("mm.2", n_rows, config_.n_embd, args.out);
}

}  // namespace

extern const EncoderInfo kQwen25vlMerger;
const EncoderInfo kQwen25vlMerger = {
    .name = "qwen25vl_merger",
    .projector = "qwen2.5vl_merger",
    .models = "Qwen2.5-VL (pictures of any size, attention in windows)",
    .load = LoadEncoderAs<Qwen25vlMerger>,
};

}  // namespace weir
