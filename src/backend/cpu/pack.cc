// SPDX-License-Identifier: Apache-2.0
#include "backend/cpu/pack.h"

#include <algorithm>
#include <atomic>

#include "base/crc32c.h"
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

PackedMatrix::PackedMatrix(const MatrixSource& source, Buffer buffer, const WeightsInfo& weights)
    : Matrix(source.type, source.n_out, source.n_in),
      buffer_(std::move(buffer)),
      weights_(weights),
      panel_bytes_(weights_.panel_bytes(source.type, source.n_in)) {
  bytes_ = n_panels() * panel_bytes_;
}

namespace {

// Of everything that a packed matrix is made from, but for its values, of which only the first are looked at. Not of
// its name, which has the path that the model was opened by.
uint64_t PrintOf(const MatrixSource& source, const WeightsInfo& layout) {
  const int64_t row_bytes = RowBytes(source.type, source.n_in);
  const uint8_t* first = source.data + (source.row_order != nullptr ? source.row_order[0] * row_bytes : 0);
  const int64_t facts[] = {static_cast<int64_t>(InfoOf(source.type).gguf_number), source.n_out, source.n_in,
                           layout.panel_bytes(source.type, source.n_in), source.row_order != nullptr};
  uint32_t sum = Crc32c({reinterpret_cast<const uint8_t*>(facts), sizeof(facts)});
  if (source.row_order != nullptr) {
    sum = Crc32c({reinterpret_cast<const uint8_t*>(source.row_order), static_cast<size_t>(source.n_out) * 4}, sum);
  }
  return uint64_t{sum} << 32 | Crc32c({first, static_cast<size_t>(std::min<int64_t>(row_bytes, 256))});
}

}  // namespace

Result<std::unique_ptr<Matrix>> PackedMatrix::Make(const MatrixSource& source, Ledger& ledger, ThreadPool& pool,
                                                   const WeightsInfo* weights, PackedFile* file) {
  WEIR_RETURN_IF_ERROR(CheckMatrixSource(source));
  const WeightsInfo& layout = weights != nullptr ? *weights : WeightsFor(source.type);
  const int64_t bytes = (source.n_out + kPanel - 1) / kPanel * layout.panel_bytes(source.type, source.n_in);
  const uint64_t print = file != nullptr ? PrintOf(source, layout) : 0;
  if (const uint8_t* packed = file != nullptr ? file->Next(print, bytes) : nullptr; packed != nullptr) {
    WEIR_ASSIGN_OR_RETURN(Reservation reservation, ledger.Reserve(MemTag::kWeights, PageRound(bytes)));
    // Mapped read-only, and only read from here on.
    Buffer mapped(const_cast<uint8_t*>(packed), std::move(reservation), nullptr, [](void*, uint8_t*) {});
    return std::unique_ptr<Matrix>(new PackedMatrix(source, std::move(mapped), layout));
  }
  WEIR_ASSIGN_OR_RETURN(HostBuffer memory, HostBuffer::Allocate(ledger, MemTag::kWeights, bytes, &pool));
  std::unique_ptr<PackedMatrix> matrix(new PackedMatrix(source, std::move(memory), layout));
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
  if (file != nullptr) file->Keep(print, matrix->buffer_.data(), bytes);
  return std::unique_ptr<Matrix>(std::move(matrix));
}

void PackedMatrix::DecodeRow(int64_t o, float* out) const {
  weights_.decode(type_, panel(o / kPanel), n_in_, static_cast<int>(o % kPanel), out);
}

}  // namespace weir::cpu
