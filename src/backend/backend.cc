// SPDX-License-Identifier: Apache-2.0
#include "backend/backend.h"

#include <algorithm>
#include <cstring>

#include "base/memory.h"

namespace weir {

Result<Buffer> Backend::Allocate(Ledger& ledger, MemTag tag, int64_t bytes, Access) {
  WEIR_ASSIGN_OR_RETURN(HostBuffer buffer, HostBuffer::Allocate(ledger, tag, bytes));
  return Buffer(std::move(buffer));
}

Result<Buffer> Backend::Upload(Ledger& ledger, MemTag tag, const void* data, int64_t n_bytes) {
  if (on_host() || n_bytes == 0) return Buffer();
  WEIR_ASSIGN_OR_RETURN(Buffer buffer, Allocate(ledger, tag, n_bytes, Access::kDevice));
  Copy(buffer.data(), data, n_bytes);
  return buffer;
}

void Backend::Copy(void* to, const void* from, int64_t n_bytes) {
  std::memmove(to, from, static_cast<size_t>(n_bytes));
}

Result<std::unique_ptr<Matrix>> Backend::PrepareMatrix(const MatrixSource& source, Ledger& ledger) {
  return ref::PrepareMatrix(source, ledger);
}

int64_t Backend::MatrixBytes(const MatrixSource& source) const {
  return PageRound(source.n_out * RowBytes(source.type, source.n_in));
}

void Backend::StoreSlots(std::span<const StoreSlotsArgs> args) {
  for (const StoreSlotsArgs& head : args) ref::StoreSlots(head);
}

void Backend::CompactSlots(std::span<const CompactSlotsArgs> args) {
  for (const CompactSlotsArgs& head : args) ref::CompactSlots(head);
}

void Backend::Scenes(std::span<const ScenesArgs> args) {
  for (const ScenesArgs& head : args) ref::Scenes(head);
}

void Backend::VectorScores(std::span<const VectorScoresArgs> args) {
  for (const VectorScoresArgs& head : args) ref::VectorScores(head);
}

void Backend::AttentionWithScores(const AttentionArgs& args, std::span<const ColumnScoresArgs> scores) {
  Attention(args);
  for (const ColumnScoresArgs& segment : scores) ColumnScores(segment);
}

int64_t Backend::AttentionWithScoresScratchBytes(const AttentionShape& shape) const {
  return std::max(AttentionScratchBytes(shape), ColumnScoresScratchBytes(shape));
}

// The references allocate from the heap: they are for tests, not for budgets.
int64_t Backend::MatMulScratchBytes(int64_t, int64_t) const { return 0; }
int64_t Backend::RoundedMatMulScratchBytes(int64_t max_rows, int64_t max_in) const {
  return MatMulScratchBytes(max_rows, max_in);
}
int64_t Backend::NllScratchBytes(int64_t, int64_t) const { return 0; }
int64_t Backend::TopLogitsScratchBytes(int64_t) const { return 0; }
int64_t Backend::AttentionScratchBytes(const AttentionShape&) const { return 0; }
int64_t Backend::ColumnScoresScratchBytes(const AttentionShape&) const { return 0; }
int64_t Backend::FullAttentionScratchBytes(int64_t, int64_t, int64_t) const { return 0; }

}  // namespace weir
