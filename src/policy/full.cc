// weir-plugin: policy
// SPDX-License-Identifier: Apache-2.0
// Never evicts: the ordinary cache. A full pot is an error, never a silent truncation.
#include "policy/policy.h"

namespace weir {
namespace {

class Full : public Policy {
 public:
  PolicyNeeds Needs() const override {
    PolicyNeeds needs;
    needs.positions = Positions::kAbs;
    needs.evicts = false;
    return needs;
  }
  void Select(const SlotView& view, int32_t n_keep, KeepSet* keep) override {
    KeepHeadAndTail(view.slots, 0, n_keep, keep);  // only reached by callers that ignore `evicts`
  }
};

}  // namespace

extern const PolicyInfo kFull;
const PolicyInfo kFull = {
    .name = "full",
    .summary = "keeps everything; a full pot is an error",
    .make = [](const PolicyOptions&) -> Result<std::unique_ptr<Policy>> { return std::unique_ptr<Policy>(new Full); },
};

}  // namespace weir
