// weir-plugin: policy
// SPDX-License-Identifier: Apache-2.0
// Last frames: the newest pictures or frames, whole, and the newest text. The baseline for streaming video that many
// memory methods do not beat (SimpleStream).
//
// Rule: the newest text up to `text` of what stays; then frames from the newest on, each whole, as long as they fit and
// at most `frames` of them (0: as many as fit); then the rest of the text, newest first; then whatever is newest.
//
// Differences: the baseline is defined by a number of frames and has no budget; here the pot has one, so that a frame
// which fits only in part keeps its newest rows when nothing else is left to take.
#include <algorithm>

#include "policy/policy.h"
#include "policy/rank.h"
#include "policy/step.h"

namespace weir {
namespace {

constexpr PolicyOptionInfo kOptions[] = {
    {.key = "frames",
     .fallback = 0,
     .min = 0,
     .max = 1 << 20,
     .integral = true,
     .help = "newest pictures or frames to keep; 0 = as many as fit",
     .tune = "1|2|4|8"},
    {.key = "text",
     .fallback = 0.25,
     .min = 0,
     .max = 1,
     .integral = false,
     .help = "share of the kept slots for the newest text, filled before any frame",
     .tune = "0.1|0.25|0.5"},
    kStepOption,
};

class LastFrames : public Policy {
 public:
  explicit LastFrames(const PolicyOptions& options)
      : frames_(options.Int("frames")), text_(options.Number("text")), step_(options.Int("step")) {}
  PolicyNeeds Needs() const override {
    PolicyNeeds needs;
    needs.min_slots = 2;
    return needs;
  }
  int32_t TargetSlots(int32_t n_slots, int32_t n_coming) const override {
    return StepTarget(step_, n_slots, n_coming, 1);
  }
  void Select(const SlotView& view, int32_t n_keep, KeepSet* keep) override {
    picker_.Begin(view.slots, n_keep);
    picker_.TakeNewestText(view.slots, RoundHalfUp(text_ * n_keep));
    int32_t n_frames = 0;
    for (int32_t end = picker_.n_slots(); end > 0 && (frames_ == 0 || n_frames < frames_);) {
      if (view.slots[end - 1].modality == Modality::kText) {
        --end;
        continue;
      }
      // Slots of one frame are adjacent: tokens are stored in the order of the stream.
      const int64_t frame = view.slots[end - 1].frame();
      int32_t begin = end, n_new = 0;
      for (;
           begin > 0 && view.slots[begin - 1].modality != Modality::kText && view.slots[begin - 1].frame() == frame;) {
        n_new += !picker_.taken(--begin);
      }
      if (n_new > picker_.room()) break;
      for (int32_t s = begin; s < end; ++s) picker_.Take(s);
      ++n_frames;
      end = begin;
    }
    picker_.TakeNewestText(view.slots, picker_.n_slots());
    picker_.Finish(keep);
  }

 private:
  const int32_t frames_;
  const double text_;
  const int32_t step_;
  SlotPicker picker_;
};

}  // namespace

extern const PolicyInfo kLastFrames;
const PolicyInfo kLastFrames = {
    .name = "last_frames",
    .summary = "keeps the newest frames whole, and the newest text",
    .paper = "SimpleStream: the newest frames as a baseline of streaming video",
    .options = kOptions,
    .make = [](const PolicyOptions& options) -> Result<std::unique_ptr<Policy>> {
      return std::unique_ptr<Policy>(new LastFrames(options));
    },
};

}  // namespace weir
