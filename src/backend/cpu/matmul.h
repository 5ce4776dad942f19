// SPDX-License-Identifier: Apache-2.0
// Products on the CPU: rounds the activations once, then distributes panels and rows over the pool.
#pragma once

#include <cstdint>

#include "backend/cpu/weights.h"
#include "base/threads.h"
#include "ops/matmul.h"

namespace weir::cpu {

// Rows of one task: a multiple of every register tile, few enough that their activations stay in L2 while panels are
// read.
inline constexpr int64_t kTaskRows = 96;
// The fewest multiply-adds worth a task on another core.
inline constexpr int64_t kTaskWork = int64_t{1} << 18;
inline constexpr int64_t kMaxTaskPanels = 64;
// The fewest rows that share the rounding of 16-bit weights, and the most of a task: a multiple of every tile.
inline constexpr int64_t kHalfsRows = 32, kHalfsTaskRows = 192;

// REQUIRES: every outs[i].w was made by PackedMatrix::Make.
void MatMul(const MatMulArgs& args, ThreadPool& pool);

// Bytes of MatMulArgs::scratch: the rounded activations. Rounded: with MatMulArgs::rounds_halfs.
int64_t MatMulScratchBytes(int64_t n_rows, int64_t n_in);
int64_t RoundedMatMulScratchBytes(int64_t n_rows, int64_t n_in);

// Rounds rows of n_in floats, x_stride apart, to rows of n_in / kQ8Block blocks.
void RoundRows(const float* x, int64_t x_stride, int64_t n_rows, int64_t n_in, ActBlock* act, ThreadPool& pool);

// out[i] = row ids[i] of the matrix, decoded from its panels.
void EmbedRows(const Matrix& table, const int32_t* ids, int64_t n, float* out, ThreadPool& pool);

}  // namespace weir::cpu
