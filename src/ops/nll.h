// SPDX-License-Identifier: Apache-2.0
// Negative log-likelihood of given next tokens, without storing n_rows x vocabulary logits: projection, log-sum-exp and
// gather are fused over tiles of the vocabulary.
//
//   nll[r] = log(sum_v exp(z[r, v])) - z[r, target[r]],  z[r, v] = sum_k x[r, k] * head[v, k]
//
// The "NLL" signal of the pot methods (InfiniPot section 3.3, SirLLM) and of perplexity.
#pragma once

#include <cstdint>

#include "ops/matmul.h"

namespace weir {

struct NllArgs {
  const float* x = nullptr;  // [n_rows, n_in], contiguous: hidden states after the final norm
  int64_t n_rows = 0, n_in = 0;
  const Matrix* head = nullptr;     // [n_vocab, n_in]
  const float* bias = nullptr;      // [n_vocab] or nullptr
  float softcap = 0;                // > 0: z = softcap * tanh(z / softcap)
  const int32_t* target = nullptr;  // [n_rows]; -1 = none, then nll[r] is 0. REQUIRES: < n_vocab
  float* nll = nullptr;             // [n_rows]
  void* scratch = nullptr;          // Backend::NllScratchBytes(n_rows, n_in) bytes, 64-byte aligned
};

namespace ref {
void HeadNll(const NllArgs& args);
float LogSumExp(const float* logits, int64_t n);  // REQUIRES: n > 0
}  // namespace ref
}  // namespace weir
