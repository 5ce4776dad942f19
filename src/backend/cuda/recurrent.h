// SPDX-License-Identifier: Apache-2.0
// Layers that keep a state of a stream, on a device. Contracts: ops/causal_conv.h, ops/delta_rule.h, ops/ssm_scan.h.
#pragma once

#include "backend/cuda/device.h"
#include "ops/causal_conv.h"
#include "ops/delta_rule.h"
#include "ops/ssm_scan.h"

namespace weir::WEIR_GPU {

void CausalConv(Device& device, const CausalConvArgs& args);
void DeltaRule(Device& device, const DeltaRuleArgs& args);
void SsmScan(Device& device, const SsmScanArgs& args);

}  // namespace weir::WEIR_GPU
