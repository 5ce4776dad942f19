// SPDX-License-Identifier: Apache-2.0
// Selects the instruction set of the kernels.
//
// Kernels are compiled for several instruction sets and pick the machine's best one when they are first called. For
// comparisons and debugging, they can be limited to a lower one.
#pragma once

#include <span>
#include <string_view>

namespace weir {

// The levels that this machine and this build support, lowest first: on x86 "SCALAR", "SSSE3", "SSE4", "AVX2", "AVX3",
// "AVX3_DL" (AVX-512 with VNNI), "AVX3_DL_BF16", on Arm "NEON", "NEON_DOTPROD", "NEON_I8MM". A kernel that is not
// compiled for a level runs at the best one below it.
std::span<const char* const> SimdLevels();

// Kernels use nothing above that level from now on; the empty name lifts the limit. False, and no change, when
// SimdLevels() does not have the name. Not to be called while kernels run.
bool LimitSimd(std::string_view level);

// The level in use.
const char* SimdLevel();

}  // namespace weir
