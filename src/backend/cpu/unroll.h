// SPDX-License-Identifier: Apache-2.0
// WEIR_UNROLL before a loop with a small constant trip count: the loop is unrolled, so that arrays of vectors it
// indexes stay in registers. At -O2 compilers may keep the loop, and with it every vector in memory.
#pragma once

#if defined(__clang__)
#define WEIR_UNROLL _Pragma("clang loop unroll(full)")
#elif defined(__GNUC__)
#define WEIR_UNROLL _Pragma("GCC unroll 16")
#else
#define WEIR_UNROLL
#endif
