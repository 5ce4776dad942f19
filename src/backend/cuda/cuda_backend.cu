// SPDX-License-Identifier: Apache-2.0
#include "backend/cuda/cuda_backend.h"

#include <fmt/core.h>
#include <string>

#include "backend/cuda/attention.h"
#include "backend/cuda/elementwise.h"
#include "backend/cuda/experts.h"
#include "backend/cuda/frame_novelty.h"
#include "backend/cuda/full_attention.h"
#include "backend/cuda/kv_slots.h"
#include "backend/cuda/matmul.h"
#include "backend/cuda/nll.h"
#include "backend/cuda/recurrent.h"
#include "backend/cuda/scenes.h"
#include "backend/cuda/top_logits.h"

namespace weir {
namespace WEIR_GPU {
namespace {

class DeviceBackend final : public Backend {
 public:
  DeviceBackend(std::unique_ptr<Device> device, std::unique_ptr<Library> library)
      : device_(std::move(device)), library_(std::move(library)) {}

  std::string name() const override { return fmt::format("{} ({})", WEIR_GPU_NAME, device_->name()); }
  bool on_host() const override { return false; }

  Result<Buffer> Allocate(Ledger& ledger, MemTag tag, int64_t bytes, Access access) override {
    return device_->Allocate(ledger, tag, bytes, access);
  }
  void Copy(void* to, const void* from, int64_t n_bytes) override { device_->Copy(to, from, n_bytes); }
  void Synchronise() override { device_->Synchronise(); }
  void BeginPass(int64_t n_rows) override { device_->BeginPass(n_rows); }
  void EndPass() override { device_->EndPass(); }
  PassCounts pass_counts() const override { return device_->stream().counts(); }
  Status status() const override { return device_->stream().status(); }
  int64_t AvailableBytes() const override { return device_->AvailableBytes(); }

  Result<std::unique_ptr<Matrix>> PrepareMatrix(const MatrixSource& source, Ledger& ledger) override {
    return DeviceMatrix::Make(*device_, source, ledger);
  }
  int64_t MatrixBytes(const MatrixSource& source) const override {
    return PageRound(DeviceMatrix::PackedBytes(source.type, source.n_out, source.n_in));
  }
  void MatMul(const MatMulArgs& args) override { WEIR_GPU::MatMul(*device_, *library_, args); }
  void GroupedMatMul(const GroupedMatMulArgs& args) override { WEIR_GPU::GroupedMatMul(*device_, *library_, args); }
  void GatherRows(const GatherRowsArgs& args) override { WEIR_GPU::GatherRows(*device_, args); }
  void ScatterAddRows(const ScatterAddRowsArgs& args) override { WEIR_GPU::ScatterAddRows(*device_, args); }
  void GateRows(const GateRowsArgs& args) override { WEIR_GPU::GateRows(*device_, args); }
  void EmbedRows(const Matrix& table, const int32_t* ids, int64_t n, float* out) override {
    WEIR_GPU::EmbedRows(*device_, table, ids, n, out);
  }
  void RmsNorm(const RmsNormArgs& args) override { WEIR_GPU::RmsNorm(*device_, args); }
  void LayerNorm(const LayerNormArgs& args) override { WEIR_GPU::LayerNorm(*device_, args); }
  void Gelu(const GeluArgs& args) override { WEIR_GPU::Gelu(*device_, args); }
  void Relu(const ReluArgs& args) override { WEIR_GPU::Relu(*device_, args); }
  void SwiGlu(const SwiGluArgs& args) override { WEIR_GPU::SwiGlu(*device_, args); }
  void ClampedSwiGlu(const ClampedSwiGluArgs& args) override { WEIR_GPU::ClampedSwiGlu(*device_, args); }
  void GeGlu(const GeGluArgs& args) override { WEIR_GPU::GeGlu(*device_, args); }
  void SoftCap(const SoftCapArgs& args) override { WEIR_GPU::SoftCap(*device_, args); }
  void Add(const AddArgs& args) override { WEIR_GPU::Add(*device_, args); }
  void Mul(const MulArgs& args) override { WEIR_GPU::Mul(*device_, args); }
  void SigmoidGate(const SigmoidGateArgs& args) override { WEIR_GPU::SigmoidGate(*device_, args); }
  void CausalConv(const CausalConvArgs& args) override { WEIR_GPU::CausalConv(*device_, args); }
  void DeltaRule(const DeltaRuleArgs& args) override { WEIR_GPU::DeltaRule(*device_, args); }
  void SsmScan(const SsmScanArgs& args) override { WEIR_GPU::SsmScan(*device_, args); }
  void Scale(const ScaleArgs& args) override { WEIR_GPU::Scale(*device_, args); }
  void Clamp(const ClampArgs& args) override { WEIR_GPU::Clamp(*device_, args); }
  void SumRows(const SumRowsArgs& args) override { WEIR_GPU::SumRows(*device_, args); }
  void Squares(const SquaresArgs& args) override { WEIR_GPU::Squares(*device_, args); }
  void Rotate(const RotateArgs& args) override { WEIR_GPU::Rotate(*device_, args); }
  void RopeAngles(const RopeTable& table, std::span<const int64_t> pos, float* cos, float* sin) override {
    WEIR_GPU::RopeAngles(*device_, table, pos, cos, sin);
  }
  void HeadNll(const NllArgs& args) override { WEIR_GPU::HeadNll(*device_, *library_, args); }
  void StoreSlots(std::span<const StoreSlotsArgs> args) override { WEIR_GPU::StoreSlots(*device_, args); }
  void CompactSlots(std::span<const CompactSlotsArgs> args) override { WEIR_GPU::CompactSlots(*device_, args); }
  void Attention(const AttentionArgs& args) override { WEIR_GPU::Attention(*device_, args); }
  void ColumnScores(const ColumnScoresArgs& args) override { WEIR_GPU::ColumnScores(*device_, args); }
  void AttentionWithScores(const AttentionArgs& args, std::span<const ColumnScoresArgs> scores) override {
    WEIR_GPU::AttentionWithScores(*device_, args, scores);
  }
  void VectorScores(std::span<const VectorScoresArgs> args) override { WEIR_GPU::VectorScores(*device_, args); }
  void Scenes(std::span<const ScenesArgs> args) override { WEIR_GPU::Scenes(*device_, args); }
  void FrameNovelty(const FrameNoveltyArgs& args) override { WEIR_GPU::FrameNovelty(*device_, args); }
  void FullAttention(const FullAttentionArgs& args) override { WEIR_GPU::FullAttention(*device_, args); }
  void FullAttentionWeights(const FullAttentionWeightsArgs& args) override {
    WEIR_GPU::FullAttentionWeights(*device_, args);
  }
  void TopLogits(const TopLogitsArgs& args) override { WEIR_GPU::TopLogits(*device_, args); }

  int64_t MatMulScratchBytes(int64_t max_rows, int64_t max_in) const override {
    return ActivationBytes(max_rows, max_in);
  }
  int64_t NllScratchBytes(int64_t max_rows, int64_t max_in) const override {
    return WEIR_GPU::NllScratchBytes(max_rows, max_in);
  }
  int64_t TopLogitsScratchBytes(int64_t n) const override { return WEIR_GPU::TopLogitsScratchBytes(n); }
  int64_t AttentionScratchBytes(const AttentionShape& shape) const override {
    return WEIR_GPU::AttentionScratchBytes(shape);
  }
  int64_t ColumnScoresScratchBytes(const AttentionShape& shape) const override {
    return WEIR_GPU::ColumnScoresScratchBytes(shape);
  }

 private:
  std::unique_ptr<Device> device_;
  std::unique_ptr<Library> library_;  // freed first
};

}  // namespace

Result<std::unique_ptr<Backend>> MakeBackend(Ledger& ledger, bool graphs) {
  WEIR_ASSIGN_OR_RETURN(std::unique_ptr<Device> device, Device::Open(ledger, graphs));
  WEIR_ASSIGN_OR_RETURN(std::unique_ptr<Library> library, Library::Make(*device, ledger));
  return std::unique_ptr<Backend>(std::make_unique<DeviceBackend>(std::move(device), std::move(library)));
}

}  // namespace WEIR_GPU

#ifdef __CUDACC__
Result<std::unique_ptr<Backend>> MakeCudaBackend(Ledger& ledger, bool graphs) {
  return cuda::MakeBackend(ledger, graphs);
}
#endif

}  // namespace weir
