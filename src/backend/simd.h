// SPDX-License-Identifier: Apache-2.0
// Which instructions the kernels run on.
//
// Kernels are compiled for several sets of instructions and pick the best one that the machine has, when they are first
// called. For comparisons, and to find a fault, they can be held to less.
#pragma once

#include <span>
#include <string_view>

namespace weir {

// What this machine and this build can do, from plain to best: on x86 "SCALAR", "SSSE3", "SSE4", "AVX2", "AVX3",
// "AVX3_DL" (AVX-512 with VNNI), "AVX3_DL_BF16", on Arm "NEON", "NEON_DOTPROD", "NEON_I8MM". A kernel that is not
// compiled for a level runs at the best one below it.
std::span<const char* const> SimdLevels();

// Kernels use nothing beyond that level from now on; the empty name lifts the limit. False, and nothing changes, where
// SimdLevels() does not have the name. Not to be called while kernels run.
bool LimitSimd(std::string_view level);

// The level in use.
const char* SimdLevel();

}  // namespace weir
