// SPDX-License-Identifier: Apache-2.0
// What layers without keys and values keep of a stream: numbers of a fixed count that every row rewrites (a
// convolution's last rows, a delta rule's matrices).
//
// A state cannot un-read a row. It can only return to a copy that was made before: aside, for rows that are read and
// removed again (a probe), or at a mark, for a prompt that begins like the last one. Copies are reserved when the state
// is made.
#pragma once

#include <cstdint>

#include "backend/backend.h"
#include "base/bytes.h"
#include "base/ledger.h"
#include "base/memory.h"
#include "base/status.h"
#include "kv/marks.h"
#include "kv/types.h"

namespace weir {

class RecurrentState {
 public:
  RecurrentState() = default;  // of a model without one
  // Memory of `backend`, zeroed, reserved under kKv.
  static Result<RecurrentState> Make(const RecurrentStateShape& shape, Backend& backend, Ledger& ledger);
  // Bytes Make() reserves.
  static int64_t Bytes(const RecurrentStateShape& shape);

  bool empty() const { return shape_.n_floats == 0; }
  int64_t n_floats() const { return shape_.n_floats; }
  float* data() const { return now_.as<float>(); }  // in memory of the backend

  // As of a new stream; marks are forgotten.
  void Clear();

  // SetAside() copies the state, which has read n tokens of the stream, and BringBack() returns to the copy. aside() is
  // that n, -1 before the first copy and after it was lost. REQUIRES: empty(), or shape.aside.
  void SetAside(int64_t n);
  void BringBack();
  int64_t aside() const { return aside_at_; }

  // The state is that of exactly the first n tokens of a stream: remembers it, as Marks::Take().
  void Mark(int64_t n, bool keep);
  // The largest mark that is at most n, 0 if there is none.
  int64_t MarkBefore(int64_t n) const { return marks_.Before(n); }
  // Goes back to a mark and forgets the later ones. REQUIRES: MarkBefore(n) == n > 0.
  void Return(int64_t n);
  // The copy aside is forgotten, too.
  void ForgetMarks();

  // The state as bytes, n_floats * 4; marks are not saved.
  Status Save(ByteSink& sink) const;
  Status Restore(ByteSource& source);
  void CopyFrom(const RecurrentState& other);

 private:
  RecurrentStateShape shape_;
  Backend* backend_ = nullptr;
  Buffer now_, aside_, marked_;
  int64_t aside_at_ = -1;
  Marks marks_;
};

}  // namespace weir
