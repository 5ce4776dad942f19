// SPDX-License-Identifier: Apache-2.0
// Products of activations with weight matrices: y[r, o] = sum_k x[r, k] * w[o, k] (+ bias[o]) (+ y[r, o]).
//
// Weights of block formats (Q8_0, Q4_1, Q4_K ...) multiply activations rounded to int8 in blocks of 32 along k, with
// one F32 scale a block (absmax / 127, round half to even): the numerics of llama.cpp's CPU backend, needed for parity.
// Plain weights (F32, F16, BF16) multiply F32 activations, unless MatMulArgs::rounds_halfs lets a backend round.
#pragma once

#include <cstdint>
#include <memory>
#include <span>

#include "base/ledger.h"
#include "base/status.h"
#include "quant/dtype.h"

namespace weir {

// A weight matrix as stored in a model file: n_out rows of n_in elements.
struct MatrixSource {
  const char* name = "";  // for messages
  DType type = DType::kF32;
  int64_t n_out = 0, n_in = 0;         // n_in is a multiple of the type's block
  const uint8_t* data = nullptr;       // rows of RowBytes(type, n_in); may be unaligned
  const int32_t* row_order = nullptr;  // [n_out] or nullptr: row o of the matrix is row row_order[o] of `data`
  int64_t n_rows = 0;                  // of `data`, if row_order picks some of them; 0: n_out
};

// A weight matrix prepared by a backend in its own layout. Immutable; shared by all sessions of a model.
class Matrix {
 public:
  virtual ~Matrix() = default;
  int64_t n_out() const { return n_out_; }
  int64_t n_in() const { return n_in_; }
  DType type() const { return type_; }
  int64_t bytes() const { return bytes_; }  // size of the prepared form, and bytes that one pass over it reads

 protected:
  Matrix(DType type, int64_t n_out, int64_t n_in) : type_(type), n_out_(n_out), n_in_(n_in) {}
  DType type_;
  int64_t n_out_, n_in_;
  int64_t bytes_ = 0;
};

// One product of a call. Products with the same activations go into one call, which then rounds the activations once
// (q, k and v; gate and up).
struct MatMulOut {
  const Matrix* w = nullptr;
  float* y = nullptr;           // [n_rows, w->n_out()], rows y_stride apart
  int64_t y_stride = 0;         // in floats, >= w->n_out()
  const float* bias = nullptr;  // [n_out] or nullptr
  bool accumulate = false;      // add to y (residual connection)
};

struct MatMulArgs {
  const float* x = nullptr;  // [n_rows, n_in], rows x_stride apart
  int64_t x_stride = 0;      // in floats
  int64_t n_rows = 0, n_in = 0;
  std::span<const MatMulOut> outs;
  void* scratch = nullptr;  // Backend::MatMulScratchBytes(n_rows, n_in) bytes, 64-byte aligned
  // Weights of 16 bits (F16, BF16) may multiply as integers: they and x are rounded to 14 bits in blocks of 32 along k,
  // with an F32 scale a block (decision 39). For the 16-bit matrices of a quantised encoder, whose rows always come in
  // one call: how many there are decides whether a backend does it. Scratch is then
  // Backend::RoundedMatMulScratchBytes(n_rows, n_in).
  bool rounds_halfs = false;
};

// The checks every backend makes before it prepares a matrix: kCorrupt for a size outside 1 .. kMaxMatrixSide or rows
// that are not whole blocks, kUnsupported for a type that cannot hold weights, kInvalidArgument for missing data or a
// row order out of range. Messages name the tensor. Values are not checked.
inline constexpr int64_t kMaxMatrixSide = int64_t{1} << 28;  // keeps all byte counts far below 2^63
Status CheckMatrixSource(const MatrixSource& source);

inline constexpr int kQ8Block = 32;
// Blocks whose largest magnitude is smaller round to zero: 127 / largest must not overflow.
inline constexpr float kQ8Smallest = 0x1p-100f;
// Rounds n elements (a multiple of 32) to int8 with a scale per 32: q in [-127, 127], x ~ q * d. A block of zeros
// (below kQ8Smallest) gets d = 0 and q = 0, one with a NaN or an infinity d = NaN and q = 0, so that it is visible
// downstream.
void QuantizeRowQ8(const float* x, int64_t n, int8_t* q, float* d);

namespace ref {

// The scalar reference's matrix keeps the file's rows. Errors of CheckMatrixSource; kCorrupt for a weight that is NaN
// or infinite; kOverBudget.
Result<std::unique_ptr<Matrix>> PrepareMatrix(const MatrixSource& source, Ledger& ledger);
void MatMul(const MatMulArgs& args);
// out[i] = row ids[i] of the matrix, decoded. REQUIRES: 0 <= ids[i] < n_out.
void EmbedRows(const Matrix& table, const int32_t* ids, int64_t n, float* out);

}  // namespace ref
}  // namespace weir
