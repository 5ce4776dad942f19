// SPDX-License-Identifier: Apache-2.0
// A weight matrix in the layout that the CPU kernels of its type read (weights.h), packed once when a model is loaded.
#pragma once

#include <cstdint>
#include <memory>

#include "backend/cpu/weights.h"
#include "backend/packed_file.h"
#include "base/ledger.h"
#include "base/memory.h"
#include "base/status.h"
#include "base/threads.h"
#include "ops/matmul.h"
#include "quant/dtype.h"

namespace weir::cpu {

class PackedMatrix final : public Matrix {
 public:
  // Checks, reserves exactly the bytes of the packed form under kWeights, then packs on the pool. Errors of
  // CheckMatrixSource; kCorrupt for a weight that is NaN or infinite; kOverBudget; kIo when the system has no memory.
  // `weights`: the layout, nullptr for the best one for the type; others are for comparisons. `file`, which may be
  // nullptr and outlives the matrix, provides what an earlier start packed, or keeps what is packed now.
  static Result<std::unique_ptr<Matrix>> Make(const MatrixSource& source, Ledger& ledger, ThreadPool& pool,
                                              const WeightsInfo* weights = nullptr, PackedFile* file = nullptr);

  // Bytes of the packed form, before page rounding. REQUIRES: a source that passed CheckMatrixSource.
  static int64_t PackedBytes(DType type, int64_t n_out, int64_t n_in);

  int64_t n_panels() const { return (n_out_ + kPanel - 1) / kPanel; }
  int64_t n_blocks() const { return n_in_ / kQ8Block; }
  const uint8_t* panel(int64_t p) const { return buffer_.data() + p * panel_bytes_; }
  int64_t panel_bytes() const { return panel_bytes_; }
  const WeightsInfo& weights() const { return weights_; }

  // Row o as floats: the same bits as DecodeRow of the file's row. REQUIRES: 0 <= o < n_out.
  void DecodeRow(int64_t o, float* out) const;

 private:
  PackedMatrix(const MatrixSource& source, Buffer buffer, const WeightsInfo& weights);

  Buffer buffer_;
  const WeightsInfo& weights_;
  int64_t panel_bytes_ = 0;
};

}  // namespace weir::cpu
