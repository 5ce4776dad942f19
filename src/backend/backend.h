// SPDX-License-Identifier: Apache-2.0
// Backend: a device's memory and its version of every operation.
//
// The contracts are in ops/: one header an op, with its scalar reference. A backend overrides the operations it has
// kernels for; the others run the reference on host memory, so a missing kernel is slow, never fatal. Code above this
// header does not know which backend runs.
//
// Memory: operations read and write memory from Allocate() and read memory from Upload() and PrepareMatrix()
// (docs/decisions/0008-memory-of-a-device.md). Operations may still be running when their call returns; they run in the
// order of their calls. Only these are plain host memory, read before the call returns and written when it returns: ids
// of EmbedRows(), rows and weights of GatherRows() and ScatterAddRows(), all of Route(), targets and nll of HeadNll(),
// lists of slots, windows and pointers of attention and CompactSlots(), ids and values of TopLogits(), and logits of
// LogSumExp().
//
// Threads: a Backend has its own workers and may be used by one caller at a time.
#pragma once

#include <cstdint>
#include <memory>
#include <string>

#include "base/ledger.h"
#include "base/memory.h"
#include "base/status.h"
#include "ops/attention.h"
#include "ops/causal_conv.h"
#include "ops/column_scores.h"
#include "ops/delta_rule.h"
#include "ops/elementwise.h"
#include "ops/experts.h"
#include "ops/frame_novelty.h"
#include "ops/full_attention.h"
#include "ops/grouped_matmul.h"
#include "ops/kv_slots.h"
#include "ops/matmul.h"
#include "ops/nll.h"
#include "ops/rope.h"
#include "ops/rotate.h"
#include "ops/scenes.h"
#include "ops/squares.h"
#include "ops/ssm_scan.h"
#include "ops/top_logits.h"
#include "ops/vector_scores.h"

namespace weir {

// Access to an allocation besides operations.
enum class Access {
  kDevice,  // none: only Backend::Copy() reads or writes it
  kShared,  // the host too, between Synchronise() and the next operation on it; for small data that is often read
};

// How a device received its forward passes (Backend::BeginPass()); for tests and measurements.
struct PassCounts {
  int64_t plain = 0;     // recorded, then launched operation by operation
  int64_t built = 0;     // as a graph made for the pass
  int64_t replayed = 0;  // as a graph that was made for an earlier pass
  int64_t updated = 0;   // updated operations in replayed graphs
  int64_t failed = 0;    // graphs that the device rejected; their passes are launched piece by piece
};

class Backend {
 public:
  virtual ~Backend() = default;

  virtual std::string name() const = 0;  // "cpu (AVX3_DL, 2 threads)"
  virtual int n_threads() const { return 1; }
  // False for a backend that only counts bytes (engine/plan_backend.h): it cannot run operations.
  virtual bool can_run() const { return true; }

  // True when operations can read and write any host memory, and are done when their call returns.
  virtual bool on_host() const { return true; }
  // Zeroed memory for operations, PageRound(bytes) reserved in `ledger` before it is allocated. Errors as
  // HostBuffer::Allocate(). The backend outlives it.
  virtual Result<Buffer> Allocate(Ledger& ledger, MemTag tag, int64_t bytes, Access access);
  // A copy of n_bytes of host memory that operations may read; empty, and nothing reserved, when they can read the
  // original (on_host()).
  Result<Buffer> Upload(Ledger& ledger, MemTag tag, const void* data, int64_t n_bytes);
  // Bytes Upload() reserves.
  int64_t UploadBytes(int64_t n_bytes) const { return on_host() ? 0 : PageRound(n_bytes); }
  // Copies in order with the operations, from and to any memory; ranges may overlap. A source in plain host memory may
  // be reused, and a target in it is filled, when the call returns.
  virtual void Copy(void* to, const void* from, int64_t n_bytes);
  // Returns when all submitted work is done.
  virtual void Synchronise() {}
  // Hints around a forward pass of n_rows: a device may hold operations back until EndPass() and submit them together.
  // Synchronise(), and a Copy() from or to plain host memory, submit them earlier. Every BeginPass() is followed by one
  // EndPass().
  virtual void BeginPass(int64_t /*n_rows*/) {}
  virtual void EndPass() {}
  virtual PassCounts pass_counts() const { return {}; }
  // The device's first failure, permanently: all results computed since are invalid. Known after Synchronise().
  virtual Status status() const { return Status(); }
  // Memory that Allocate() can still provide.
  virtual int64_t AvailableBytes() const { return AvailableHostBytes(); }

  // Prepares a weight matrix; its bytes are reserved in `ledger` under kWeights before they are allocated. kUnsupported
  // names the type, kOverBudget has figures.
  virtual Result<std::unique_ptr<Matrix>> PrepareMatrix(const MatrixSource& source, Ledger& ledger);

  // Bytes PrepareMatrix() would reserve for a checked source.
  virtual int64_t MatrixBytes(const MatrixSource& source) const;

  virtual void MatMul(const MatMulArgs& args) { ref::MatMul(args); }
  virtual void GroupedMatMul(const GroupedMatMulArgs& args) { ref::GroupedMatMul(args); }
  virtual void Route(const RouteArgs& args) { ref::Route(args); }
  virtual void GatherRows(const GatherRowsArgs& args) { ref::GatherRows(args); }
  virtual void ScatterAddRows(const ScatterAddRowsArgs& args) { ref::ScatterAddRows(args); }
  virtual void GateRows(const GateRowsArgs& args) { ref::GateRows(args); }
  virtual void EmbedRows(const Matrix& table, const int32_t* ids, int64_t n, float* out) {
    ref::EmbedRows(table, ids, n, out);
  }
  virtual void RmsNorm(const RmsNormArgs& args) { ref::RmsNorm(args); }
  virtual void LayerNorm(const LayerNormArgs& args) { ref::LayerNorm(args); }
  virtual void Gelu(const GeluArgs& args) { ref::Gelu(args); }
  virtual void Relu(const ReluArgs& args) { ref::Relu(args); }
  virtual void SwiGlu(const SwiGluArgs& args) { ref::SwiGlu(args); }
  virtual void ClampedSwiGlu(const ClampedSwiGluArgs& args) { ref::ClampedSwiGlu(args); }
  virtual void GeGlu(const GeGluArgs& args) { ref::GeGlu(args); }
  virtual void SoftCap(const SoftCapArgs& args) { ref::SoftCap(args); }
  virtual void Add(const AddArgs& args) { ref::Add(args); }
  virtual void Mul(const MulArgs& args) { ref::Mul(args); }
  virtual void SigmoidGate(const SigmoidGateArgs& args) { ref::SigmoidGate(args); }
  virtual void CausalConv(const CausalConvArgs& args) { ref::CausalConv(args); }
  virtual void DeltaRule(const DeltaRuleArgs& args) { ref::DeltaRule(args); }
  virtual void SsmScan(const SsmScanArgs& args) { ref::SsmScan(args); }
  virtual void Scale(const ScaleArgs& args) { ref::Scale(args); }
  virtual void Clamp(const ClampArgs& args) { ref::Clamp(args); }
  virtual void SumRows(const SumRowsArgs& args) { ref::SumRows(args); }
  virtual void Squares(const SquaresArgs& args) { ref::Squares(args); }
  // cos, sin: [pos.size(), n_rot/2], as in weir::RopeAngles(); `pos` is host memory.
  virtual void RopeAngles(const RopeTable& table, std::span<const int64_t> pos, float* cos, float* sin) {
    weir::RopeAngles(table, pos.data(), std::ssize(pos), cos, sin);
  }
  virtual void Rotate(const RotateArgs& args) { ref::Rotate(args); }
  virtual void HeadNll(const NllArgs& args) { ref::HeadNll(args); }
  // One entry per head; a backend may spread them over its workers.
  virtual void StoreSlots(std::span<const StoreSlotsArgs> args);
  virtual void CompactSlots(std::span<const CompactSlotsArgs> args);
  virtual void Attention(const AttentionArgs& args) { ref::Attention(args); }
  virtual void FullAttention(const FullAttentionArgs& args) { ref::FullAttention(args); }
  virtual void FullAttentionWeights(const FullAttentionWeightsArgs& args) { ref::FullAttentionWeights(args); }
  virtual void ColumnScores(const ColumnScoresArgs& args) { ref::ColumnScores(args); }
  // Attention(args), then ColumnScores() of some of its segments: scores[i].attention is `args` with one segment. A
  // backend may compute the scores from the attention weights. All share one scratch.
  virtual void AttentionWithScores(const AttentionArgs& args, std::span<const ColumnScoresArgs> scores);
  // One entry per head; a backend may spread them over its workers.
  virtual void VectorScores(std::span<const VectorScoresArgs> args);
  // One entry per head, too.
  virtual void Scenes(std::span<const ScenesArgs> args);
  virtual void FrameNovelty(const FrameNoveltyArgs& args) { ref::FrameNovelty(args); }
  virtual void TopLogits(const TopLogitsArgs& args) { ref::TopLogits(args); }
  // log(sum exp(logits)), for the likelihood of a token whose logits are already computed.
  virtual float LogSumExp(const float* logits, int64_t n) { return ref::LogSumExp(logits, n); }

  // Scratch that the ops above need for their largest call (the reference's, unless overridden).
  virtual int64_t MatMulScratchBytes(int64_t max_rows, int64_t max_in) const;
  // With MatMulArgs::rounds_halfs; as much as without, unless overridden.
  virtual int64_t RoundedMatMulScratchBytes(int64_t max_rows, int64_t max_in) const;
  virtual int64_t NllScratchBytes(int64_t max_rows, int64_t max_in) const;
  virtual int64_t TopLogitsScratchBytes(int64_t n) const;
  virtual int64_t AttentionScratchBytes(const AttentionShape& shape) const;
  virtual int64_t ColumnScoresScratchBytes(const AttentionShape& shape) const;
  // At least the scratch of Attention() and ColumnScores().
  virtual int64_t AttentionWithScoresScratchBytes(const AttentionShape& shape) const;
  virtual int64_t FullAttentionScratchBytes(int64_t n_heads, int64_t head_dim, int64_t max_kv) const;
};

// The scalar reference for everything: slow, single-threaded, simple.
std::unique_ptr<Backend> MakeRefBackend();
// SIMD with run-time dispatch. n_threads 0: one per usable core.
std::unique_ptr<Backend> MakeCpuBackend(int n_threads = 0);
// The first CUDA device. kUnsupported, saying why, when this build has no CUDA (WEIR_CUDA) or the machine no suitable
// device. The backend's own device memory is reserved in `ledger`, which outlives it. Without `graphs`, passes of few
// rows are also launched operation by operation, for comparisons.
Result<std::unique_ptr<Backend>> MakeCudaBackend(Ledger& ledger, bool graphs = true);

}  // namespace weir
