// SPDX-License-Identifier: Apache-2.0
// What compilers have to be told about loops whose vectors stay in registers.
//
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

// Keeps the compiler from moving later sums of integers in front of this one, a vector of Highway's: it would form all
// products first, or all sums of a row, and have no registers for what they need.
#if defined(__aarch64__)
#define WEIR_IN_ORDER(vector) asm("" : "+w"((vector).raw))
#else
#define WEIR_IN_ORDER(vector) asm("" : "+v"((vector).raw))
#endif
