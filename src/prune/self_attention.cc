// weir-plugin: pruner
// SPDX-License-Identifier: Apache-2.0
// Self-attention: the queries that other queries attend to most, summed over rows, heads and layers of the Q-Former's
// self-attention. The baseline that CATP is compared with; the rule of SpAtten ("SpAtten: Efficient Sparse Attention
// Architecture with Cascade Token and Head Pruning", HPCA 2021, section III-A).
//
//   cascade=off   ranked once, by the sums over all layers: what CATP's authors describe
//   cascade=on    ranked after every layer but the last, by the sums so far. Queries that drop out there do not come
//                 back: from then on they neither attend nor are attended to, and a row's attention is shared out among
//                 those that are left. After layer l of n, from 1, round(L0 keep^(l/n)) are left: each layer drops the
//                 same share. SpAtten leaves the shares to a search.
//
// A difference of cascade=on: the encoder computes all queries in all layers, so those that are left have seen in
// earlier layers, and through others in later ones, what dropped out. What is saved is the language model's work.
#include <algorithm>
#include <cmath>
#include <limits>
#include <vector>

#include "prune/pruner.h"

namespace weir {
namespace {

constexpr OptionInfo kOptions[] = {
    TextOption("cascade", "off", "on: queries drop out layer by layer, as in SpAtten; off: once, by all layers",
               "off|on"),
};

class SelfAttention final : public Pruner {
 public:
  // keep: of a cascade; above 1: none.
  explicit SelfAttention(double keep) : keep_(keep) {}

  Result<int64_t> MemoryBytes(const SignalSource& source) const override {
    const SignalShape self = source.ShapeOf(SignalKind::kQuerySelf);
    if (self.n_layers == 0) {
      return Unsupported("pruner self_attention ranks learned queries by their self-attention; this encoder has none");
    }
    return self.n_cols * (8 + 4);
  }
  void Prepare(const SignalSource& source) override {
    const SignalShape self = source.ShapeOf(SignalKind::kQuerySelf);
    n_layers_ = self.n_layers;
    importance_.assign(static_cast<size_t>(self.n_cols), 0);
    left_.reserve(static_cast<size_t>(self.n_cols));
  }
  bool Wants(SignalKind kind, int32_t) const override { return kind == SignalKind::kQuerySelf; }
  void Begin() override {
    std::fill(importance_.begin(), importance_.end(), 0);
    layer_ = 0;
  }
  void Take(const Signal& signal) override {
    const int64_t n = signal.shape.n_cols;
    if (keep_ > 1) {
      const float* p = signal.values;
      for (int64_t r = 0; r < signal.shape.n_rows; ++r) {
        for (double& sum : importance_) sum += *p++;
      }
      return;
    }
    for (; layer_ < signal.layer; ++layer_) DropOut();
    for (int64_t r = 0; r < signal.shape.n_rows; ++r) {
      if (IsGone(r)) continue;
      const float* const row = signal.values + r * n;
      double sum = 0;
      for (int64_t c = 0; c < n; ++c) sum += IsGone(c) ? 0 : row[c];
      if (sum == 0) continue;
      for (int64_t c = 0; c < n; ++c) {
        if (!IsGone(c)) importance_[static_cast<size_t>(c)] += row[c] / sum;
      }
    }
  }
  std::span<const double> Importance() const override { return importance_; }

 private:
  // Those that dropped out are below 0: the earlier, the lower.
  bool IsGone(int64_t query) const { return importance_[static_cast<size_t>(query)] < 0; }
  // Drops the least important after layer_.
  void DropOut() {
    const auto n = static_cast<int64_t>(importance_.size());
    const int64_t n_left = RowsKept(n, std::pow(keep_, static_cast<double>(layer_ + 1) / n_layers_));
    KeepMostImportant(importance_, n_left, &left_);
    for (int64_t q = 0; q < n; ++q) {
      const bool stays = std::ranges::binary_search(left_, static_cast<int32_t>(q));
      if (!stays && !IsGone(q)) importance_[static_cast<size_t>(q)] = static_cast<double>(layer_ - n_layers_);
    }
  }

  const double keep_;
  int32_t n_layers_ = 0, layer_ = 0;
  std::vector<double> importance_;  // [queries]
  KeepSet left_;
};

}  // namespace

extern const PrunerInfo kSelfAttention;
const PrunerInfo kSelfAttention = {
    .name = "self_attention",
    .summary = "keeps the queries that other queries attend to most",
    .paper = "Wang et al., SpAtten, HPCA 2021",
    .options = kOptions,
    .make = [](const Options& options) -> Result<std::unique_ptr<Pruner>> {
      const bool cascade = options.Text("cascade") == "on";
      return std::unique_ptr<Pruner>(
          new SelfAttention(cascade ? options.Number("keep") : std::numeric_limits<double>::infinity()));
    },
};

}  // namespace weir
