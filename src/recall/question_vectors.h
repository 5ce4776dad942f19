// SPDX-License-Identifier: Apache-2.0
// What a question asks for, as the model's attention sees it: the mean of its query vectors in every layer and head,
// before rotation, beside those of a question without content (QRHead, arXiv 2506.09944, subtracts them).
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <string_view>

#include "base/ledger.h"
#include "base/memory.h"
#include "base/status.h"
#include "engine/session.h"
#include "recall/block_vectors.h"
#include "text/tokenizer.h"

namespace weir {

struct QuestionVectors {
  VectorShape shape;
  int32_t n_heads = 0;                       // query heads of a layer
  float scale = 0;                           // of a product of query and key
  std::span<const float> question, nothing;  // [n_layers, n_heads, head_dim]
  std::span<float> scratch;                  // [n_layers, n_heads, 4], for a selector
};

class QuestionReader {
 public:
  static int64_t MemoryBytes(const AttentionLayout& layout);
  static Result<std::unique_ptr<QuestionReader>> Make(const Session& session, const VectorShape& shape, Ledger& ledger);

  // Reads the question, or its end, on top of the pot and takes it back. Errors of Session::Append(). REQUIRES: no
  // excerpt is held.
  Status Read(Session& session, const Tokenizer& tokenizer, std::string_view question);
  const QuestionVectors& vectors() const { return vectors_; }

 private:
  Status Mean(Session& session, std::span<const int32_t> tokens, std::span<float> out);

  HostBuffer memory_;
  QuestionVectors vectors_;
  std::span<float> question_, nothing_;  // in memory_, before the scratch
};

}  // namespace weir
