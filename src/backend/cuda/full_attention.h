// SPDX-License-Identifier: Apache-2.0
// Attention of pictures on a device. Contract: ops/full_attention.h.
//
// Everything is in F32: with half precision (11 bits for queries and keys) an encoder's attention exceeds the tolerance
// of the golden tests. It uses no scratch.
#pragma once

#include "backend/cuda/device.h"
#include "ops/full_attention.h"

namespace weir::WEIR_GPU {

void FullAttention(Device& device, const FullAttentionArgs& args);
void FullAttentionWeights(Device& device, const FullAttentionWeightsArgs& args);

}  // namespace weir::WEIR_GPU
