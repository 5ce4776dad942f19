// SPDX-License-Identifier: Apache-2.0
// Negative log-likelihood of given next tokens, without storing n_rows x vocabulary logits: projection, log-sum-exp and
// gather are fused over tiles of the vocabulary.
//
//   nll[r] = log(sum_v exp(z[r, v])) - z[r, target[r]],  z[r, v] = sum_k x[r, k] * head[v, k]
//
// The "NLL" signal of the pot methods (InfiniPot section 3.3, SirLLM) and of perplexity.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstdint>

#include "ops/matmul.h"

namespace weir {

// What the normaliser, the sum over the vocabulary, is formed of.
enum class Normaliser {
  kNone,  // no likelihoods
  // An estimate: frequent tokens, which have the low ids, count once each, and a sample of the others many times; the
  // target is always exact. It takes a seventh of the work; docs/results/policy-cost.md has the error. A
  // backend may form the exact sum instead, where that takes little time.
  kSampled,
  kExact,
};

// The vocabulary in tiles of kSize ids, or a sample of them: all ids below n_first(), and of the tiles behind them one
// in kEvery. A vocabulary below kSmallest is never sampled.
class NllTiles {
 public:
  static constexpr int64_t kSize = 128;
  static constexpr int64_t kEvery = 16;
  static constexpr int64_t kSmallest = 16384;

  NllTiles(int64_t n_vocab, Normaliser normaliser) : n_vocab_(n_vocab), n_first_(n_vocab) {
    if (normaliser == Normaliser::kSampled && n_vocab >= kSmallest) n_first_ = n_vocab / 12 / kSize * kSize;
    n_first_tiles_ = (n_first_ + kSize - 1) / kSize;
    n_tiles_ = n_first_tiles_ + (n_vocab_ - n_first_) / kSize / kEvery;
    if (n_tiles_ > n_first_tiles_) {
      log_weight_ =
          std::log(static_cast<float>(n_vocab_ - n_first_) / static_cast<float>((n_tiles_ - n_first_tiles_) * kSize));
    }
  }
  int64_t n_tiles() const { return n_tiles_; }
  // Of tile 0 <= t < n_tiles(): its first id, how many it has, and the logarithm of how often each counts.
  int64_t first_id(int64_t t) const {
    return t < n_first_tiles_ ? t * kSize : n_first_ + ((t - n_first_tiles_) * kEvery + kEvery / 2) * kSize;
  }
  int64_t n_ids(int64_t t) const { return std::min(kSize, n_vocab_ - first_id(t)); }
  float log_weight(int64_t t) const { return t < n_first_tiles_ ? 0 : log_weight_; }
  // An id that is not in the sum, or not exactly: as a target it is added to it, and left out of its tile.
  bool sampled(int64_t id) const { return id >= n_first_; }

 private:
  int64_t n_vocab_, n_first_, n_first_tiles_, n_tiles_;
  float log_weight_ = 0;
};

struct NllArgs {
  const float* x = nullptr;  // [n_rows, n_in], contiguous: hidden states after the final norm
  int64_t n_rows = 0, n_in = 0;
  const Matrix* head = nullptr;                // [n_vocab, n_in]
  const float* bias = nullptr;                 // [n_vocab] or nullptr
  float softcap = 0;                           // > 0: z = softcap * tanh(z / softcap)
  const int32_t* target = nullptr;             // [n_rows]; -1 = none, then nll[r] is 0. REQUIRES: < n_vocab
  Normaliser normaliser = Normaliser::kExact;  // REQUIRES: not kNone
  float* nll = nullptr;                        // [n_rows]
  void* scratch = nullptr;                     // Backend::NllScratchBytes(n_rows, n_in) bytes, 64-byte aligned
};

namespace ref {
void HeadNll(const NllArgs& args);
float LogSumExp(const float* logits, int64_t n);  // REQUIRES: n > 0
}  // namespace ref
}  // namespace weir
