// SPDX-License-Identifier: Apache-2.0
// Layers that keep a state of a stream, on the CPU.
#pragma once

#include "base/threads.h"
#include "ops/causal_conv.h"
#include "ops/delta_rule.h"
#include "ops/ssm_scan.h"

namespace weir::cpu {

void CausalConv(const CausalConvArgs& args, ThreadPool& pool);
// Row by row, so that the same rows give the same bytes in one call and in many. A worker takes some columns of a
// head's matrix, which stay in its cache for all rows: reading a row costs two passes over the matrix, all of them from
// there.
void DeltaRule(const DeltaRuleArgs& args, ThreadPool& pool);
// The same way.
void SsmScan(const SsmScanArgs& args, ThreadPool& pool);

}  // namespace weir::cpu
