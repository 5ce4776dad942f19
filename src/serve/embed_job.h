// SPDX-License-Identifier: Apache-2.0
// The embedding of a text: the mean of its rows' hidden states after the last norm, of length 1.
//
// The text is read in an answer pot like any prompt: of one that is longer than the pot, every row counts, each as the
// pot's policy let it see the text before it.
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "serve/api_error.h"
#include "serve/session_job.h"

namespace weir {

struct Embedding {
  std::vector<float> values;  // [n_embd]
  int64_t n_tokens = 0;
};

// The channel receives one event.
class EmbedJob : public SessionJob {
 public:
  // REQUIRES: !tokens.empty().
  EmbedJob(Host& host, std::vector<int32_t> tokens)
      : SessionJob(host, ""), n_tokens_(std::ssize(tokens)), tokens_(std::move(tokens)) {}
  Step Advance() override;
  void Finish() override;
  void Dropped(const Status& why) override { events.Push(why); }

  Channel<Result<Embedding>> events;

 private:
  Status ReadSome();

  const int64_t n_tokens_;
  std::vector<int32_t> tokens_;
  std::vector<double> sum_;
  bool begun_ = false;
  Status status_;
};

// The texts of a request, at most kMaxEmbedded of them: a string, a list of strings, token ids, or lists of them, as
// the OpenAI API has them. `key`: the field's name, for messages.
inline constexpr size_t kMaxEmbedded = 256;
Result<std::vector<std::vector<int32_t>>> EmbeddingInputs(const Host& host, const Json* input, const std::string& key);

// Embeds one text after another. http 0: *out has them. 503 when `wanted` returns false; 400 and
// context_length_exceeded for a text that does not fit into a pot that may not forget. Any thread but the engine's.
ApiError Embed(Host& host, std::vector<std::vector<int32_t>> texts, const std::function<bool()>& wanted,
               std::vector<Embedding>* out);

// What the values of n texts take until they are sent, as numbers and as text.
inline int64_t EmbeddingBytes(size_t n_texts, int64_t n_embd) {
  constexpr int64_t kOfNumber = 4, kOfText = 24;
  return static_cast<int64_t>(n_texts) * n_embd * (kOfNumber + kOfText);
}
// The values as a JSON array, and no longer as numbers.
std::string TakeValuesText(Embedding* embedding);

}  // namespace weir
