// SPDX-License-Identifier: Apache-2.0
// Attention of pictures on a device. Contract: ops/full_attention.h.
//
// Everything in F32: what an encoder's attention loses to halves (11 bits of every query and key) its goldens do not
// forgive. It takes no scratch.
#pragma once

#include "backend/cuda/device.h"
#include "ops/full_attention.h"

namespace weir::WEIR_GPU {

void FullAttention(Device& device, const FullAttentionArgs& args);
void FullAttentionWeights(Device& device, const FullAttentionWeightsArgs& args);

}  // namespace weir::WEIR_GPU
