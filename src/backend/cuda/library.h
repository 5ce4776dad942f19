// SPDX-License-Identifier: Apache-2.0
// The vendor's matrix products, for plain weights and many rows. The twin has a kernel in their
// place, for 16-bit weights, with the same roundings.
#pragma once

#include <memory>

#include "backend/cuda/device.h"

namespace weir::WEIR_GPU {

// Activations rounded to 16 bits. F16 ends at 65504, so all are divided by `scale`, a power of two that is 1 unless one
// of them exceeds half of that. `scale` is in device memory, and products multiply by it.
struct NarrowRows {
  uint16_t* values = nullptr;  // [n_rows, n_in], contiguous
  float* scale = nullptr;      // [2]: the largest magnitude, the scale
  DType type = DType::kF32;    // of the values; kF32: none are made yet
};

class Library {
 public:
  static Result<std::unique_ptr<Library>> Make(Device& device, Ledger& ledger);
  ~Library();

  // False when Multiply() does not support these weights and the caller must multiply.
  bool Has(DType type) const;
  // y[r, o] = scale * sum_k x[r, k] * w[o, k] (+ y[r, o]): x of type `type` (F32 unrounded, rows x_stride elements
  // apart), w with rows w_stride elements apart, y with rows y_stride floats apart. False, and nothing is done, when
  // the library has no kernel for the shape. REQUIRES: Has(type).
  bool Multiply(DType type, const void* x, int64_t x_stride, int64_t n_rows, int64_t n_in, const void* w,
                int64_t w_stride, int64_t n_out, const float* scale, float* y, int64_t y_stride, bool accumulate);

 private:
  Library() = default;
  struct State;
  std::unique_ptr<State> state_;
};

}  // namespace weir::WEIR_GPU
