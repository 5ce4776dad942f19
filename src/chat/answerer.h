// SPDX-License-Identifier: Apache-2.0
// One answer, written token by token: logits, sampler, token, text, until something ends it.
//
// Drawing a token and reading it are two steps, so that the tokens of several answers can be read in one forward pass
// (engine/step_batch.h). Alone, an answer is
//
//     while (!answerer.done()) WEIR_RETURN_IF_ERROR(answerer.Step());
//     answerer.Finish();
//
// with text taken by TakeText() whenever the caller likes.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "base/clock.h"
#include "base/status.h"
#include "chat/logit_edits.h"
#include "chat/score.h"
#include "chat/stop_text.h"
#include "engine/session.h"
#include "text/sampler.h"
#include "text/stream.h"
#include "text/tokenizer.h"

namespace weir {

struct AnswerOptions {
  int64_t max_tokens = -1;    // -1: until the model ends its answer
  bool ignore_eos = false;    // go on after end-of-generation tokens
  bool show_special = false;  // control tokens appear in the text
  bool own_text = false;      // not the continuation of a text: a SentencePiece model's first space is dropped
  bool read_last = true;      // false: the last token is not read, because nothing comes after it
  int64_t t_src_ms = 0;       // of the tokens that are written
  LogitOptions logits;        // bias and penalties
  std::vector<std::string> stop_texts;  // the answer ends before the first of them
  int n_logprobs = -1;                  // alternatives beside the likelihood of every token; -1: no likelihoods
};

enum class StopReason { kEndOfGeneration, kMaxTokens, kStopped, kPotFull, kStopText };
const char* StopReasonName(StopReason reason);

class Answerer {
 public:
  // The session has read what is to be answered. All but the options outlive the object.
  Answerer(Session& session, Sampler& sampler, const Tokenizer& tokenizer, AnswerOptions options);

  // Nothing more is to be drawn.
  bool done() const { return reason_.has_value(); }
  // Draws the next token. True when the session is to read it (with append()), which Read() then reports; false when it
  // is the last and options.read_last is off. Errors of Session::Logits() and Sampler::Sample(). REQUIRES: !done().
  Result<bool> Draw();
  int32_t token() const { return token_; }
  Session::AppendOptions append() const;
  // How reading token() went. A pot that is full and may not forget ends the answer (kPotFull); any other error is
  // returned.
  Status Read(const Status& status);
  // Draw(), Session::Append() and Read().
  Status Step();
  // The caller wants no more: kStopped, unless the answer is done already.
  void Stop();
  // After the last token: a character whose last bytes never came, and what might have become a stop text, are text.
  void Finish();

  // What became certain since the last call: whole characters, and no beginning of a stop text.
  std::string TakeText();
  // With n_logprobs: one entry a token since the last call, the end token left out.
  std::vector<ScoredToken> TakeScored();

  int64_t n_drawn() const { return n_drawn_; }
  // REQUIRES: n_drawn() > 0.
  Clock::time_point first_token_at() const { return first_token_at_; }
  // Why it ended. REQUIRES: done().
  StopReason reason() const { return *reason_; }
  // By an end token or a stop text, not because of its length, its pot or its caller.
  bool ended() const { return ended_; }
  // The end token is part of the session.
  bool end_token_read() const { return end_token_read_; }
  // kPotFull: why the last token could not be read.
  const Status& full() const { return full_; }

 private:
  Result<int32_t> NextToken(std::span<float>* logits);
  bool IsEnd() const;

  Session& session_;
  Sampler& sampler_;
  const Tokenizer& tokenizer_;
  const AnswerOptions options_;
  LogitEdits edits_;
  StopText stop_text_;
  StreamDecoder decoder_;
  std::string text_;
  std::vector<ScoredToken> scored_;
  int32_t token_ = -1;
  int64_t n_drawn_ = 0;
  Clock::time_point first_token_at_;
  std::optional<StopReason> reason_;
  bool ended_ = false, stop_text_found_ = false, end_token_read_ = false;
  Status full_;
};

// The sampler's next token. Where its options allow, no more than the logits that decide leave the device. Errors of
// Session::Logits() and Sampler::Sample().
Result<int32_t> DrawToken(Session& session, Sampler& sampler);

}  // namespace weir
