// Backend: a device's memory and its version of every operation.
//
// The contracts are in ops/: one header an op, with its scalar reference. A backend overrides what it does better; what
// it does not override runs the reference on host memory, so a missing kernel is slow, never fatal. Nothing above this
// header knows which backend runs.
//
// Threads: a Backend may be used by one caller at a time (its workers are its own).
#pragma once

#include <cstdint>
#include <memory>
#include <string>

#include "base/ledger.h"
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
#include "ops/vector_scores.h"

namespace weir {

class Backend {
 public:
  virtual ~Backend() = default;

  virtual std::string name() const = 0;     // "cpu (AVX3_DL, 2 threads)"
  virtual int n_threads() const { return 1; }
  // False for a backend that only counts bytes (engine/plan_backend.h): nothing may run on it.
  virtual bool can_run() const { return true; }

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
  // log(sum exp(logits)), for the likelihood of a token whose logits are already there.
  virtual float LogSumExp(const float* logits, int64_t n) { return ref::LogSumExp(logits, n); }

  // Scratch the ops above need for their largest call (what the reference needs, unless overridden).
  virtual int64_t MatMulScratchBytes(int64_t max_rows, int64_t max_in) const;
  virtual int64_t NllScratchBytes(int64_t max_rows, int64_t max_in) const;
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

}  // namespace weir
