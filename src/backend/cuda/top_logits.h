// SPDX-License-Identifier: Apache-2.0
// The largest logits on a device. Contract: ops/top_logits.h.
#pragma once

#include "backend/cuda/device.h"
#include "ops/top_logits.h"

namespace weir::WEIR_GPU {

void TopLogits(Device& device, const TopLogitsArgs& args);
int64_t TopLogitsScratchBytes(int64_t n);

}  // namespace weir::WEIR_GPU
