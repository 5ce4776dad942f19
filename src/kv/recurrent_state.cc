// SPDX-License-Identifier: Apache-2.0
#include "kv/recurrent_state.h"

#include <algorithm>
#include <array>

namespace weir {
namespace {

// The state may be in a device's memory: data between it and a file passes through a host buffer of this size.
using Bounce = std::array<uint8_t, 1 << 15>;

}  // namespace

int64_t RecurrentState::Bytes(const RecurrentStateShape& shape) {
  if (shape.n_floats == 0) return 0;
  const int64_t one = shape.n_floats * 4;
  return PageRound(one) + (shape.aside ? PageRound(one) : 0) + (shape.n_marks > 0 ? PageRound(one * shape.n_marks) : 0);
}

Result<RecurrentState> RecurrentState::Make(const RecurrentStateShape& shape, Backend& backend, Ledger& ledger) {
  RecurrentState out;
  if (shape.n_floats == 0) return out;
  out.shape_ = shape;
  out.backend_ = &backend;
  const int64_t one = shape.n_floats * 4;
  WEIR_ASSIGN_OR_RETURN(out.now_, backend.Allocate(ledger, MemTag::kKv, one, Access::kDevice));
  if (shape.aside) {
    WEIR_ASSIGN_OR_RETURN(out.aside_, backend.Allocate(ledger, MemTag::kKv, one, Access::kDevice));
  }
  if (shape.n_marks > 0) {
    WEIR_ASSIGN_OR_RETURN(out.marked_, backend.Allocate(ledger, MemTag::kKv, one * shape.n_marks, Access::kDevice));
  }
  out.marks_ = Marks(shape.n_marks);
  return out;
}

void RecurrentState::Clear() {
  if (empty()) return;
  static constexpr Bounce kZeros = {};
  const int64_t n_bytes = shape_.n_floats * 4;
  for (int64_t at = 0; at < n_bytes; at += std::ssize(kZeros)) {
    backend_->Copy(now_.data() + at, kZeros.data(), std::min(std::ssize(kZeros), n_bytes - at));
  }
  ForgetMarks();
}

void RecurrentState::SetAside(int64_t n) {
  if (empty()) return;
  backend_->Copy(aside_.data(), now_.data(), shape_.n_floats * 4);
  aside_at_ = n;
}

void RecurrentState::BringBack() {
  if (!empty()) backend_->Copy(now_.data(), aside_.data(), shape_.n_floats * 4);
}

void RecurrentState::Mark(int64_t n, bool keep) {
  const int64_t copy = marks_.Take(n, keep), n_bytes = shape_.n_floats * 4;
  if (copy >= 0) backend_->Copy(marked_.data() + copy * n_bytes, now_.data(), n_bytes);
}

void RecurrentState::Return(int64_t n) {
  const int64_t copy = marks_.CopyOf(n), n_bytes = shape_.n_floats * 4;
  backend_->Copy(now_.data(), marked_.data() + copy * n_bytes, n_bytes);
  marks_.ForgetAfter(n);
  aside_at_ = -1;
}

void RecurrentState::ForgetMarks() {
  marks_.Clear();
  aside_at_ = -1;
}

Status RecurrentState::Save(ByteSink& sink) const {
  Bounce bounce;
  const int64_t n_bytes = shape_.n_floats * 4;
  for (int64_t at = 0; at < n_bytes; at += std::ssize(bounce)) {
    const int64_t n_here = std::min(std::ssize(bounce), n_bytes - at);
    backend_->Copy(bounce.data(), now_.data() + at, n_here);
    WEIR_RETURN_IF_ERROR(sink.Write({bounce.data(), static_cast<size_t>(n_here)}));
  }
  return Status();
}

Status RecurrentState::Restore(ByteSource& source) {
  ForgetMarks();
  Bounce bounce;
  const int64_t n_bytes = shape_.n_floats * 4;
  for (int64_t at = 0; at < n_bytes; at += std::ssize(bounce)) {
    const int64_t n_here = std::min(std::ssize(bounce), n_bytes - at);
    WEIR_RETURN_IF_ERROR(source.Read({bounce.data(), static_cast<size_t>(n_here)}));
    backend_->Copy(now_.data() + at, bounce.data(), n_here);
  }
  return Status();
}

void RecurrentState::CopyFrom(const RecurrentState& other) {
  ForgetMarks();
  if (!empty()) backend_->Copy(now_.data(), other.now_.data(), shape_.n_floats * 4);
}

}  // namespace weir
