// SPDX-License-Identifier: Apache-2.0
// Products on the CPU: rounds the activations once, then distributes panels and rows over the pool.
#pragma once

#include <cstdint>

#include "base/threads.h"
#include "ops/matmul.h"

namespace weir::cpu {

// REQUIRES: every outs[i].w was made by PackedMatrix::Make.
void MatMul(const MatMulArgs& args, ThreadPool& pool);

// Bytes of MatMulArgs::scratch: the rounded activations.
int64_t MatMulScratchBytes(int64_t n_rows, int64_t n_in);

// out[i] = row ids[i] of the matrix, decoded from its panels.
void EmbedRows(const Matrix& table, const int32_t* ids, int64_t n, float* out, ThreadPool& pool);

}  // namespace weir::cpu
