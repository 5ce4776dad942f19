// SPDX-License-Identifier: Apache-2.0
// What a question asks for, as the model's attention sees it: the mean of its query vectors in every layer that stores
// keys, and head, before rotation, beside those of a question without content (QRHead, arXiv 2506.09944, subtracts
// them).
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <string_view>
#include <vector>

#include "base/ledger.h"
#include "base/memory.h"
#include "base/status.h"
#include "engine/session.h"
#include "recall/block_vectors.h"
#include "text/tokenizer.h"

namespace weir {

struct QuestionVectors {
  // A query head of a layer that stores.
  struct Head {
    int32_t layer = 0, dim = 0;
    int64_t kv = 0;     // the head of `shape` whose keys it is for
    int64_t first = 0;  // its place in the vectors
  };
  VectorShape shape;
  std::vector<Head> heads;                   // layers outermost
  float scale = 0;                           // of a product of query and key
  std::span<const float> question, nothing;  // of all heads
  std::span<float> scratch;                  // four for each head, for a selector
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

  std::vector<int32_t> blocks_;  // numbers of the model's blocks that attend, ascending: as they are met
  std::vector<int32_t> layers_;  // of each: its first of vectors_.heads, or -1 if it stores no keys
  HostBuffer memory_;
  QuestionVectors vectors_;
  std::span<float> question_, nothing_;  // in memory_, before the scratch
};

}  // namespace weir
