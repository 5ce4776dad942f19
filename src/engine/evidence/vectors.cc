// weir-plugin: evidence
// SPDX-License-Identifier: Apache-2.0
// Statistics of the stored keys or values (ops/vector_scores.h), taken before each selection: one in place of attention
// and, once the stream has held a picture, another one for visual tokens.
#include "engine/evidence/evidence.h"

namespace weir {
namespace {

class VectorEvidence : public EvidenceKind {
 public:
  explicit VectorEvidence(const Evidence& declared) : scores_(declared.vector), visual_(declared.visual_vector) {}

  EvidenceDemand Demand() const override {
    return scores_ == VectorScore::kNone ? EvidenceDemand() : EvidenceDemand{.floats = {SlotFloat::kScore}};
  }

  void LayOut(const PotShape& pot, BufferSpace* space) override {
    if (visual_ != VectorScore::kNone) {
      visual_out_ = space->Floats(MemTag::kMeta, pot.n_heads_total() * pot.n_slots);
    }
  }

  Status Take(SessionCore& core, std::span<SlotView> views) override {
    if (scores_ != VectorScore::kNone) TakeScores(core);
    if (visual_ != VectorScore::kNone && core.stream.n_seen_visual() > 0) TakeVisual(core, views);
    return Status();
  }

  void Show(const SessionCore& core, SlotView* view) const override {
    if (scores_ != VectorScore::kNone) view->scores = core.pot->scores(view->group);
  }

 private:
  static VectorScoresArgs ArgsOf(VectorScore what, const Pot& pot, int32_t layer, int32_t head, float* out) {
    const PotShape& shape = pot.shape();
    const bool keys = what == VectorScore::kKeyDiff;
    return {.what = what,
            .slots = keys ? pot.keys(layer, head) : pot.values(layer, head),
            .type = keys ? shape.k_type : shape.v_type,
            .n_slots = pot.n_used(layer, head),
            .head_dim = shape.head_dim_of(layer),
            .out = out};
  }

  void TakeScores(SessionCore& core) const {
    const PotShape& shape = core.pot->shape();
    std::vector<VectorScoresArgs> args;
    for (int32_t layer = 0; layer < shape.n_layers; ++layer) {
      for (int32_t head = 0; head < shape.n_kv_heads_of(layer); ++head) {
        float* const out = core.pot->scores(shape.group_of(layer, head)).data();
        args.push_back(ArgsOf(scores_, *core.pot, layer, head, out));
      }
    }
    core.backend->VectorScores(args);
    core.memo.n_unscored = 0;
  }

  void TakeVisual(const SessionCore& core, std::span<SlotView> views) const {
    std::vector<VectorScoresArgs> args;
    float* out = visual_out_;
    for (SlotView& view : views) {
      args.push_back(ArgsOf(visual_, *core.pot, view.layer, view.head, out));
      view.visual = {out, view.slots.size()};
      out += view.slots.size();
    }
    core.backend->VectorScores(args);
  }

  const VectorScore scores_, visual_;
  float* visual_out_ = nullptr;  // floats of all slots, group after group
};

std::unique_ptr<EvidenceKind> Make(const PolicyNeeds& needs, const SessionOptions& /*options*/) {
  const Evidence& declared = needs.evidence;
  if (declared.vector == VectorScore::kNone && declared.visual_vector == VectorScore::kNone) return nullptr;
  return std::make_unique<VectorEvidence>(declared);
}

}  // namespace

extern const EvidenceInfo kVectors;
const EvidenceInfo kVectors = {.name = "vectors", .make = Make};

}  // namespace weir
