// SPDX-License-Identifier: Apache-2.0
// A backend that allocates nothing: it only counts the bytes that another backend would use. Loading a model through it
// binds and checks every tensor and fills the ledger, in milliseconds and without the memory.
#pragma once

#include <memory>
#include <string>
#include <utility>

#include "backend/backend.h"

namespace weir {

class PlanBackend : public Backend {
 public:
  explicit PlanBackend(std::unique_ptr<Backend> real) : real_(std::move(real)) {}
  std::string name() const override { return real_->name(); }
  bool can_run() const override { return false; }
  bool on_host() const override { return real_->on_host(); }
  // Reserves the bytes without allocating memory.
  Result<Buffer> Allocate(Ledger& ledger, MemTag tag, int64_t bytes, Access) override {
    WEIR_ASSIGN_OR_RETURN(Reservation reservation, ledger.Reserve(tag, PageRound(bytes)));
    return Buffer(nullptr, std::move(reservation), nullptr, [](void*, uint8_t*) {});
  }
  void Copy(void*, const void*, int64_t) override {}
  int n_threads() const override { return real_->n_threads(); }

  Result<std::unique_ptr<Matrix>> PrepareMatrix(const MatrixSource& source, Ledger& ledger) override {
    WEIR_RETURN_IF_ERROR(CheckMatrixSource(source));
    WEIR_ASSIGN_OR_RETURN(Reservation reservation, ledger.Reserve(MemTag::kWeights, real_->MatrixBytes(source)));
    return std::unique_ptr<Matrix>(new SizeOnly(source, std::move(reservation)));
  }
  int64_t MatrixBytes(const MatrixSource& source) const override { return real_->MatrixBytes(source); }
  int64_t MatMulScratchBytes(int64_t max_rows, int64_t max_in) const override {
    return real_->MatMulScratchBytes(max_rows, max_in);
  }
  int64_t RoundedMatMulScratchBytes(int64_t max_rows, int64_t max_in) const override {
    return real_->RoundedMatMulScratchBytes(max_rows, max_in);
  }
  int64_t NllScratchBytes(int64_t max_rows, int64_t max_in) const override {
    return real_->NllScratchBytes(max_rows, max_in);
  }
  int64_t TopLogitsScratchBytes(int64_t n) const override { return real_->TopLogitsScratchBytes(n); }
  int64_t AttentionScratchBytes(const AttentionShape& shape) const override {
    return real_->AttentionScratchBytes(shape);
  }
  int64_t FullAttentionScratchBytes(int64_t n_heads, int64_t head_dim, int64_t max_kv) const override {
    return real_->FullAttentionScratchBytes(n_heads, head_dim, max_kv);
  }
  int64_t AttentionWithScoresScratchBytes(const AttentionShape& shape) const override {
    return real_->AttentionWithScoresScratchBytes(shape);
  }
  int64_t ColumnScoresScratchBytes(const AttentionShape& shape) const override {
    return real_->ColumnScoresScratchBytes(shape);
  }

 private:
  class SizeOnly : public Matrix {
   public:
    SizeOnly(const MatrixSource& source, Reservation reservation)
        : Matrix(source.type, source.n_out, source.n_in), reservation_(std::move(reservation)) {
      bytes_ = reservation_.bytes();
    }

   private:
    Reservation reservation_;
  };
  std::unique_ptr<Backend> real_;
};

}  // namespace weir
