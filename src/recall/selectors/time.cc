// weir-plugin: selector
// SPDX-License-Identifier: Apache-2.0
// time: what was read at the moment that a question names ("at 2:10", "in the first minute", "at the beginning"),
// spread evenly over it.
#include <algorithm>
#include <functional>
#include <optional>

#include "recall/moment.h"
#include "recall/selectors/selector.h"

namespace weir {
namespace {

class Time final : public Selector {
 public:
  int64_t MemoryBytes() const override { return 0; }

  Result<std::vector<Passage>> Select(const RecallQuery& query, BlockSource& blocks) override {
    std::vector<Passage> out;
    const std::optional<Moment> moment = FindMoment(query.text, query.t_now_ms);
    if (!moment) return out;
    const auto inside = [&](const Block& block) {
      if (moment->of_time) return block.t_ms >= moment->begin && block.t_ms < moment->end;
      const double part =
          1e6 * static_cast<double>(block.seq) / static_cast<double>(std::max<int64_t>(1, query.n_seen));
      return part >= static_cast<double>(moment->begin) && part < static_cast<double>(moment->end);
    };
    // How much there is, then every so many blocks of it.
    int64_t n_inside = 0;
    const auto scan = [&](const std::function<void(BlockPlace, const Block&)>& each) {
      return blocks.ScanText(blocks.begin(), [&](BlockPlace place, const Block& block) {
        if (query.MayBring(block) && inside(block)) each(place, block);
        return true;
      });
    };
    WEIR_RETURN_IF_ERROR(scan([&](BlockPlace, const Block&) { ++n_inside; }));
    const int64_t most = std::min<int64_t>(query.most, n_inside);
    int64_t n = 0;
    WEIR_RETURN_IF_ERROR(scan([&](BlockPlace place, const Block& block) {
      if (n++ * most / n_inside < std::ssize(out) || std::ssize(out) == most) return;
      Passage one = {.from = place, .seq = block.seq, .seq_end = block.seq_end(), .t_ms = block.t_ms};
      one.n_rows = block.modality == Modality::kText ? 0 : block.n_tokens;
      one.score = 1;
      one.held = block.seq >= query.held_from;
      out.push_back(one);
    }));
    return out;
  }
};

}  // namespace

extern const SelectorInfo kTimeSelector;
const SelectorInfo kTimeSelector = {
    .name = "time",
    .summary = "what was read at the moment that the question names (at 2:10, in the first minute, at the beginning)",
    .make = [](const Options&) { return std::unique_ptr<Selector>(new Time); },
};

}  // namespace weir
