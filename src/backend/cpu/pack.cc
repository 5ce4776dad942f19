// SPDX-License-Identifier: Apache-2.0
#include "backend/cpu/pack.h"

#include <algorithm>
#include <atomic>

#include "quant/format.h"

namespace weir::cpu {

const WeightsInfo& WeightsFor(DType type) {
  const auto all = AllWeightsInfos();
  return **std::max_element(all.begin(), all.end(), [type](const WeightsInfo* a, const WeightsInfo* b) {
    return a->suits(type) < b->suits(type);
  });
}

int64_t PackedMatrix::PackedBytes(DType type, int64_t n_out, int64_t n_in) {
  return (n_out + kPanel - 1) / kPanel * WeightsFor(type).panel_bytes(type, n_in);
}

PackedMatrix::PackedMatrix(const MatrixSource& source, HostBuffer buffer, const WeightsInfo& weights)
    : Matrix(source.type, source.n_out, source.n_in),
      buffer_(std::move(buffer)),
      weights_(weights),
      panel_bytes_(weights_.panel_bytes(source.type, source.n_in)) {
  bytes_ = n_panels() * panel_bytes_;
}

Result<std::unique_ptr<Matrix>> PackedMatrix::Make(const MatrixSource& source, Ledger& ledger, ThreadPool& pool,
                                                   const WeightsInfo* weights) {
  WEIR_RETURN_IF_ERROR(CheckMatrixSource(source));
  const WeightsInfo& layout = weights != nullptr ? *weights : WeightsFor(source.type);
  const int64_t n_panels = (source.n_out + kPanel - 1) / kPanel;
  WEIR_ASSIGN_OR_RETURN(
      HostBuffer buffer,
      HostBuffer::Allocate(ledger, MemTag::kWeights, n_panels * layout.panel_bytes(source.type, source.n_in), &pool));
  std::unique_ptr<PackedMatrix> matrix(new PackedMatrix(source, std::move(buffer), layout));
  const int64_t row_bytes = RowBytes(source.type, source.n_in);
  std::atomic<bool> finite{true};
  pool.For(matrix->n_panels(), [&](int64_t p, int) {
    uint8_t* panel = matrix->buffer_.data() + p * matrix->panel_bytes_;
    for (int64_t o = p * kPanel; o < std::min(source.n_out, (p + 1) * kPanel); ++o) {
      const uint8_t* row = source.data + (source.row_order != nullptr ? source.row_order[o] : o) * row_bytes;
      if (!AllFinite(source.type, row, source.n_in)) finite.store(false);
      matrix->weights_.pack(source.type, row, source.n_in, static_cast<int>(o % kPanel), panel);
    }
  });
  if (!finite.load()) return Corrupt("tensor {}: a weight is NaN or infinite", source.name);
  return std::unique_ptr<Matrix>(std::move(matrix));
}

void PackedMatrix::DecodeRow(int64_t o, float* out) const {
  weights_.decode(type_, panel(o / kPanel), n_in_, static_cast<int>(o % kPanel), out);
}

}  // namespace weir::cpu
