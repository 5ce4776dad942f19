// SPDX-License-Identifier: Apache-2.0
// Divides one reserved block of memory into the arrays of a pass, so that nothing is allocated during the pass.
//
// The same code lays out the arrays twice: once without memory, to compute how many bytes the pass needs (used()), and
// then, in every call, over a block of that size.
#pragma once

#include <cstdint>

namespace weir {

// Bytes that an array takes in a workspace.
inline int64_t AlignedBytes(int64_t bytes) { return (bytes + 63) / 64 * 64; }

// Returns consecutive 64-byte aligned pieces. A copy continues from the original's position: two parts of a pass that
// are never live together may share memory.
class Workspace {
 public:
  // `base` is 64-byte aligned, or nullptr: then every piece is nullptr, and only used() is meaningful.
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
