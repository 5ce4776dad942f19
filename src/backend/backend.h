// SPDX-License-Identifier: Apache-2.0
// Backend: a device's memory and its version of every operation.
//
// The contracts are in ops/: one header an op, with its scalar reference. A backend overrides what it does better; what
// it does not override runs the reference on host memory, so a missing kernel is slow, never fatal. Nothing above this
// header knows which backend runs.
//
// Memory: what operations read and write comes from Allocate() or, once and for all, from Upload() and PrepareMatrix()
// (docs/decisions/0008-memory-of-a-device.md). Operations may still be running when their call returns; they run in the
// order of their calls. Plain host memory, read before the call returns and written when it returns, are only: ids of
// EmbedRows(), targets and nll of HeadNll(), lists of slots, windows and pointers of attention and CompactSlots(),
// ids and values of TopLogits(), and logits of LogSumExp().
//
// Threads: a Backend may be used by one caller at a time (its workers are its own).
#pragma once

#include <cstdint>
#include <memory>
#include <string>

#include "base/ledger.h"
#include "base/memory.h"
#include "base/status.h"
#include "ops/attention.h"
#include "ops/column_scores.h"
#include "ops/elementwise.h"
#include "ops/frame_novelty.h"
#include "ops/full_attention.h"
#include "ops/kv_slots.h"
#include "ops/matmul.h"
#include "ops/nll.h"
#include "ops/rope.h"
#include "ops/rotate.h"
#include "ops/squares.h"
#include "ops/top_logits.h"
#include "ops/vector_scores.h"

namespace weir {

// Who touches an allocation besides operations.
enum class Access {
  kDevice,  // nobody: bytes come and go by Backend::Copy()
  kShared,  // the host too, between Synchronise() and the next operation on it; for what is small and often looked at
};

// How a device was given its forward passes (Backend::BeginPass()); for tests and measurements.
struct PassCounts {
  int64_t plain = 0;     // operation by operation, of those that were held back
  int64_t built = 0;     // as a graph made for the pass
  int64_t replayed = 0;  // as a graph that had done another pass
  int64_t updated = 0;   // operations of replayed graphs that were not as before
  int64_t failed = 0;    // graphs that the device refused; their passes are plain
};

class Backend {
 public:
  virtual ~Backend() = default;

  virtual std::string name() const = 0;  // "cpu (AVX3_DL, 2 threads)"
  virtual int n_threads() const { return 1; }
  // False for a backend that only counts bytes (engine/plan_backend.h): nothing may run on it.
  virtual bool can_run() const { return true; }

  // True when operations read and write any memory of the host, and are done when their call returns.
  virtual bool on_host() const { return true; }
  // Zeroed memory for operations, PageRound(bytes) reserved in `ledger` before it exists. Errors as
  // HostBuffer::Allocate() has them. The backend outlives it.
  virtual Result<Buffer> Allocate(Ledger& ledger, MemTag tag, int64_t bytes, Access access);
  // A copy of n_bytes of the host that operations may read; empty, and nothing reserved, when they read the original
  // (on_host()).
  Result<Buffer> Upload(Ledger& ledger, MemTag tag, const void* data, int64_t n_bytes);
  // Bytes Upload() reserves.
  int64_t UploadBytes(int64_t n_bytes) const { return on_host() ? 0 : PageRound(n_bytes); }
  // Copies in order with the operations, from and to any memory; ranges may overlap. Plain host memory as source may be
  // reused, and as target is filled, when the call returns.
  virtual void Copy(void* to, const void* from, int64_t n_bytes);
  // Returns when everything asked for is done.
  virtual void Synchronise() {}
  // Hints around a forward pass of n_rows: a device may hold operations back until EndPass(), to be given them in one
  // go. Synchronise(), and a Copy() from or to plain host memory, send them before. Every BeginPass() is followed by
  // one EndPass().
  virtual void BeginPass(int64_t /*n_rows*/) {}
  virtual void EndPass() {}
  virtual PassCounts pass_counts() const { return {}; }
  // The device's first failure, for good: what was computed since means nothing. Known after Synchronise().
  virtual Status status() const { return Status(); }
  // Memory that Allocate() can still give.
  virtual int64_t AvailableBytes() const { return AvailableHostBytes(); }

  // Prepares a weight matrix; its bytes are reserved in `ledger` under kWeights before they exist. kUnsupported names
  // the type, kOverBudget has figures.
  virtual Result<std::unique_ptr<Matrix>> PrepareMatrix(const MatrixSource& source, Ledger& ledger);

  // Bytes PrepareMatrix() would reserve for a checked source.
  virtual int64_t MatrixBytes(const MatrixSource& source) const;

  virtual void MatMul(const MatMulArgs& args) { ref::MatMul(args); }
  virtual void EmbedRows(const Matrix& table, const int32_t* ids, int64_t n, float* out) {
    ref::EmbedRows(table, ids, n, out);
  }
  virtual void RmsNorm(const RmsNormArgs& args) { ref::RmsNorm(args); }
  virtual void LayerNorm(const LayerNormArgs& args) { ref::LayerNorm(args); }
  virtual void Gelu(const GeluArgs& args) { ref::Gelu(args); }
  virtual void Relu(const ReluArgs& args) { ref::Relu(args); }
  virtual void SwiGlu(const SwiGluArgs& args) { ref::SwiGlu(args); }
  virtual void GeGlu(const GeGluArgs& args) { ref::GeGlu(args); }
  virtual void SoftCap(const SoftCapArgs& args) { ref::SoftCap(args); }
  virtual void Add(const AddArgs& args) { ref::Add(args); }
  virtual void Scale(const ScaleArgs& args) { ref::Scale(args); }
  virtual void SumRows(const SumRowsArgs& args) { ref::SumRows(args); }
  virtual void Squares(const SquaresArgs& args) { ref::Squares(args); }
  // cos, sin: [pos.size(), n_rot/2], as weir::RopeAngles() has them; `pos` is host memory.
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
  // backend may take the scores from the weights it has at hand. All share one scratch.
  virtual void AttentionWithScores(const AttentionArgs& args, std::span<const ColumnScoresArgs> scores);
  // One entry per head; a backend may spread them over its workers.
  virtual void VectorScores(std::span<const VectorScoresArgs> args);
  virtual void FrameNovelty(const FrameNoveltyArgs& args) { ref::FrameNovelty(args); }
  virtual void TopLogits(const TopLogitsArgs& args) { ref::TopLogits(args); }
  // log(sum exp(logits)), for the likelihood of a token whose logits are already there.
  virtual float LogSumExp(const float* logits, int64_t n) { return ref::LogSumExp(logits, n); }

  // Scratch the ops above need for their largest call (what the reference needs, unless overridden).
  virtual int64_t MatMulScratchBytes(int64_t max_rows, int64_t max_in) const;
  virtual int64_t NllScratchBytes(int64_t max_rows, int64_t max_in) const;
  virtual int64_t TopLogitsScratchBytes(int64_t n) const;
  virtual int64_t AttentionScratchBytes(const AttentionShape& shape) const;
  virtual int64_t ColumnScoresScratchBytes(const AttentionShape& shape) const;
  // At least what Attention() and ColumnScores() need.
  virtual int64_t AttentionWithScoresScratchBytes(const AttentionShape& shape) const;
  virtual int64_t FullAttentionScratchBytes(int64_t n_heads, int64_t head_dim, int64_t max_kv) const;
};

// The scalar reference end to end: slow, single-threaded, obviously right.
std::unique_ptr<Backend> MakeRefBackend();
// SIMD with run-time dispatch. n_threads 0: one per usable core.
std::unique_ptr<Backend> MakeCpuBackend(int n_threads = 0);
// The first CUDA device. kUnsupported, saying why, when this build has no CUDA (WEIR_CUDA) or the machine no device for
// it. What the backend itself holds on the device is reserved in `ledger`, which outlives it. Without `graphs`, passes
// of few rows are launched operation by operation as others are; for comparisons.
Result<std::unique_ptr<Backend>> MakeCudaBackend(Ledger& ledger, bool graphs = true);

}  // namespace weir
