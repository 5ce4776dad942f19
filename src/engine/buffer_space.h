// SPDX-License-Identifier: Apache-2.0
// Buffers that the same code lays out twice: once to count the bytes that a plan needs, once to allocate them. Plan and
// allocation therefore cannot differ.
//
//   void Room::LayOut(BufferSpace* space) { logits_ = space->Floats(MemTag::kLogits, n_vocab); }
//   BufferSpace planned;                   room.LayOut(&planned);  planned.bytes(MemTag::kLogits)
//   BufferSpace taken(&backend, &ledger);  room.LayOut(&taken);    taken.status()
#pragma once

#include <array>
#include <cstdint>
#include <vector>

#include "backend/backend.h"
#include "base/ledger.h"
#include "base/memory.h"
#include "base/status.h"

namespace weir {

class BufferSpace {
 public:
  // Only counts: every piece is nullptr.
  BufferSpace() = default;
  // Allocates pieces from `backend`, reserved in `ledger`; both must outlive the space, which owns the pieces.
  BufferSpace(Backend* backend, Ledger* ledger) : backend_(backend), ledger_(ledger) {}

  // A zeroed piece of whole pages. nullptr if n is 0, the space only counts, or status() has a failure.
  uint8_t* Bytes(MemTag tag, int64_t n_bytes, Access access = Access::kShared);
  float* Floats(MemTag tag, int64_t n, Access access = Access::kShared) {
    return reinterpret_cast<float*>(Bytes(tag, n * 4, access));
  }
  // Reserves exactly n_bytes that their owner allocates elsewhere (vectors that never grow beyond it).
  void Reserve(MemTag tag, int64_t n_bytes);

  // Bytes requested so far.
  int64_t bytes(MemTag tag) const { return bytes_[static_cast<size_t>(tag)]; }
  // The first error of Backend::Allocate(); nothing is allocated after it.
  const Status& status() const { return status_; }

 private:
  bool takes() const { return backend_ != nullptr && status_.ok(); }

  Backend* backend_ = nullptr;
  Ledger* ledger_ = nullptr;
  std::array<int64_t, kNumMemTags> bytes_{};
  std::vector<Buffer> buffers_;
  std::vector<Reservation> reservations_;
  Status status_;
};

}  // namespace weir
