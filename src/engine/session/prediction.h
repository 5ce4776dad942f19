// SPDX-License-Identifier: Apache-2.0
// The prediction of the next token: the last row's hidden state and, on demand, logits and likelihoods computed from
// it.
#pragma once

#include <cstdint>
#include <limits>
#include <span>
#include <vector>

#include "backend/backend.h"
#include "base/status.h"
#include "engine/buffer_space.h"
#include "engine/runner.h"
#include "model/architecture.h"

namespace weir {

class Prediction {
 public:
  // Lays out its memory, for chunks of up to max_rows. Call it first.
  void LayOut(const Model& model, const Backend& backend, int64_t max_rows, BufferSpace* space);
  // Sets what it runs on; both must outlive it.
  void Use(Backend* backend, Runner* runner);

  // Forgets the last row. `next_nll`: -log P of the next token, if known from an earlier pass.
  void Clear(float next_nll = std::numeric_limits<float>::infinity());
  // Takes the hidden state of the last row of a chunk, in memory of the backend.
  void Read(const float* hidden);

  // The logits, [n_vocab], computed if needed; kInvalidArgument if no row was read.
  Result<std::span<float>> Logits();
  // As Session::MostLikely().
  Status MostLikely(std::span<int32_t> ids, std::span<float> values);
  // Copies logits of a shared pass, in memory of the backend, so that they need not be computed again.
  void TakeLogits(const float* logits);
  // The last row's logits are already in this memory of the backend, which stays as it is until another row is read.
  void Offer(const float* logits) { offered_ = logits; }
  // -log P of each row of a chunk, before Read() takes its last one. `hidden` is that of all rows, in memory of the
  // backend. Each token predicts the next. Nothing predicts embeddings: theirs is 0. If no row predicts the first row,
  // its value is +inf, or for a token the value passed to Clear(). Valid until the next call.
  std::span<const float> TokenNll(std::span<const int32_t> tokens, const float* hidden, Normaliser normaliser);
  std::span<const float> EmbeddingNll(int64_t n);

  bool has_row() const { return has_row_; }
  bool has_logits() const { return has_logits_; }
  // [n_embd], of the last row. The host may read and write it after Backend::Synchronise().
  std::span<float> hidden() const { return {hidden_, static_cast<size_t>(n_embd_)}; }
  // Call after hidden() was written by the caller.
  void Restored(bool has_row) {
    has_row_ = has_row;
    has_logits_ = false;
    offered_ = nullptr;
  }

 private:
  Status MakeLogits();
  // Host memory of the logits, once computed.
  float* HostLogits();

  Backend* backend_ = nullptr;
  Runner* runner_ = nullptr;
  int64_t n_vocab_ = 0, n_embd_ = 0;
  float* logits_ = nullptr;       // [n_vocab]
  float* host_logits_ = nullptr;  // their copy on the host, if logits_ is on a device
  float* hidden_ = nullptr;       // [n_embd]
  const float* offered_ = nullptr;
  bool has_row_ = false, has_logits_ = false, has_host_logits_ = false;
  float next_nll_ = std::numeric_limits<float>::infinity();  // used if no row predicts the next token
  std::vector<int32_t> targets_;                             // of a chunk's rows
  std::vector<float> nll_;
};

}  // namespace weir
