// SPDX-License-Identifier: Apache-2.0
// Cutting one reserved block of memory into the arrays of a pass: nothing is allocated while it runs.
//
// The same lines lay the arrays out twice: once over no memory, to learn how many bytes the pass needs (used()), and
// then, at every call, over a block of that size.
#pragma once

#include <cstdint>

namespace weir {

// Bytes an array takes from a workspace.
inline int64_t AlignedBytes(int64_t bytes) { return (bytes + 63) / 64 * 64; }

// Hands out consecutive 64-byte aligned pieces. A copy goes on from where the original stood: two halves of a pass that
// never live together may share memory.
class Workspace {
 public:
  // `base` is 64-byte aligned, or nullptr: every piece is then nullptr, and only used() means something.
  explicit Workspace(uint8_t* base) : base_(base) {}
  float* Floats(int64_t n) { return reinterpret_cast<float*>(Bytes(n * 4)); }
  uint8_t* Bytes(int64_t n) {
    uint8_t* out = base_ == nullptr ? nullptr : base_ + used_;
    used_ += AlignedBytes(n);
    return out;
  }
  // Bytes handed out so far.
  int64_t used() const { return used_; }

 private:
  uint8_t* base_;
  int64_t used_ = 0;
};

}  // namespace weir
