// SPDX-License-Identifier: Apache-2.0
#include <fmt/core.h>
#include <memory>
#include <string>

#include "backend/backend.h"
#include "backend/cpu/attention.h"
#include "backend/cpu/attention_with_scores.h"
#include "backend/cpu/column_scores.h"
#include "backend/cpu/elementwise.h"
#include "backend/cpu/experts.h"
#include "backend/cpu/full_attention.h"
#include "backend/cpu/grouped_matmul.h"
#include "backend/cpu/kv_slots.h"
#include "backend/cpu/matmul.h"
#include "backend/cpu/nll.h"
#include "backend/cpu/pack.h"
#include "backend/cpu/recurrent.h"
#include "backend/cpu/vector_scores.h"
#include "backend/packed_file.h"
#include "backend/simd.h"
#include "base/memory.h"
#include "base/threads.h"
#include "ops/scaled_matrix.h"

namespace weir {
namespace {

class CpuBackend final : public Backend {
 public:
  CpuBackend(int n_threads, PackedFile* packed) : pool_(n_threads), packed_(packed) {}

  std::string name() const override {
    return fmt::format("cpu ({}, {} thread{})", SimdLevel(), pool_.n_threads(), pool_.n_threads() == 1 ? "" : "s");
  }
  int n_threads() const override { return pool_.n_threads(); }

  Result<std::unique_ptr<Matrix>> PrepareMatrix(const MatrixSource& source, Ledger& ledger) override {
    return cpu::PackedMatrix::Make(source, ledger, pool_, nullptr, packed_);
  }
  int64_t MatrixBytes(const MatrixSource& source) const override {
    return PageRound(cpu::PackedMatrix::PackedBytes(source.type, source.n_out, source.n_in));
  }
  void MatMul(const MatMulArgs& args) override {
    if (!HasScales(args.outs)) return cpu::MatMul(args, pool_);
    MatMulWithScales(args, [this](const MatMulArgs& inner) { cpu::MatMul(inner, pool_); });
  }
  void GroupedMatMul(const GroupedMatMulArgs& args) override {
    if (!HasScales(args.outs)) return cpu::GroupedMatMul(args, pool_);
    GroupedMatMulWithScales(args, [this](const GroupedMatMulArgs& inner) { cpu::GroupedMatMul(inner, pool_); });
  }
  void GatherRows(const GatherRowsArgs& args) override { cpu::GatherRows(args, pool_); }
  void ScatterAddRows(const ScatterAddRowsArgs& args) override { cpu::ScatterAddRows(args, pool_); }
  void EmbedRows(const Matrix& table, const int32_t* ids, int64_t n, float* out) override {
    cpu::EmbedRows(table, ids, n, out, pool_);
  }
  void RmsNorm(const RmsNormArgs& args) override { cpu::RmsNorm(args, pool_); }
  void LayerNorm(const LayerNormArgs& args) override { cpu::LayerNorm(args, pool_); }
  void Gelu(const GeluArgs& args) override { cpu::Gelu(args, pool_); }
  void Relu(const ReluArgs& args) override { cpu::Relu(args, pool_); }
  void Clamp(const ClampArgs& args) override { cpu::Clamp(args, pool_); }
  void SwiGlu(const SwiGluArgs& args) override { cpu::SwiGlu(args, pool_); }
  void ClampedSwiGlu(const ClampedSwiGluArgs& args) override { cpu::ClampedSwiGlu(args, pool_); }
  void GeGlu(const GeGluArgs& args) override { cpu::GeGlu(args, pool_); }
  void SoftCap(const SoftCapArgs& args) override { cpu::SoftCap(args, pool_); }
  void SigmoidGate(const SigmoidGateArgs& args) override { cpu::SigmoidGate(args, pool_); }
  void CausalConv(const CausalConvArgs& args) override { cpu::CausalConv(args, pool_); }
  void DeltaRule(const DeltaRuleArgs& args) override { cpu::DeltaRule(args, pool_); }
  void SsmScan(const SsmScanArgs& args) override { cpu::SsmScan(args, pool_); }
  void HeadNll(const NllArgs& args) override { cpu::HeadNll(args, pool_); }
  void StoreSlots(std::span<const StoreSlotsArgs> args) override { cpu::StoreSlots(args, pool_); }
  void CompactSlots(std::span<const CompactSlotsArgs> args) override { cpu::CompactSlots(args, pool_); }
  void Attention(const AttentionArgs& args) override { cpu::Attention(args, pool_); }
  void FullAttention(const FullAttentionArgs& args) override { cpu::FullAttention(args, pool_); }
  void ColumnScores(const ColumnScoresArgs& args) override { cpu::ColumnScores(args, pool_); }
  void AttentionWithScores(const AttentionArgs& args, std::span<const ColumnScoresArgs> scores) override {
    cpu::AttentionWithScores(args, scores, pool_);
  }
  void VectorScores(std::span<const VectorScoresArgs> args) override { cpu::VectorScores(args, pool_); }
  void Scenes(std::span<const ScenesArgs> args) override {
    pool_.For(std::ssize(args), [&](int64_t i, int) { ref::Scenes(args[i]); });
  }
  float LogSumExp(const float* logits, int64_t n) override { return cpu::LogSumExp(logits, n); }

  int64_t MatMulScratchBytes(int64_t max_rows, int64_t max_in) const override {
    return cpu::MatMulScratchBytes(max_rows, max_in);
  }
  int64_t RoundedMatMulScratchBytes(int64_t max_rows, int64_t max_in) const override {
    return cpu::RoundedMatMulScratchBytes(max_rows, max_in);
  }
  int64_t NllScratchBytes(int64_t max_rows, int64_t max_in) const override {
    return cpu::NllScratchBytes(max_rows, max_in, pool_.n_threads());
  }
  int64_t AttentionScratchBytes(const AttentionShape& shape) const override {
    return cpu::AttentionScratchBytes(shape, pool_.n_threads());
  }
  int64_t ColumnScoresScratchBytes(const AttentionShape& shape) const override {
    return cpu::ColumnScoresScratchBytes(shape, pool_.n_threads());
  }
  int64_t AttentionWithScoresScratchBytes(const AttentionShape& shape) const override {
    return cpu::AttentionWithScoresScratchBytes(shape, pool_.n_threads());
  }
  int64_t FullAttentionScratchBytes(int64_t n_heads, int64_t head_dim, int64_t max_kv) const override {
    return cpu::FullAttentionScratchBytes(n_heads, head_dim, max_kv, pool_.n_threads());
  }

 private:
  ThreadPool pool_;
  PackedFile* const packed_;
};

}  // namespace

std::unique_ptr<Backend> MakeCpuBackend(int n_threads) { return MakeCpuBackend(n_threads, nullptr); }
std::unique_ptr<Backend> MakeCpuBackend(int n_threads, PackedFile* packed) {
  return std::make_unique<CpuBackend>(n_threads, packed);
}

}  // namespace weir
