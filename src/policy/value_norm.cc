// weir-plugin: policy
// SPDX-License-Identifier: Apache-2.0
// Value norm: the slots whose value vectors are longest.
// Paper: "InfiniPot-V: Memory-Constrained KV Cache Compression for Streaming Video Understanding" (NeurIPS 2025), its
// value-norm ranking VaN.
//
//   score_j = |v_j|
//
// One keep-set per layer and KV head, from the stored values, without attention.
//
// Differences:
// - Half of a method only: without the temporal redundancy of frames (TaR), which text does not have (see infinipot_v),
//   and without the pooling over a frame's grid.
// - `step` slots go at once; `recent` newest ones can be protected, none by default.
#include "policy/vector_ranking.h"

namespace weir {

extern const PolicyInfo kValueNorm;
const PolicyInfo kValueNorm = {
    .name = "value_norm",
    .summary = "keeps the longest value vectors",
    .paper =
        "Kim et al., InfiniPot-V: Memory-Constrained KV Cache Compression for Streaming Video "
        "Understanding, NeurIPS 2025",
    .options = kVectorRankingOptions,
    .make = [](const PolicyOptions& options) -> Result<std::unique_ptr<Policy>> {
      return std::unique_ptr<Policy>(new VectorRanking(VectorScore::kValueNorm, options));
    },
};

}  // namespace weir
