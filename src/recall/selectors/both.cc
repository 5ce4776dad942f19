// weir-plugin: selector
// SPDX-License-Identifier: Apache-2.0
// both: what `words` and `keys` find, ranked by the sum of 1 / (60 + rank) (reciprocal rank fusion, Cormack et al.
// 2009).
#include <algorithm>
#include <utility>

#include "recall/selectors/selector.h"

namespace weir {

extern const SelectorInfo kWordsSelector, kKeysSelector;

namespace {

constexpr double kRank = 60;
constexpr int32_t kCandidates = 32;  // of each

std::unique_ptr<Selector> MakeDefault(const SelectorInfo& info) {
  return info.make(Options::Defaults({"recall", info.name, info.options}));
}

class Both final : public Selector {
 public:
  Both() : words_(MakeDefault(kWordsSelector)), keys_(MakeDefault(kKeysSelector)) {}
  int64_t MemoryBytes() const override {
    return words_->MemoryBytes() + keys_->MemoryBytes() + 4 * kCandidates * static_cast<int64_t>(sizeof(Ranked));
  }

  Result<std::vector<Passage>> Select(const RecallQuery& query, BlockSource& blocks) override {
    RecallQuery wide = query;
    wide.most = kCandidates;
    WEIR_ASSIGN_OR_RETURN(const std::vector<Passage> by_words, words_->Select(wide, blocks));
    WEIR_ASSIGN_OR_RETURN(const std::vector<Passage> by_keys, keys_->Select(wide, blocks));
    std::vector<Ranked> all;
    Add(by_words, &all);
    Add(by_keys, &all);
    std::ranges::stable_sort(all, std::greater(), &Ranked::rank);
    std::vector<Passage> out;
    for (const Ranked& one : all) {
      if (std::ssize(out) == query.most) break;
      if (std::ranges::none_of(out, [&](const Passage& other) { return Overlap(one.passage, other); })) {
        out.push_back(one.passage);
      }
    }
    return out;
  }

 private:
  struct Ranked {
    Passage passage;
    double rank;
  };
  static bool Overlap(const Passage& a, const Passage& b) { return a.seq < b.seq_end && b.seq < a.seq_end; }

  // A passage that overlaps one that is there counts for it: what words found is cut more exactly.
  static void Add(const std::vector<Passage>& found, std::vector<Ranked>* all) {
    const size_t n_before = all->size();
    for (size_t i = 0; i < found.size(); ++i) {
      const double rank = 1 / (kRank + 1 + static_cast<double>(i));
      bool known = false;
      for (size_t k = 0; k < n_before && !known; ++k) {
        Ranked& other = (*all)[k];
        if (!Overlap(other.passage, found[i])) continue;
        other.rank += rank;
        other.passage.score = std::max(other.passage.score, found[i].score);
        known = true;
      }
      if (!known) all->push_back({found[i], rank});
    }
  }

  std::unique_ptr<Selector> words_, keys_;
};

}  // namespace

extern const SelectorInfo kBothSelector;
const SelectorInfo kBothSelector = {
    .name = "both",
    .summary = "passages that `words` or `keys` find, those that both find first",
    .source = "Cormack et al. 2009",
    .needs_keys = true,
    .make = [](const Options&) { return std::unique_ptr<Selector>(new Both); },
};

}  // namespace weir
