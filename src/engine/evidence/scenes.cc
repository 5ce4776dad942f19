// weir-plugin: evidence
// SPDX-License-Identifier: Apache-2.0
// Scenes of the frames that each head holds (ops/scenes.h), taken before each selection once the stream has held a
// picture.
#include "engine/evidence/evidence.h"

namespace weir {
namespace {

class SceneEvidence : public EvidenceKind {
 public:
  explicit SceneEvidence(float change) : change_(change) {}

  void LayOut(const PotShape& pot, BufferSpace* space) override {
    const int64_t n = pot.n_heads_total() * pot.n_slots;
    out_ = space->Floats(MemTag::kMeta, n);
    places_ = reinterpret_cast<int32_t*>(space->Bytes(MemTag::kMeta, n * int64_t{sizeof(int32_t)}));
  }

  Status Take(SessionCore& core, std::span<SlotView> views) override {
    if (core.stream.n_seen_visual() == 0) return Status();
    const PotShape& shape = core.pot->shape();
    std::vector<ScenesArgs> args;
    float* out = out_;
    int32_t* places = places_;
    core.backend->Synchronise();  // the last selection's places may still be read
    for (SlotView& view : views) {
      FillPlaces(view.slots, places);
      args.push_back({.keys = core.pot->keys(view.layer, view.head),
                      .type = shape.k_type,
                      .n_slots = std::ssize(view.slots),
                      .head_dim = shape.head_dim_of(view.layer),
                      .change = change_,
                      .places = places,
                      .out = out});
      view.scenes = {out, view.slots.size()};
      out += view.slots.size();
      places += view.slots.size();
    }
    core.backend->Scenes(args);
    return Status();
  }

 private:
  static void FillPlaces(std::span<const SlotMeta> slots, int32_t* places) {
    int64_t frame = -1;
    for (size_t s = 0; s < slots.size(); ++s) {
      const bool text = slots[s].modality == Modality::kText;
      places[s] = text ? kNotInScene : slots[s].row + (slots[s].frame() == frame ? 0 : kBeginsFrame);
      frame = text ? -1 : slots[s].frame();
    }
  }

  const float change_;
  float* out_ = nullptr;  // of all slots, group after group
  int32_t* places_ = nullptr;
};

std::unique_ptr<EvidenceKind> Make(const PolicyNeeds& needs, const SessionOptions& /*options*/) {
  if (needs.evidence.scene_change <= 0) return nullptr;
  return std::make_unique<SceneEvidence>(needs.evidence.scene_change);
}

}  // namespace

extern const EvidenceInfo kScenes;
const EvidenceInfo kScenes = {.name = "scenes", .make = Make};

}  // namespace weir
