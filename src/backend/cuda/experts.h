// SPDX-License-Identifier: Apache-2.0
// Rows and experts on a device. Contracts: ops/experts.h, ops/grouped_matmul.h. The host chooses the experts
// (ref::Route()).
#pragma once

#include "backend/cuda/device.h"
#include "backend/cuda/library.h"
#include "ops/experts.h"
#include "ops/grouped_matmul.h"

namespace weir::WEIR_GPU {

void GroupedMatMul(Device& device, Library& library, const GroupedMatMulArgs& args);
void GatherRows(Device& device, const GatherRowsArgs& args);
void ScatterAddRows(Device& device, const ScatterAddRowsArgs& args);
void GateRows(Device& device, const GateRowsArgs& args);

}  // namespace weir::WEIR_GPU
