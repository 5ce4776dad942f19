// SPDX-License-Identifier: Apache-2.0
// Products with weights on a device. Contracts: ops/matmul.h.
//
// Block formats multiply activations rounded to int8 as the contract says, with Dot4() for few rows and the int8 matrix
// units for many. The integers are exact; only the order of the sums over blocks differs from the reference. Plain
// weights multiply F32 activations for few rows; for many, F16 and BF16 weights multiply activations rounded to their
// type (library.h).
#pragma once

#include <memory>

#include "backend/cuda/device.h"
#include "backend/cuda/library.h"
#include "ops/matmul.h"

namespace weir::WEIR_GPU {

struct WeightsInfo;  // weights.h

class DeviceMatrix final : public Matrix {
 public:
  static Result<std::unique_ptr<Matrix>> Make(Device& device, const MatrixSource& source, Ledger& ledger);
  static int64_t PackedBytes(DType type, int64_t n_out, int64_t n_in);

  const WeightsInfo& weights() const { return weights_; }
  const uint8_t* data() const { return buffer_.data(); }

 private:
  DeviceMatrix(const MatrixSource& source, Buffer buffer);
  Buffer buffer_;
  const WeightsInfo& weights_;
};

// The destination of a product.
struct ProductOut {
  float* y = nullptr;  // [n_rows, n_out], rows y_stride apart
  int64_t y_stride = 0;
  const float* bias = nullptr;  // [n_out] or nullptr
  bool accumulate = false;
};

// Activations in the forms that products need; made once for all products of a call.
struct Activations {
  const float* x = nullptr;  // [n_rows, n_in], rows x_stride apart
  int64_t x_stride = 0, n_rows = 0, n_in = 0;
  int8_t* codes = nullptr;  // [n_rows, n_in], rounded
  float* scales = nullptr;  // [n_rows, n_in / 32]
  int32_t* sums = nullptr;  // the same shape: sums of the codes
  NarrowRows narrow;        // for the library
  bool rounded = false;
};
// Bytes of the forms' memory, and the forms in it.
int64_t ActivationBytes(int64_t max_rows, int64_t max_in);
Activations ActivationsOver(void* scratch, const float* x, int64_t x_stride, int64_t n_rows, int64_t n_in);

// Rows [first, first + n_out) of a matrix, and where their product goes.
struct MatrixPart {
  const DeviceMatrix* w = nullptr;
  int64_t first = 0, n_out = 0;
  ProductOut out;
};

// Rows [first, first + n_out) of `w` times the activations.
void Product(Device& device, Library& library, Activations& x, const DeviceMatrix& w, int64_t first, int64_t n_out,
             const ProductOut& out);

void MatMul(Device& device, Library& library, const MatMulArgs& args);
void EmbedRows(Device& device, const Matrix& table, const int32_t* ids, int64_t n, float* out);

// Shared by the products of all layouts: how many rows count as few and x.codes, x.scales and x.sums, made when first
// used.
inline constexpr int64_t kFewRows = 8;
// Rows of weights of a warp.
WEIR_BOTH constexpr int FewOuts(int64_t n_rows) { return n_rows == 1 ? 1 : 2; }
// Products of one launch: q, k and v. A product of few rows takes little longer than a launch's start and end.
inline constexpr int kMostJoined = 3;
void RoundActivations(Device& device, Activations& x);

}  // namespace weir::WEIR_GPU
