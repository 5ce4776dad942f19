// weir-plugin: policy
// SPDX-License-Identifier: Apache-2.0
// KeyDiff: the slots whose keys point away from the mean direction of all keys.
// Paper: "KeyDiff: Key Similarity-Based KV Cache Eviction for Long-Context LLM Inference in Resource-Constrained
// Environments" (arXiv 2504.15364), section 3.
//
//   score_j = -cos(k_j, m)      m = mean over all slots of the head of k / |k|
//
// One keep-set per layer and KV head, from the stored keys, without attention.
//
// Differences:
// - Keys before rotation: a score does not depend on a slot's position.
// - Statistics are computed at the selection, over everything the head holds; `step` slots are evicted at once.
// - `recent` newest slots can be protected; none by default, as in the paper.
#include "policy/vector_ranking.h"

namespace weir {

extern const PolicyInfo kKeydiff;
const PolicyInfo kKeydiff = {
    .name = "keydiff",
    .summary = "keeps the keys that are least like the others",
    .paper = "Park et al., KeyDiff: Key Similarity-Based KV Cache Eviction, arXiv 2504.15364",
    .options = kVectorRankingOptions,
    .make = [](const PolicyOptions& options) -> Result<std::unique_ptr<Policy>> {
      return std::unique_ptr<Policy>(new VectorRanking(VectorScore::kKeyDiff, options));
    },
};

}  // namespace weir
