// Cutting one reserved block of memory into the arrays of a pass.
//
// A pass computes how many bytes it needs with AlignedBytes() of every array, gets a block of that size once, and hands
// out its pieces with Workspace at every call: nothing is allocated while it runs.
#pragma once

#include <cstdint>

namespace weir {

// Bytes an array takes from a workspace.
inline int64_t AlignedBytes(int64_t bytes) { return (bytes + 63) / 64 * 64; }

// Hands out consecutive 64-byte aligned pieces. A copy goes on from where the original stood: two halves of a pass that
// never live together may share memory.
class Workspace {
 public:
  // `base` is 64-byte aligned.
  explicit Workspace(uint8_t* base) : at_(base) {}
  float* Floats(int64_t n) { return reinterpret_cast<float*>(Bytes(n * 4)); }
  uint8_t* Bytes(int64_t n) {
    uint8_t* out = at_;
    at_ += AlignedBytes(n);
    return out;
  }

 private:
  uint8_t* at_;
};

}  // namespace weir
