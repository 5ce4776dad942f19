// SPDX-License-Identifier: Apache-2.0
// Matrices whose products are multiplied by a number that a file has beside them, as NVFP4's second scale:
//
//   y[r, o] = scale * sum_k x[r, k] * w[o, k] (+ bias[o]) (+ y[r, o])
//
// A stack (ops/grouped_matmul.h) has a number for each of its matrices. The wrapper holds the matrix that a backend
// prepared; a backend on the host looks for wrappers before a product and hands them to the functions below. They may
// be the weights of MatMul() and GroupedMatMul() alone: no tables of embeddings, no heads.
#pragma once

#include <functional>
#include <memory>
#include <span>
#include <utility>
#include <vector>

#include "base/ledger.h"
#include "ops/grouped_matmul.h"
#include "ops/matmul.h"

namespace weir {

class ScaledMatrix final : public Matrix {
 public:
  // Finite positive numbers, one or one for each matrix of the stack; `reservation` is for their bytes.
  ScaledMatrix(std::unique_ptr<Matrix> inner, std::vector<float> scales, Reservation reservation)
      : Matrix(inner->type(), inner->n_out(), inner->n_in()),
        inner_(std::move(inner)),
        scales_(std::move(scales)),
        reservation_(std::move(reservation)) {
    bytes_ = inner_->bytes();
  }
  const Matrix& inner() const { return *inner_; }
  // Of matrix number `matrix` of n that the rows are divided into: of the stack, or of parts of its matrices.
  // REQUIRES: n is a multiple of the number of scales.
  float scale(int64_t matrix = 0, int64_t n = 1) const {
    return scales_[static_cast<size_t>(matrix * std::ssize(scales_) / n)];
  }

 private:
  std::unique_ptr<Matrix> inner_;
  std::vector<float> scales_;
  Reservation reservation_;
};

// Whether a call has a wrapper among its weights.
bool HasScales(std::span<const MatMulOut> outs);
bool HasScales(std::span<const StackedOut> outs);
// Such a call, computed by `product`, which gets none. All memory is the host's.
void MatMulWithScales(const MatMulArgs& args, const std::function<void(const MatMulArgs&)>& product);
void GroupedMatMulWithScales(const GroupedMatMulArgs& args,
                             const std::function<void(const GroupedMatMulArgs&)>& product);

}  // namespace weir
