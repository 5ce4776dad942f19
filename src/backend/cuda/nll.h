// SPDX-License-Identifier: Apache-2.0
// Likelihoods of given tokens on a device. Contract: ops/nll.h.
#pragma once

#include "backend/cuda/matmul.h"
#include "ops/nll.h"

namespace weir::WEIR_GPU {

void HeadNll(Device& device, Library& library, const NllArgs& args);
int64_t NllScratchBytes(int64_t max_rows, int64_t max_in);

}  // namespace weir::WEIR_GPU
