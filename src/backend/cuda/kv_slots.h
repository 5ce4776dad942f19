// SPDX-License-Identifier: Apache-2.0
// Writing and moving slots, and statistics of their contents. Contracts: ops/kv_slots.h, ops/vector_scores.h.
#pragma once

#include <span>

#include "backend/cuda/device.h"
#include "ops/kv_slots.h"
#include "ops/vector_scores.h"

namespace weir::WEIR_GPU {

void StoreSlots(Device& device, std::span<const StoreSlotsArgs> args);
void CompactSlots(Device& device, std::span<const CompactSlotsArgs> args);
void VectorScores(Device& device, std::span<const VectorScoresArgs> args);

}  // namespace weir::WEIR_GPU
