// SPDX-License-Identifier: Apache-2.0
#include "engine/buffer_space.h"

#include <utility>

namespace weir {

uint8_t* BufferSpace::Bytes(MemTag tag, int64_t n_bytes, Access access) {
  bytes_[static_cast<size_t>(tag)] += PageRound(n_bytes);
  if (n_bytes == 0 || !takes()) return nullptr;
  Result<Buffer> buffer = backend_->Allocate(*ledger_, tag, n_bytes, access);
  if (!buffer.ok()) {
    status_ = buffer.status();
    return nullptr;
  }
  buffers_.push_back(std::move(buffer).value());
  return buffers_.back().data();
}

void BufferSpace::Reserve(MemTag tag, int64_t n_bytes) {
  bytes_[static_cast<size_t>(tag)] += n_bytes;
  if (!takes()) return;
  Result<Reservation> reservation = ledger_->Reserve(tag, n_bytes);
  if (reservation.ok()) {
    reservations_.push_back(std::move(reservation).value());
  } else {
    status_ = reservation.status();
  }
}

}  // namespace weir
