// weir-plugin: encoder
// SPDX-License-Identifier: Apache-2.0
// Qwen3-VL's encoder (2511.21631, section 2): as Qwen2-VL's, with learned positions too, a square table of them
// interpolated to the picture's lines and columns. Besides the last block's rows, those of some earlier blocks are
// merged (DeepStack, 2406.04334): a row of the result holds all of them side by side, and the language model adds the
// parts after its first layers. Qwen3.5's encoder is the same without earlier blocks.
#include <algorithm>
#include <cmath>
#include <memory>
#include <string>
#include <variant>
#include <vector>

#include "vision/qwen_vit.h"

namespace weir {
namespace {

constexpr int64_t kMinPixels = 64 * 32 * 32, kMaxPixels = 4096 * 32 * 32;  // of files without the keys
constexpr int64_t kTapRows = 256;                                          // of the table at once
constexpr int64_t kTaps = 4;                                               // of a patch

// Between which entries of a table of `side` lies place i of n, and how much of each. In single precision, as in the
// reference: a place next to an entry must fall to the same side of it.
struct Between {
  int32_t at[2];
  float weight[2];
  Between(int64_t i, int64_t n, int64_t side) {
    const float place =
        static_cast<float>(i) * static_cast<float>(side - 1) / static_cast<float>(std::max(n - 1, int64_t{1}));
    const float below = std::floor(place);
    for (int k = 0; k < 2; ++k) {
      at[k] = static_cast<int32_t>(std::min(static_cast<int64_t>(below) + k, side - 1));
      weight[k] = std::max(1 - std::abs(place - below - static_cast<float>(k)), 0.0f);
    }
  }
};

class Qwen3vlMerger final : public Encoder {
 public:
  explicit Qwen3vlMerger(Backend& backend) : Encoder(backend) {}

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
    float* taps = nullptr;    // [kTapRows, n_embd]
    float* hidden = nullptr;  // [n_rows, a square's width], of mergers of earlier blocks
  };
  Buffers LayOut(Workspace* space) const {
    Buffers b;
    static_cast<QwenVit::Buffers&>(b) = vit_.LayOut(backend_, space);
    b.taps = space->Floats(kTapRows * vit_.shape().n_embd);
    if (!stack_.empty()) b.hidden = space->Floats(config_.n_rows * vit_.square_width());
    return b;
  }
  Status LoadStack(const GgufFile& file, WeightLoader& loader);
  // Adds the positions of all n patches to x.
  void AddPositions(PictureSize size, int64_t n, const Buffers& b) const;

  // The merger of a block before the last one, with a norm of its own.
  struct Earlier {
    int64_t block = 0;
    LayerNormWeights norm;
    SquareMerger merger;
  };

  QwenVit vit_;
  int64_t side_ = 1;                   // of the table of positions
  std::unique_ptr<Matrix> positions_;  // [side * side, n_embd]
  LayerNormWeights post_ln_;
  SquareMerger merger_;
  std::vector<Earlier> stack_;
};

Status Qwen3vlMerger::Load(const GgufFile& file, Ledger& ledger) {
  config_.projector = "qwen3vl_merger";
  WEIR_RETURN_IF_ERROR(vit_.ReadMetadata(file, kMinPixels, kMaxPixels, &config_));
  std::vector<std::string>& words = config_.words.text;
  config_.words.time = static_cast<int32_t>(words.size());
  words.emplace_back("<");
  for (char digit = '0'; digit <= '9'; ++digit) words.emplace_back(1, digit);
  words.emplace_back(".");
  words.emplace_back(" seconds>");
  const int64_t d = vit_.shape().n_embd;
  WEIR_ASSIGN_OR_RETURN(const bool gelu, file.BoolOr("clip.use_gelu", true));
  WeightLoader loader(file, backend_, ledger);
  const VitStyle style = {.act = gelu ? GeluKind::kTanh : GeluKind::kQuick};
  WEIR_RETURN_IF_ERROR(vit_.Load(file, style, backend_, ledger, loader));
  const GgufTensor* table = file.Tensor("v.position_embd.weight");
  const int64_t n_positions = table == nullptr ? 1 : table->shape.front();
  side_ = n_positions > (1 << 16) ? 0 : std::lround(std::sqrt(static_cast<double>(n_positions)));
  if (side_ * side_ != n_positions) return Corrupt("{}: a table of {} positions", file.path(), n_positions);
  WEIR_RETURN_IF_ERROR(loader.Load("v.position_embd.weight", n_positions, d, &positions_));
  WEIR_RETURN_IF_ERROR(loader.Load("v.post_ln", d, &post_ln_));
  WEIR_RETURN_IF_ERROR(merger_.Load(file, loader, vit_.square_width(), {"mm.0", "mm.2"}));
  WEIR_RETURN_IF_ERROR(LoadStack(file, loader));
  config_.n_embd = static_cast<int32_t>(merger_.n_out() * (1 + std::ssize(stack_)));
  return loader.Finish();
}

// The blocks that the file names, or has tensors for.
Status Qwen3vlMerger::LoadStack(const GgufFile& file, WeightLoader& loader) {
  const std::string key = "clip.vision.is_deepstack_layers";
  const auto at = file.metadata().find(key);
  const auto* named = at == file.metadata().end() ? nullptr : std::get_if<std::vector<bool>>(&at->second.v);
  const int64_t n_layers = vit_.shape().n_layers;
  if (file.Has(key) && (named == nullptr || std::ssize(*named) != n_layers)) {
    return Corrupt("{}: {} must be {} truth values", file.path(), key, n_layers);
  }
  for (int64_t block = 0; block < n_layers; ++block) {
    const std::string name = "v.deepstack." + std::to_string(block) + ".";
    if (named != nullptr ? !(*named)[static_cast<size_t>(block)] : !loader.Has(name + "fc1.weight")) continue;
    if (stack_.size() == 16) return Unsupported("{}: rows of more than 16 earlier blocks", file.path());
    Earlier& part = stack_.emplace_back();
    part.block = block;
    WEIR_RETURN_IF_ERROR(loader.Load(name + "norm", vit_.square_width(), &part.norm));
    WEIR_RETURN_IF_ERROR(part.merger.Load(file, loader, vit_.square_width(), {name + "fc1", name + "fc2"}));
    if (part.merger.n_out() != merger_.n_out()) {
      return Corrupt("{}: rows of {} and of {} numbers", file.path(), part.merger.n_out(), merger_.n_out());
    }
  }
  return Status();
}

void Qwen3vlMerger::AddPositions(PictureSize size, int64_t n, const Buffers& b) const {
  const int64_t d = vit_.shape().n_embd;
  const SquarePlace sides = vit_.PatchesOf(size);
  int32_t ids[kTapRows], rows[kTapRows];
  float weights[kTapRows];
  for (int64_t done = 0; done < n; done += kTapRows / kTaps) {
    const int64_t n_here = std::min(kTapRows / kTaps, n - done);
    for (int64_t i = 0; i < n_here; ++i) {
      const SquarePlace place = vit_.PlaceOf(size, done + i);
      const Between y(place.y, sides.y, side_), x(place.x, sides.x, side_);
      for (int64_t tap = 0; tap < kTaps; ++tap) {
        const int64_t to = i * kTaps + tap;
        ids[to] = y.at[tap / 2] * static_cast<int32_t>(side_) + x.at[tap % 2];
        rows[to] = static_cast<int32_t>(i);
        weights[to] = y.weight[tap / 2] * x.weight[tap % 2];
      }
    }
    backend_.EmbedRows(*positions_, ids, n_here * kTaps, b.taps);
    backend_.ScatterAddRows({b.taps, rows, weights, b.x + done * d, n_here * kTaps, d});
  }
}

void Qwen3vlMerger::Encode(const EncodeArgs& args) {
  Workspace space(args.workspace);
  const Buffers b = LayOut(&space);
  const PictureSize size = InputSize(args.pixels, config_.transform);
  const VitShape& shape = vit_.shape();
  const int64_t d = shape.n_embd, wide = vit_.square_width(), n_rows = RowsOf(args.pixels).n;
  const int64_t n = n_rows * QwenVit::kInSquare, n_out = merger_.n_out();
  const auto observe = [&](const std::string& name, int64_t rows, int64_t cols, const float* data) {
    if (args.observer != nullptr) (*args.observer)(name, rows, cols, data);
  };
  vit_.Embed(backend_, args, size, b);
  AddPositions(size, n, b);
  observe("v.embd", n, d, b.x);
  vit_.Angles(
      backend_, n, [&](int64_t i) { return vit_.PlaceOf(size, i); }, b);
  size_t next = 0;
  const auto after = [&](int64_t block, const float* x) {
    if (next == stack_.size() || stack_[next].block != block) return;
    const Earlier& part = stack_[next++];
    const std::string name = "v.deepstack." + std::to_string(block) + ".";
    backend_.LayerNorm({x, part.norm.w.get(), part.norm.b.get(), b.wide, n_rows, wide, shape.eps});
    observe(name + "norm", n_rows, wide, b.wide);
    part.merger.Run(backend_, b.wide, n_rows, wide, b.hidden, b.blocks.scratch,
                    args.out + static_cast<int64_t>(next) * n_out, config_.n_embd, args.observer, name + "fc1");
  };
  vit_.Run(backend_, b, n, args.observer, b.x, nullptr, after);
  backend_.LayerNorm({b.x, post_ln_.w.get(), post_ln_.b.get(), b.x, n, d, shape.eps});
  observe("v.post_ln", n, d, b.x);
  merger_.Run(backend_, b.x, n_rows, wide, b.wide, b.blocks.scratch, args.out, config_.n_embd, args.observer, "mm.0");
  observe("mm.rows", n_rows, config_.n_embd, args.out);
}

}  // namespace

extern const EncoderInfo kQwen3vlMerger;
const EncoderInfo kQwen3vlMerger = {
    .name = "qwen3vl_merger",
    .projector = "qwen3vl_merger",
    .models = "Qwen3-VL, Qwen3.5 (pictures of any size, rows of several blocks)",
    .load = LoadEncoderAs<Qwen3vlMerger>,
};

}  // namespace weir
