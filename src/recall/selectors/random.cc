// weir-plugin: selector
// SPDX-License-Identifier: Apache-2.0
// random: any passages, each equally likely (reservoir sampling, Vitter 1985, algorithm R). The baseline of chance.
#include "base/rng.h"
#include "recall/selectors/selector.h"

namespace weir {
namespace {

class Random final : public Selector {
 public:
  explicit Random(uint64_t seed) : seed_(seed) {}
  int64_t MemoryBytes() const override { return 0; }

  Result<std::vector<Passage>> Select(const RecallQuery& query, BlockSource& blocks) override {
    Rng rng(seed_ ^ static_cast<uint64_t>(query.n_seen));  // the same question at the same place gets the same passages
    std::vector<Passage> out;
    int64_t n = 0;
    WEIR_RETURN_IF_ERROR(blocks.ScanText(blocks.begin(), [&](BlockPlace place, const Block& block) {
      if (block.seq_end() > query.held_from) return false;
      if (!query.MayBring(block)) return true;
      Passage one = {.from = place, .seq = block.seq, .seq_end = block.seq_end(), .t_ms = block.t_ms};
      one.n_rows = block.modality == Modality::kText ? 0 : block.n_tokens;
      one.score = 1;
      ++n;
      if (std::ssize(out) < query.most) {
        out.push_back(one);
      } else if (const auto at = rng.Below(static_cast<uint64_t>(n)); at < out.size()) {
        out[at] = one;
      }
      return true;
    }));
    return out;
  }

 private:
  uint64_t seed_;
};

constexpr OptionInfo kOptions[] = {
    {.key = "seed", .fallback = 0, .min = 0, .max = 1 << 30, .integral = true, .help = "of the choice"}};

}  // namespace

extern const SelectorInfo kRandomSelector;
const SelectorInfo kRandomSelector = {
    .name = "random",
    .summary = "passages by chance: a baseline",
    .options = kOptions,
    .make =
        [](const Options& options) {
          return std::unique_ptr<Selector>(new Random(static_cast<uint64_t>(options.Int("seed"))));
        },
};

}  // namespace weir
