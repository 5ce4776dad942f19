// weir-plugin: policy
// SPDX-License-Identifier: Apache-2.0
// A-VL: of a picture, each layer stores what the prompt's end attends to and reads a core of it; of text, heavy
// hitters.
// Paper: "A-VL: Adaptive Attention for Large Vision-Language Models" (2409.14846), section 4.
//
// N visual tokens were read so far. s = attention of the newest voting row, mean over the query heads of the layer.
//
//   after a prompt   visual: the floor(S N) largest s stay, per layer (P: but for those that layer 2 holds and
//                    ranks below its floor(P N) largest); text after the first picture: H2O with a budget of round(T
//                    L), L such tokens so far
//   while answering  a step reads all text and the floor(C N) visual slots of largest s, the core; every K-th step
//                    reads all that is stored and ranks anew
//
// S, C, P and T are shares of what was read, whatever left since. K=1 and C >= S read everything at every step; K=0 has
// no core either. Text before the first picture (the system's) stays. Several pictures are ranked together. In a stream
// that has outgrown the pot fewer than floor(S N) are held (floor(P N) if P < S); the core is then C/S of these, as it
// is of floor(S N).
//
// Differences:
// - One keep-set a layer for text too (the paper: one a head), with sums over the mean of its query heads: image and
//   text share the storage of the layer. T is held at the end of prompts and where the pot is full, not at every step.
// - Rows of pictures have no vote; steps that read the core add nothing to the sums of text.
// - P's rows end behind layer 2 and are not computed in later layers, where a prompt's rows can wait
//   (docs/decisions/0038-rows-wait-for-their-prompt.md); elsewhere they are, and leave those layers' slots when the
//   prompt ends, as those of earlier pictures do.
// - A full pot evicts, in this order, visual slots beyond S, text beyond T, visual slots beyond C, the rest by s and by
//   sum. Slots read since the newest vote go last, text and pictures alike: nothing is known of them yet. Text gets the
//   room that the core leaves, but not less than half. The paper's caches grow instead.
// - Pinned slots stay beside the shares; a pinned visual slot that ranks among the best takes its own place there.
// - positions=abs keeps the places in the stream, as published; slots are the default, so that streams never end.
#include <algorithm>
#include <cmath>
#include <vector>

#include "policy/policy.h"
#include "policy/rank.h"
#include "policy/step.h"

namespace weir {
namespace {

constexpr PolicyOptionInfo kOptions[] = {
    {.key = "S",
     .fallback = 0.45,
     .min = 0,
     .max = 1,
     .integral = false,
     .help = "share of the visual tokens to store",
     .tune = "0.3|0.45|0.6"},
    {.key = "C",
     .fallback = 0.3,
     .min = 0,
     .max = 1,
     .integral = false,
     .help = "share of the visual tokens to read in a step",
     .tune = "0.2|0.3|0.45"},
    {.key = "K",
     .fallback = 3,
     .min = 0,
     .max = 1 << 20,
     .integral = true,
     .help = "every K-th step reads everything stored; 0 = every step",
     .tune = "1|3|8"},
    {.key = "P",
     .fallback = 1,
     .min = 0,
     .max = 1,
     .integral = false,
     .help = "share of the visual tokens that layers after the second may store"},
    {.key = "T",
     .fallback = 1,
     .min = 0,
     .max = 1,
     .integral = false,
     .help = "share of the text after the first picture to keep",
     .tune = "0.5|0.7|1"},
    {.key = "heavy",
     .fallback = 0.5,
     .min = 0,
     .max = 1,
     .integral = false,
     .help = "share of the kept text chosen by attention; the rest is the newest"},
    {.key = "text_min",
     .fallback = 20,
     .min = 0,
     .max = 1 << 20,
     .integral = true,
     .help = "minimum tokens of that text to keep"},
    TextOption("rows", "kept",
               "kept: what P drops is not computed in later layers; all: it is, which costs time and saves the memory "
               "of the rows that wait",
               "kept|all"),
    TextOption("positions", "cache",
               "abs: positions in the stream, as published, which are limited to the trained context", "cache|abs"),
    kStepOption,
};

// The layer whose ranking P follows, from 0: after the second block.
constexpr int32_t kFilterLayer = 1;

class AVl : public Policy {
 public:
  explicit AVl(const PolicyOptions& options)
      : stored_(options.Number("S")),
        core_(std::min(options.Number("C"), options.Number("S"))),
        every_(options.Int("K")),
        filter_(options.Number("P")),
        text_(options.Number("T")),
        heavy_(options.Number("heavy")),
        text_min_(options.Int("text_min")),
        waits_(options.Text("rows") == "kept"),
        absolute_(options.Text("positions") == "abs"),
        step_(options.Int("step")) {}

  PolicyNeeds Needs() const override {
    PolicyNeeds needs;
    needs.positions = absolute_ ? Positions::kAbs : Positions::kCache;
    needs.granularity = Granularity::kPerLayer;
    needs.evidence.rows = EvidenceRows::kAll;
    needs.evidence.visual_latest = true;
    needs.trims_prompt = true;
    needs.filter_layers = waits_ && filter_ < 1 ? kFilterLayer + 1 : 0;
    needs.read_every = core_ < stored_ ? every_ : 0;
    needs.min_slots = 2;
    needs.scratch_per_slot = 40;
    return needs;
  }
  int32_t TargetSlots(int32_t n_slots, int32_t n_coming) const override {
    return StepTarget(step_, n_slots, n_coming, 1);
  }

  void Select(const SlotView& view, int32_t n_keep, KeepSet* keep) override {
    Sort(view);
    picker_.Begin(view.slots, n_keep);
    TakeWhileRoom(prefix_);
    // Text gets the room that the core leaves, at least half.
    const int32_t n_core = std::min(std::max(Core(view), n_new_visual_), static_cast<int32_t>(visual_.size()));
    const int32_t budget = std::min(TextBudget(view), std::max(picker_.room() - n_core, picker_.room() / 2));
    const int32_t n_heavy = RoundHalfUp(heavy_ * budget);
    TakeText(view, n_heavy, ProtectedRecent(budget - n_heavy, view.n_unscored, picker_.room()));
    TakeBest(visual_, n_core);
    TakeBest(visual_, Share(stored_, view));
    TakeBest(text_slots_, picker_.n_slots());
    TakeBest(visual_, picker_.n_slots());
    picker_.Finish(keep);
  }

  void SelectAfterPrompt(std::span<const SlotView> views, std::span<KeepSet> keeps) override {
    for (size_t g = 0; g < views.size(); ++g) {
      const SlotView& view = views[g];
      Sort(view);
      if (filter_ < 1 && view.layer > kFilterLayer && std::ssize(views) > kFilterLayer)
        Filter(views[kFilterLayer], view);
      picker_.Begin(view.slots, static_cast<int32_t>(view.slots.size()));
      TakeWhileRoom(prefix_);
      TakeBest(visual_, Share(stored_, view));
      const int32_t budget = TextBudget(view), n_heavy = RoundHalfUp(heavy_ * budget);
      TakeText(view, n_heavy, std::max(budget - n_heavy, view.n_unscored));
      picker_.Collect(&keeps[g]);
    }
  }

  void SelectRows(const SlotView& view, KeepSet* keep) override {
    const std::vector<int64_t> best = BestVisual(view.slots, {view.scores, {}}, Share(filter_, view));
    keep->clear();
    for (size_t s = 0; s < view.slots.size(); ++s) {
      const SlotMeta& slot = view.slots[s];
      const bool stays =
          slot.modality == Modality::kText || slot.pinned || std::binary_search(best.begin(), best.end(), slot.seq);
      if (stays) keep->push_back(static_cast<int32_t>(s));
    }
  }

  void SelectRead(const SlotView& view, KeepSet* read) override {
    Sort(view);
    picker_.Begin(view.slots, static_cast<int32_t>(view.slots.size()));
    TakeBest(visual_, Core(view));
    for (int32_t s = 0; s < picker_.n_slots(); ++s) {
      if (view.slots[s].modality == Modality::kText) picker_.Take(s);
    }
    picker_.Collect(read);
  }

 private:
  // A stream's counts exceed 2^31, a pot's do not: requested numbers are limited to the number of slots.
  static int32_t Share(double share, const SlotView& view) {
    return RoundDown(std::min(share * static_cast<double>(view.n_seen_visual), static_cast<double>(view.slots.size())));
  }
  // Of decimal shares, as RoundHalfUp(): 0.29 of 100 is 29.
  static int32_t RoundDown(double x) { return static_cast<int32_t>(std::floor(x * (1 + 1e-14))); }
  int32_t Core(const SlotView& view) const {
    const auto n_held = static_cast<int32_t>(visual_.size());
    const double stored = std::min(stored_, filter_);
    if (n_held >= Share(stored, view)) return std::min(n_held, Share(core_, view));
    return RoundDown(std::min(1.0, core_ / stored) * n_held);
  }
  // Text after the first picture that may be kept.
  int32_t TextBudget(const SlotView& view) const {
    const int64_t n_text = view.n_seen - view.n_seen_visual - std::ssize(prefix_);
    const double wanted = std::min(text_ * static_cast<double>(n_text), static_cast<double>(view.slots.size()));
    return std::max(RoundHalfUp(wanted), text_min_);
  }

  // The slots in three heaps: text before the first picture, other text and visual slots, both best first, visual ones
  // without a vote before all others. A stream without pictures has no text before one.
  void Sort(const SlotView& view) {
    prefix_.clear();
    text_slots_.clear();
    visual_.clear();
    for (size_t s = 0; s < view.slots.size(); ++s) {
      const bool visual = view.slots[s].modality != Modality::kText;
      // Slots evicted between the first slot and this one were a picture, or text after one.
      const bool before = view.n_seen_visual > 0 && visual_.empty() && text_slots_.empty() &&
                          view.slots[s].seq == static_cast<int64_t>(s);
      (visual ? visual_ : before ? prefix_ : text_slots_).push_back(static_cast<int32_t>(s));
    }
    newest_text_.assign(text_slots_.rbegin(), text_slots_.rend());
    const RankKeys keys = {view.scores, {}};
    const auto ranks_before = [&keys](int32_t a, int32_t b) { return RanksBefore(keys, a, b); };
    const auto first_new = static_cast<int32_t>(view.slots.size()) - view.n_unscored;
    const auto new_end = std::partition(visual_.begin(), visual_.end(), [=](int32_t s) { return s >= first_new; });
    n_new_visual_ = static_cast<int32_t>(new_end - visual_.begin());
    std::sort(visual_.begin(), new_end, std::greater<int32_t>());
    std::sort(new_end, visual_.end(), ranks_before);
    std::sort(text_slots_.begin(), text_slots_.end(), ranks_before);
  }

  // Takes from visual_ the slots that another layer holds and does not rank among its best. Slots that it no longer
  // holds were judged at an earlier prompt.
  void Filter(const SlotView& other, const SlotView& view) {
    const RankKeys keys = {other.scores, {}};
    const std::vector<int64_t> held = BestVisual(other.slots, keys, static_cast<int32_t>(other.slots.size())),
                               best = BestVisual(other.slots, keys, Share(filter_, other));
    const auto among = [](const std::vector<int64_t>& seqs, int64_t seq) {
      return std::binary_search(seqs.begin(), seqs.end(), seq);
    };
    std::erase_if(visual_,
                  [&](int32_t s) { return among(held, view.slots[s].seq) && !among(best, view.slots[s].seq); });
  }

  void TakeWhileRoom(const std::vector<int32_t>& slots) {
    for (int32_t s : slots) {
      if (picker_.room() > 0) picker_.Take(s);
    }
  }
  // The first `count` of a heap, taken or not, as long as there is room.
  void TakeBest(const std::vector<int32_t>& heap, int32_t count) {
    for (int32_t i = 0; i < std::min(count, static_cast<int32_t>(heap.size())) && picker_.room() > 0; ++i) {
      picker_.Take(heap[i]);
    }
  }
  // H2O over text after the first picture: the newest `recent`, then the `heavy` best of the others.
  void TakeText(const SlotView& view, int32_t n_heavy, int32_t recent) {
    TakeBest(newest_text_, recent);
    for (int32_t s : text_slots_) {
      if (n_heavy == 0 || picker_.room() == 0) return;
      if (picker_.taken(s)) continue;
      picker_.Take(s);
      --n_heavy;
    }
  }

  const double stored_, core_;
  const int32_t every_;
  const double filter_, text_, heavy_;
  const int32_t text_min_;
  const bool waits_, absolute_;
  const int32_t step_;
  SlotPicker picker_;
  std::vector<int32_t> prefix_, text_slots_, newest_text_, visual_;
  int32_t n_new_visual_ = 0;  // first ones of visual_: read since the newest vote
};

}  // namespace

extern const PolicyInfo kAVl;
const PolicyInfo kAVl = {
    .name = "a_vl",
    .summary = "stores a share of each picture and reads a core of it; keeps the heavy hitters of text",
    .paper = "Zhang et al., A-VL: Adaptive Attention for Large Vision-Language Models, 2024",
    .options = kOptions,
    .make = [](const PolicyOptions& options) -> Result<std::unique_ptr<Policy>> {
      return std::unique_ptr<Policy>(new AVl(options));
    },
};

}  // namespace weir
