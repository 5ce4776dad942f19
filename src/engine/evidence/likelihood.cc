// weir-plugin: evidence
// SPDX-License-Identifier: Apache-2.0
// -log P of every token when it was read: the tokens that the model did not expect.
#include <cmath>

#include "engine/evidence/evidence.h"

namespace weir {
namespace {

class LikelihoodEvidence : public EvidenceKind {
 public:
  LikelihoodEvidence(Normaliser normaliser, float decay) : normaliser_(normaliser), decay_(decay) {}

  EvidenceDemand Demand() const override { return {.floats = {SlotFloat::kNll}, .likelihoods = normaliser_}; }

  void EndChunk(SessionCore& core, const Chunk& /*chunk*/, std::span<const float> nll) override {
    core.pot->SetNewest(SlotFloat::kNll, nll);
  }

  bool Age(SessionCore& core) override {
    if (decay_ == 1) return false;
    for (int32_t group = 0; group < core.pot->shape().n_groups(); ++group) {
      for (float& value : core.pot->nll(group)) {
        if (std::isfinite(value)) value *= decay_;  // the first token's stays infinite, whatever the factor
      }
    }
    return true;
  }

  void Show(const SessionCore& core, SlotView* view) const override { view->nll = core.pot->nll(view->group); }

 private:
  const Normaliser normaliser_;
  const float decay_;
};

std::unique_ptr<EvidenceKind> Make(const PolicyNeeds& needs, const SessionOptions& /*options*/) {
  if (needs.evidence.nll == Normaliser::kNone) return nullptr;
  return std::make_unique<LikelihoodEvidence>(needs.evidence.nll, needs.nll_decay);
}

}  // namespace

extern const EvidenceInfo kLikelihood;
const EvidenceInfo kLikelihood = {.name = "likelihood", .make = Make};

}  // namespace weir
