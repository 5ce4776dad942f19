// SPDX-License-Identifier: Apache-2.0
// CPU versions of the slot operations of ops/kv_slots.h: one task per head, so that a layer's heads spread over the
// workers. Stored bytes equal those of the reference on every SIMD target and for every number of threads.
#pragma once

#include <span>

#include "base/threads.h"
#include "ops/kv_slots.h"

namespace weir::cpu {

// REQUIRES: entries write disjoint slots.
void StoreSlots(std::span<const StoreSlotsArgs> args, ThreadPool& pool);

// REQUIRES: entries name disjoint arrays.
void CompactSlots(std::span<const CompactSlotsArgs> args, ThreadPool& pool);

}  // namespace weir::cpu
