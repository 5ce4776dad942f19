// SPDX-License-Identifier: Apache-2.0
#include "chat/answerer.h"

#include <algorithm>
#include <utility>

#include "base/clock.h"

namespace weir {
namespace {

StreamDecoder::Options DecoderOptions(const AnswerOptions& options) {
  StreamDecoder::Options out;
  out.show_special = options.show_special;
  out.at_start = options.own_text;
  return out;
}

}  // namespace

const char* StopReasonName(StopReason reason) {
  switch (reason) {
    case StopReason::kEndOfGeneration:
      return "end";
    case StopReason::kMaxTokens:
      return "length";
    case StopReason::kStopped:
      return "stopped";
    case StopReason::kPotFull:
      return "pot_full";
    case StopReason::kStopText:
      return "stop_text";
  }
  return "?";
}

Result<int32_t> DrawToken(Session& session, Sampler& sampler) {
  const int32_t n = std::min(sampler.n_deciding(), session.model().config().n_vocab);
  if (n == 0 || n > kMaxTopLogits) {
    WEIR_ASSIGN_OR_RETURN(const std::span<float> logits, session.Logits());
    return sampler.Sample(logits);
  }
  int32_t ids[kMaxTopLogits];
  float logits[kMaxTopLogits];
  const size_t size = static_cast<size_t>(n);
  WEIR_RETURN_IF_ERROR(session.MostLikely({ids, size}, {logits, size}));
  return sampler.SampleMostLikely({ids, size}, {logits, size});
}

Answerer::Answerer(Session& session, Sampler& sampler, const Tokenizer& tokenizer, AnswerOptions options)
    : session_(session),
      sampler_(sampler),
      tokenizer_(tokenizer),
      options_(std::move(options)),
      edits_(options_.logits),
      stop_text_(options_.stop_texts),
      decoder_(tokenizer, DecoderOptions(options_)) {
  if (options_.max_tokens == 0) reason_ = StopReason::kMaxTokens;
}

bool Answerer::IsEnd() const { return tokenizer_.IsEndOfGeneration(token_) && !options_.ignore_eos; }

Result<int32_t> Answerer::NextToken(std::span<float>* logits) {
  if (edits_.empty() && options_.n_logprobs < 0) return DrawToken(session_, sampler_);
  WEIR_ASSIGN_OR_RETURN(*logits, session_.Logits());
  edits_.Apply(*logits);
  const auto drawn = sampler_.Sample(*logits);
  edits_.Undo(*logits);  // log-likelihoods are the model's, without bias and penalties
  return drawn;
}

Result<bool> Answerer::Draw() {
  std::span<float> logits;  // empty unless all of them are needed
  WEIR_ASSIGN_OR_RETURN(token_, NextToken(&logits));
  if (n_drawn_++ == 0) first_token_at_ = Clock::now();
  const bool end = IsEnd();
  if (!end) {
    edits_.Accept(token_);
    if (options_.n_logprobs >= 0) scored_.push_back(ScoreToken(logits, token_, options_.n_logprobs));
  }
  if (n_drawn_ == options_.max_tokens) reason_ = StopReason::kMaxTokens;
  if (end) reason_ = StopReason::kEndOfGeneration;
  if (!end || options_.show_special) {
    std::string text;
    decoder_.Push(token_, &text);
    stop_text_found_ = stop_text_.Push(text, &text_);
    if (stop_text_found_) reason_ = StopReason::kStopText;
  }
  ended_ = reason_ == StopReason::kEndOfGeneration || reason_ == StopReason::kStopText;
  sampler_.Accept(token_);
  return options_.read_last || !done();
}

Session::AppendOptions Answerer::append() const {
  Session::AppendOptions append;
  append.generated = true;
  append.t_src_ms = options_.t_src_ms;
  return append;
}

Status Answerer::Read(const Status& status) {
  if (status.code() == StatusCode::kOverBudget) {
    reason_ = StopReason::kPotFull;
    full_ = status;
    return Status();
  }
  WEIR_RETURN_IF_ERROR(status);
  end_token_read_ = IsEnd();
  return Status();
}

Status Answerer::Step() {
  WEIR_ASSIGN_OR_RETURN(const bool reads, Draw());
  return reads ? Read(session_.Append({&token_, 1}, append())) : Status();
}

void Answerer::Stop() {
  if (!done()) reason_ = StopReason::kStopped;
}

void Answerer::Finish() {
  if (stop_text_found_) return;
  std::string rest;
  decoder_.Finish(&rest);
  if (stop_text_.Push(rest, &text_)) {
    ended_ = true;
  } else {
    stop_text_.Finish(&text_);
  }
}

std::string Answerer::TakeText() { return std::exchange(text_, {}); }
std::vector<ScoredToken> Answerer::TakeScored() { return std::exchange(scored_, {}); }

}  // namespace weir
