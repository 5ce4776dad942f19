// weir-plugin: pruner
// SPDX-License-Identifier: Apache-2.0
// CATP: queries vote for by every image token, by rank of the attention they pay it.
// Paper: "CATP: Cross-Attention Token Pruning for Accuracy Preserved Multimodal Model Inference", section 3,
// algorithm 1.
//
// In each cross-attention layer and head, image token i sorts the L0 queries by their attention to it; the query at
// rank n = 1 .. L0 receives L0 - n points. A query's importance is the sum over layers, heads and image tokens, each
// weighted by
//
//   weights=none    1
//   weights=image   the attention that token i receives in the last block of the image encoder, all rows and heads
//   summed,
//                   scaled so that the weights sum to their number (section 3.3.1); the class token votes too
//
// Raw sums would carry no information: a query's attention sums to 1 whatever the picture. Equal attention ranks the
// first query first. The printed algorithm overwrites its sums and ranks by the last of them; the text's meaning is
// followed.
#include <algorithm>
#include <charconv>
#include <cmath>
#include <limits>
#include <numeric>
#include <vector>

#include "prune/pruner.h"

namespace weir {
namespace {

constexpr OptionInfo kOptions[] = {
    TextOption("layers", "all", "cross-attention layers that vote: all, first, last, or numbers from 0, such as 0+2+5"),
    TextOption("weights", "none", "weights of the image tokens' votes", "none|image"),
};

// A value for the layer: the last one, whichever that is.
constexpr int32_t kLast = -1;

class Catp final : public Pruner {
 public:
  Catp(bool all, std::vector<int32_t> layers, bool weighted)
      : all_(all), layers_(std::move(layers)), weighted_(weighted) {}

  Result<int64_t> MemoryBytes(const SignalSource& source) const override {
    const SignalShape cross = source.ShapeOf(SignalKind::kQueryCross);
    if (cross.n_layers == 0) {
      return Unsupported("pruner catp ranks learned queries by their cross-attention; this encoder has none");
    }
    if (weighted_ && source.ShapeOf(SignalKind::kImageMass).n_layers == 0) {
      return Unsupported("pruner catp:weights=image: this encoder does not expose its attention");
    }
    for (const int32_t layer : layers_) {
      if (layer >= cross.n_layers) {
        return InvalidArgument("pruner catp: layer {} of {} with cross-attention", layer, cross.n_layers);
      }
    }
    return cross.n_rows * (8 + 4) + cross.n_cols * 8;
  }
  void Prepare(const SignalSource& source) override {
    const SignalShape cross = source.ShapeOf(SignalKind::kQueryCross);
    for (int32_t& layer : layers_) layer = layer == kLast ? cross.n_layers - 1 : layer;
    importance_.assign(static_cast<size_t>(cross.n_rows), 0);
    order_.resize(static_cast<size_t>(cross.n_rows));
    weights_.assign(static_cast<size_t>(cross.n_cols), 1);
  }
  bool Wants(SignalKind kind, int32_t layer) const override {
    if (kind == SignalKind::kImageMass) return weighted_;
    return kind == SignalKind::kQueryCross &&
           (all_ || std::find(layers_.begin(), layers_.end(), layer) != layers_.end());
  }
  void Begin() override { std::fill(importance_.begin(), importance_.end(), 0); }
  void Take(const Signal& signal) override {
    if (signal.kind == SignalKind::kImageMass) return TakeWeights(signal);
    const int64_t n = signal.shape.n_rows, n_cols = signal.shape.n_cols;
    for (int64_t i = 0; i < n_cols; ++i) {
      const float* votes = signal.values + i;
      float sum = 0;
      for (int64_t r = 0; r < n; ++r) sum += votes[r * n_cols];
      if (!std::isfinite(sum)) {  // nothing to rank, and the caller must know
        std::fill(importance_.begin(), importance_.end(), std::numeric_limits<double>::quiet_NaN());
        return;
      }
      std::iota(order_.begin(), order_.end(), 0);
      std::sort(order_.begin(), order_.end(), [votes, n_cols](int32_t a, int32_t b) {
        return votes[a * n_cols] != votes[b * n_cols] ? votes[a * n_cols] > votes[b * n_cols] : a < b;
      });
      for (int64_t rank = 0; rank < n; ++rank)
        importance_[order_[rank]] += weights_[i] * static_cast<double>(n - 1 - rank);
    }
  }
  std::span<const double> Importance() const override { return importance_; }

 private:
  void TakeWeights(const Signal& signal) {
    const double sum = std::accumulate(signal.values, signal.values + signal.shape.n_cols, 0.0);
    for (size_t i = 0; i < weights_.size(); ++i) {
      weights_[i] = signal.values[i] * static_cast<double>(weights_.size()) / sum;
    }
  }

  const bool all_;
  std::vector<int32_t> layers_;
  const bool weighted_;
  std::vector<double> importance_, weights_;  // [queries], [image tokens]
  std::vector<int32_t> order_;                // [queries]
};

// "0+2+5"
Result<std::vector<int32_t>> ParseLayers(const std::string& text) {
  std::vector<int32_t> out;
  for (const char *at = text.data(), *end = at + text.size();;) {
    int32_t layer = -1;
    const auto [stop, error] = std::from_chars(at, end, layer);
    if (error != std::errc() || layer < 0 || (stop != end && *stop != '+') ||
        std::find(out.begin(), out.end(), layer) != out.end()) {
      return InvalidArgument("pruner option layers={}: expected all, first, last, or numbers from 0, such as 0+2+5",
                             text);
    }
    out.push_back(layer);
    if (stop == end) return out;
    at = stop + 1;
  }
}

}  // namespace

extern const PrunerInfo kCatp;
const PrunerInfo kCatp = {
    .name = "catp",
    .summary = "keeps the queries that the picture's tokens vote for, by rank of cross-attention",
    .paper = "Liao et al., CATP: Cross-Attention Token Pruning for Accuracy Preserved Multimodal Model Inference, 2024",
    .options = kOptions,
    .make = [](const Options& options) -> Result<std::unique_ptr<Pruner>> {
      const std::string& text = options.Text("layers");
      const bool weighted = options.Text("weights") == "image";
      if (text == "all") return std::unique_ptr<Pruner>(new Catp(true, {}, weighted));
      if (text == "first") return std::unique_ptr<Pruner>(new Catp(false, {0}, weighted));
      if (text == "last") return std::unique_ptr<Pruner>(new Catp(false, {kLast}, weighted));
      WEIR_ASSIGN_OR_RETURN(std::vector<int32_t> layers, ParseLayers(text));
      return std::unique_ptr<Pruner>(new Catp(false, std::move(layers), weighted));
    },
};

}  // namespace weir
