// weir-plugin: pruner
// SPDX-License-Identifier: Apache-2.0
// L2: the rows of the largest Euclidean norm before they are projected to the language model's width. The baseline that
// CATP is compared with. After a layer norm, as in a Q-Former, norms hardly differ, and it is little better than
// chance.
#include <cmath>
#include <vector>

#include "prune/pruner.h"

namespace weir {
namespace {

class L2 final : public Pruner {
 public:
  Result<int64_t> MemoryBytes(const SignalSource& source) const override {
    const SignalShape rows = source.ShapeOf(SignalKind::kOutputs);
    if (rows.n_layers == 0) return Unsupported("pruner l2: this encoder does not expose its rows");
    return rows.n_rows * 8;
  }
  void Prepare(const SignalSource& source) override {
    importance_.assign(static_cast<size_t>(source.ShapeOf(SignalKind::kOutputs).n_rows), 0);
  }
  bool Wants(SignalKind kind, int32_t) const override { return kind == SignalKind::kOutputs; }
  void Begin() override {}
  void Take(const Signal& signal) override {
    const int64_t n = signal.shape.n_cols;
    for (size_t r = 0; r < importance_.size(); ++r) {
      const float* row = signal.values + static_cast<int64_t>(r) * n;
      double sum = 0;
      for (int64_t i = 0; i < n; ++i) sum += static_cast<double>(row[i]) * row[i];
      importance_[r] = std::sqrt(sum);
    }
  }
  std::span<const double> Importance() const override { return importance_; }

 private:
  std::vector<double> importance_;  // [rows]
};

}  // namespace

extern const PrunerInfo kL2;
const PrunerInfo kL2 = {
    .name = "l2",
    .summary = "keeps the rows of the largest norm",
    .make = [](const Options&) -> Result<std::unique_ptr<Pruner>> { return std::unique_ptr<Pruner>(new L2); },
};

}  // namespace weir
