// weir-plugin: policy
// SPDX-License-Identifier: Apache-2.0
// StreamingVLM: attention sinks, a long window of text, a short window of vision.
// Paper: "StreamingVLM: Real-Time Understanding for Infinite Video Streams" (arXiv 2510.09608), section 3: the first
// tokens, the newest `text` text tokens (512 in the paper) and the visual tokens of the last `seconds` (16 in the
// paper); positions are those inside the cache.
//
// Rule: when the pot is full, keep slots 0 .. sinks-1, then the newest text, then visual tokens not older than
// `seconds` before the newest slot, newest first.
//
// Differences:
// - The paper's cache has the size its windows add up to. Here the pot has a size of its own: the text window takes at
//   most half of what the sinks leave, the window of vision is cut where the pot ends, and room that the three leave
//   goes to the newest of the other slots.
// - The paper's sinks are a system prompt of 512 tokens: pin it (--pin, --system); `sinks` are the first tokens
// whatever
//   they are.
// - The newest slot always stays; `step` slots are freed at once while decoding.
#include <algorithm>

#include "policy/policy.h"
#include "policy/rank.h"
#include "policy/step.h"

namespace weir {
namespace {

constexpr PolicyOptionInfo kOptions[] = {
    {.key = "sinks",
     .fallback = 4,
     .min = 0,
     .max = 1 << 20,
     .integral = true,
     .help = "first tokens of the stream, always kept",
     .tune = "0|4|16|64"},
    {.key = "text",
     .fallback = 512,
     .min = 0,
     .max = 1 << 20,
     .integral = true,
     .help = "newest text tokens to keep, at most half of what the sinks leave",
     .tune = "64|256|512"},
    {.key = "seconds",
     .fallback = 16,
     .min = 0,
     .max = 1e9,
     .integral = false,
     .help = "last seconds of video, whose visual tokens are kept",
     .tune = "4|8|16|32"},
    kStepOption,
};

class StreamingVlm : public Policy {
 public:
  explicit StreamingVlm(const PolicyOptions& options)
      : sinks_(options.Int("sinks")),
        text_(options.Int("text")),
        window_ms_(static_cast<int64_t>(options.Number("seconds") * 1000)),
        step_(options.Int("step")) {}
  PolicyNeeds Needs() const override {
    PolicyNeeds needs;
    needs.min_slots = sinks_ + 2;
    return needs;
  }
  int32_t TargetSlots(int32_t n_slots, int32_t n_coming) const override {
    return StepTarget(step_, n_slots, n_coming, sinks_ + 1);
  }
  void Select(const SlotView& view, int32_t n_keep, KeepSet* keep) override {
    picker_.Begin(view.slots, n_keep);
    picker_.TakeNewest(1);
    picker_.TakeOldest(sinks_);
    picker_.TakeNewestText(view.slots, std::min(text_, std::max(0, n_keep - sinks_) / 2));
    for (int32_t s = picker_.n_slots() - 1; s >= 0 && picker_.room() > 0; --s) {
      const SlotMeta& m = view.slots[s];
      if (m.modality != Modality::kText && m.t_src_ms >= view.slots.back().t_src_ms - window_ms_) picker_.Take(s);
    }
    picker_.Finish(keep);
  }

 private:
  const int32_t sinks_, text_;
  const int64_t window_ms_;
  const int32_t step_;
  SlotPicker picker_;
};

}  // namespace

extern const PolicyInfo kStreamingVlm;
const PolicyInfo kStreamingVlm = {
    .name = "streaming_vlm",
    .summary = "keeps the first tokens, the newest text and the last seconds of video",
    .paper = "Xu et al., StreamingVLM: Real-Time Understanding for Infinite Video Streams, 2025",
    .options = kOptions,
    .make = [](const PolicyOptions& options) -> Result<std::unique_ptr<Policy>> {
      return std::unique_ptr<Policy>(new StreamingVlm(options));
    },
};

}  // namespace weir
