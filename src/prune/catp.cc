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
// The paper's conclusion would weight layers too, and leaves open how. Votes of a layer's maps are multiplied by
//
//   layer_weights=even       1
//   layer_weights=contrast   how much the map tells queries apart: mean over image tokens of the largest share of a
//                            token's attention that one query pays, less 1 / L0
//   layer_weights=3+1+1+2    these numbers, one a layer
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
    TextOption("layer_weights", "even",
               "weights of the layers' votes: even, contrast (layers that tell the queries apart count more), or a "
               "whole number for each layer, such as 3+1+1+1+1+2"),
};

// A value for the layer: the last one, whichever that is.
constexpr int32_t kLast = -1;

class Catp final : public Pruner {
 public:
  // layer_weights: of every layer; empty: even, or by contrast.
  Catp(bool all, std::vector<int32_t> layers, bool weighted, bool contrast, std::vector<int32_t> layer_weights)
      : all_(all),
        layers_(std::move(layers)),
        weighted_(weighted),
        contrast_(contrast),
        layer_weights_(std::move(layer_weights)) {}

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
    if (!layer_weights_.empty() && std::ssize(layer_weights_) != cross.n_layers) {
      return InvalidArgument("pruner catp: {} weights for {} layers with cross-attention", layer_weights_.size(),
                             cross.n_layers);
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
    double weight = 1;
    if (contrast_) weight = Contrast(signal);
    if (!layer_weights_.empty()) weight = layer_weights_[static_cast<size_t>(signal.layer)];
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
        importance_[order_[rank]] += weight * weights_[i] * static_cast<double>(n - 1 - rank);
    }
  }
  std::span<const double> Importance() const override { return importance_; }

 private:
  static double Contrast(const Signal& signal) {
    const int64_t n = signal.shape.n_rows, n_cols = signal.shape.n_cols;
    double shares = 0;
    for (int64_t i = 0; i < n_cols; ++i) {
      double sum = 0, largest = 0;
      for (int64_t r = 0; r < n; ++r) {
        const double paid = signal.values[r * n_cols + i];
        sum += paid;
        largest = std::max(largest, paid);
      }
      shares += sum > 0 ? largest / sum : 1.0 / static_cast<double>(n);
    }
    return shares / static_cast<double>(n_cols) - 1.0 / static_cast<double>(n);
  }
  void TakeWeights(const Signal& signal) {
    const double sum = std::accumulate(signal.values, signal.values + signal.shape.n_cols, 0.0);
    for (size_t i = 0; i < weights_.size(); ++i) {
      weights_[i] = signal.values[i] * static_cast<double>(weights_.size()) / sum;
    }
  }

  const bool all_;
  std::vector<int32_t> layers_;
  const bool weighted_, contrast_;
  const std::vector<int32_t> layer_weights_;
  std::vector<double> importance_, weights_;  // [queries], [image tokens]
  std::vector<int32_t> order_;                // [queries]
};

// "0+2+5"; false for anything else.
bool ParseNumbers(const std::string& text, std::vector<int32_t>* out) {
  for (const char *at = text.data(), *end = at + text.size();;) {
    int32_t number = -1;
    const auto [stop, error] = std::from_chars(at, end, number);
    if (error != std::errc() || number < 0 || (stop != end && *stop != '+')) return false;
    out->push_back(number);
    if (stop == end) return true;
    at = stop + 1;
  }
}

Result<std::vector<int32_t>> ParseLayers(const std::string& text) {
  std::vector<int32_t> out;
  const bool numbers = ParseNumbers(text, &out);
  std::vector<int32_t> sorted = out;
  std::sort(sorted.begin(), sorted.end());
  if (!numbers || std::adjacent_find(sorted.begin(), sorted.end()) != sorted.end()) {
    return InvalidArgument("pruner option layers={}: expected all, first, last, or numbers from 0, such as 0+2+5",
                           text);
  }
  return out;
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
      const std::string& by_layer = options.Text("layer_weights");
      const bool contrast = by_layer == "contrast";
      std::vector<int32_t> layers, layer_weights;
      if (by_layer != "even" && !contrast &&
          (!ParseNumbers(by_layer, &layer_weights) ||
           std::all_of(layer_weights.begin(), layer_weights.end(), [](int32_t weight) { return weight == 0; }))) {
        return InvalidArgument(
            "pruner option layer_weights={}: expected even, contrast, or a whole number for each layer, not all 0, "
            "such as 3+1+1+1+1+2",
            by_layer);
      }
      if (text == "first") {
        layers = {0};
      } else if (text == "last") {
        layers = {kLast};
      } else if (text != "all") {
        WEIR_ASSIGN_OR_RETURN(layers, ParseLayers(text));
      }
      return std::unique_ptr<Pruner>(
          new Catp(text == "all", std::move(layers), weighted, contrast, std::move(layer_weights)));
    },
};

}  // namespace weir
