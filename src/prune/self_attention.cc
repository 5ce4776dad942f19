// weir-plugin: pruner
// SPDX-License-Identifier: Apache-2.0
// Self-attention: the queries that other queries attend to most, summed over rows, heads and layers of the Q-Former's
// self-attention. The baseline that CATP is compared with; the rule of SpAtten ("SpAtten: Efficient Sparse Attention
// Architecture with Cascade Token and Head Pruning", HPCA 2021, section III-A), applied once instead of layer by layer.
#include <algorithm>
#include <vector>

#include "prune/pruner.h"

namespace weir {
namespace {

class SelfAttention final : public Pruner {
 public:
  Result<int64_t> MemoryBytes(const SignalSource& source) const override {
    const SignalShape self = source.ShapeOf(SignalKind::kQuerySelf);
    if (self.n_layers == 0) {
      return Unsupported("pruner self_attention ranks learned queries by their self-attention; this encoder has none");
    }
    return self.n_cols * 8;
  }
  void Prepare(const SignalSource& source) override {
    importance_.assign(static_cast<size_t>(source.ShapeOf(SignalKind::kQuerySelf).n_cols), 0);
  }
  bool Wants(SignalKind kind, int32_t) const override { return kind == SignalKind::kQuerySelf; }
  void Begin() override { std::fill(importance_.begin(), importance_.end(), 0); }
  void Take(const Signal& signal) override {
    const float* p = signal.values;
    for (int64_t r = 0; r < signal.shape.n_rows; ++r) {
      for (double& sum : importance_) sum += *p++;
    }
  }
  std::span<const double> Importance() const override { return importance_; }

 private:
  std::vector<double> importance_;  // [queries]
};

}  // namespace

extern const PrunerInfo kSelfAttention;
const PrunerInfo kSelfAttention = {
    .name = "self_attention",
    .summary = "keeps the queries that other queries attend to most",
    .paper = "Wang et al., SpAtten, HPCA 2021",
    .make = [](const Options&) -> Result<std::unique_ptr<Pruner>> {
      return std::unique_ptr<Pruner>(new SelfAttention);
    },
};

}  // namespace weir
