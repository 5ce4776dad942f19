// weir-plugin: evidence
// SPDX-License-Identifier: Apache-2.0
// How little a visual token's key resembles those at the same place of recent frames (ops/frame_novelty.h), taken
// before each selection.
#include "engine/evidence/evidence.h"

namespace weir {
namespace {

class NoveltyEvidence : public EvidenceKind {
 public:
  explicit NoveltyEvidence(double recent_frames) : recent_frames_(recent_frames) {}

  void LayOut(const PotShape& pot, BufferSpace* space) override {
    out_ = space->Floats(MemTag::kMeta, pot.n_heads_total() * pot.n_slots);
    scratch_ = space->Bytes(MemTag::kMeta, FrameNoveltyScratchBytes(pot.max_head_slots(), pot.head_dim));
  }

  Status Take(SessionCore& core, std::span<SlotView> views) override {
    const PotShape& shape = core.pot->shape();
    float* out = out_;
    for (SlotView& view : views) {
      const FrameNoveltyArgs args = {.keys = core.pot->keys(view.layer, view.head),
                                     .type = shape.k_type,
                                     .n_slots = std::ssize(view.slots),
                                     .head_dim = shape.head_dim_of(view.layer),
                                     .scratch = scratch_,
                                     .out = out};
      core.backend->Synchronise();  // the previous group's buffer may still be in use
      FillPlaces(view.slots, FrameNoveltyPlaces(args));
      core.backend->FrameNovelty(args);
      view.novelty = {out, view.slots.size()};
      out += view.slots.size();
    }
    return Status();
  }

 private:
  void FillPlaces(std::span<const SlotMeta> slots, int32_t* places) const {
    const std::vector<int64_t> recent = RecentFrames(slots, recent_frames_);
    for (size_t s = 0; s < slots.size(); ++s) {
      const SlotMeta& slot = slots[s];
      if (slot.modality == Modality::kText) {
        places[s] = kNoPlace;
      } else {
        places[s] = (slot.frame() >= recent.front() ? kRecentPlace : 0) + slot.row;
      }
    }
  }

  const double recent_frames_;
  float* out_ = nullptr;  // floats of all slots, group after group
  uint8_t* scratch_ = nullptr;
};

std::unique_ptr<EvidenceKind> Make(const PolicyNeeds& needs, const SessionOptions& /*options*/) {
  if (needs.evidence.recent_frames <= 0) return nullptr;
  return std::make_unique<NoveltyEvidence>(needs.evidence.recent_frames);
}

}  // namespace

extern const EvidenceInfo kNovelty;
const EvidenceInfo kNovelty = {.name = "novelty", .make = Make};

}  // namespace weir
