// weir-plugin: selector
// SPDX-License-Identifier: Apache-2.0
// last: what left the pot most recently, whatever the question. The baseline of a larger pot.
#include <algorithm>
#include <deque>

#include "recall/selectors/selector.h"

namespace weir {
namespace {

class Last final : public Selector {
 public:
  int64_t MemoryBytes() const override { return 0; }

  Result<std::vector<Passage>> Select(const RecallQuery& query, BlockSource& blocks) override {
    std::deque<Passage> newest;
    WEIR_RETURN_IF_ERROR(blocks.ScanText(blocks.begin(), [&](BlockPlace place, const Block& block) {
      if (block.seq_end() > query.held_from) return false;
      if (!query.MayBring(block)) return true;
      Passage one = {.from = place, .seq = block.seq, .seq_end = block.seq_end(), .t_ms = block.t_ms};
      one.n_rows = block.modality == Modality::kText ? 0 : block.n_tokens;
      one.score = 1;
      newest.push_back(one);
      if (std::ssize(newest) > query.most) newest.pop_front();
      return true;
    }));
    return std::vector<Passage>(newest.rbegin(), newest.rend());
  }
};

}  // namespace

extern const SelectorInfo kLastSelector;
const SelectorInfo kLastSelector = {
    .name = "last",
    .summary = "the passages that left the pot last: a baseline",
    .make = [](const Options&) { return std::unique_ptr<Selector>(new Last); },
};

}  // namespace weir
