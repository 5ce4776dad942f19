// weir-plugin: selector
// SPDX-License-Identifier: Apache-2.0
// oracle: the passages that answer the question, as the exam knows them. What a model answers with them is the most
// that any selector can reach.
#include <algorithm>
#include <optional>

#include "recall/selectors/selector.h"

namespace weir {
namespace {

class Oracle final : public Selector {
 public:
  int64_t MemoryBytes() const override { return 0; }

  Result<std::vector<Passage>> Select(const RecallQuery& query, BlockSource& blocks) override {
    if (!query.gold.has_value()) {
      return InvalidArgument("this suite does not say where its answers are: the selector 'oracle' cannot be used");
    }
    std::vector<Passage> out;
    std::optional<BlockPlace> before;  // the block before, if it is text
    bool open = false;                 // it belongs to the last passage
    WEIR_RETURN_IF_ERROR(blocks.ScanText(blocks.begin(), [&](BlockPlace place, const Block& block) {
      const bool text = block.modality == Modality::kText;
      const bool gold = text && std::ranges::any_of(*query.gold, [&](const SeqSpan& span) {
                          return span.seq < block.seq_end() && block.seq < span.seq_end;
                        });
      if (gold && open) {
        ++out.back().n_blocks;
        out.back().seq_end = block.seq_end();
      } else if (gold) {
        if (std::ssize(out) == query.most) return false;
        out.push_back({.from = before.value_or(place),
                       .n_before = before ? 1 : 0,
                       .seq = block.seq,
                       .seq_end = block.seq_end(),
                       .t_ms = block.t_ms,
                       .score = 1,
                       .whole = true});
      }
      open = gold;
      before = text ? std::optional(place) : std::nullopt;
      return true;
    }));
    return out;
  }
};

}  // namespace

extern const SelectorInfo kOracleSelector;
const SelectorInfo kOracleSelector = {
    .name = "oracle",
    .summary = "what answers the question, as an exam knows it: a ceiling (weir eval only)",
    .make = [](const Options&) { return std::unique_ptr<Selector>(new Oracle); },
    .exam = true,
};

}  // namespace weir
