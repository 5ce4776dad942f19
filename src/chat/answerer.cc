// SPDX-License-Identifier: Apache-2.0
#include "chat/answerer.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <utility>

#include "base/clock.h"
#include "text/forms/form.h"

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

Result<int32_t> DrawAllowed(Sampler& sampler, std::span<const float> logits, std::span<const uint64_t> allowed) {
  struct Candidate {
    float logit;
    int32_t id;
  };
  const auto before = [](const Candidate& a, const Candidate& b) {
    return a.logit != b.logit ? a.logit > b.logit : a.id < b.id;
  };
  // Only the largest decide, as a rule; up to twice as many are collected before the smaller ones are dropped.
  const auto n = static_cast<size_t>(sampler.n_deciding());
  std::vector<Candidate> best;
  float least = -INFINITY;
  for (size_t word = 0; word < allowed.size(); ++word) {
    for (uint64_t bits = allowed[word]; bits != 0; bits &= bits - 1) {
      const size_t id = word * 64 + static_cast<size_t>(std::countr_zero(bits));
      if (id >= logits.size()) break;
      const float logit = logits[id];
      if (!std::isfinite(logit)) {  // which the sampler reports
        const auto bad = static_cast<int32_t>(id);
        return sampler.SampleMostLikely({&bad, 1}, {&logit, 1});
      }
      if (logit < least) continue;
      best.push_back({logit, static_cast<int32_t>(id)});
      if (n > 0 && best.size() >= 2 * n + 64) {
        std::nth_element(best.begin(), best.begin() + static_cast<ptrdiff_t>(n) - 1, best.end(), before);
        best.resize(n);
        least = best.back().logit;
      }
    }
  }
  if (best.empty()) return InvalidArgument("no token is allowed here");
  std::sort(best.begin(), best.end(), before);
  if (n > 0 && best.size() > n) best.resize(n);
  std::vector<int32_t> ids;
  std::vector<float> largest;
  for (const Candidate& c : best) {
    ids.push_back(c.id);
    largest.push_back(c.logit);
  }
  return sampler.SampleMostLikely(ids, largest);
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
  if (options_.form != nullptr) {
    form_ = std::make_shared<FormState>(options_.form, options_.own_text && tokenizer.has_space_prefix());
    if (!options_.form_begun.empty()) begun_ = form_->AcceptText(options_.form_begun);
  }
}

Result<int32_t> Answerer::NextToken(std::span<float>* logits) {
  Result<int32_t> drawn = int32_t{-1};
  if (form_ == nullptr && edits_.empty() && options_.n_logprobs < 0) {
    drawn = DrawToken(session_, sampler_);
  } else {
    WEIR_ASSIGN_OR_RETURN(*logits, session_.Logits());
    edits_.Apply(*logits);
    drawn = form_ == nullptr ? sampler_.Sample(*logits) : NextOfForm(*logits);
    edits_.Undo(*logits);  // log-likelihoods are the model's, without bias and penalties
  }
  if (form_ == nullptr && drawn.ok()) end_ = tokenizer_.IsEndOfGeneration(*drawn) && !options_.ignore_eos;
  return drawn;
}

Result<int32_t> Answerer::NextOfForm(std::span<float> logits) {
  WEIR_RETURN_IF_ERROR(begun_);
  WEIR_ASSIGN_OR_RETURN(const std::shared_ptr<const TokenMask> mask, form_->Mask());
  allowed_ = mask->bits;
  allowed_.resize((logits.size() + 63) / 64, 0);
  const bool may_end = form_->CanEnd() && (!options_.ignore_eos || mask->n_allowed == 0);
  if (may_end) {
    for (const int32_t id : tokenizer_.end_of_generation_ids()) {
      if (static_cast<size_t>(id) < logits.size()) allowed_[static_cast<size_t>(id) / 64] |= uint64_t{1} << (id % 64);
    }
  }
  if (mask->n_allowed == 0 && !may_end) {
    return Unsupported("the answer nests deeper than its form can be held");
  }
  WEIR_ASSIGN_OR_RETURN(const int32_t token, DrawAllowed(sampler_, logits, allowed_));
  // A form may name an end token as part of itself.
  end_ = may_end && tokenizer_.IsEndOfGeneration(token) && !mask->Allows(token);
  if (!end_) WEIR_RETURN_IF_ERROR(form_->Accept(token));
  return token;
}

Result<bool> Answerer::Draw() {
  std::span<float> logits;  // empty unless all of them are needed
  WEIR_ASSIGN_OR_RETURN(token_, NextToken(&logits));
  if (n_drawn_++ == 0) first_token_at_ = Clock::now();
  if (!end_) {
    edits_.Accept(token_);
    if (options_.n_logprobs >= 0) scored_.push_back(ScoreToken(logits, token_, options_.n_logprobs));
  }
  if (n_drawn_ == options_.max_tokens) reason_ = StopReason::kMaxTokens;
  // A form that is whole, where there is no token to end it with.
  const bool whole = form_ != nullptr && form_->MustEnd() && tokenizer_.end_of_generation_ids().empty();
  if (end_ || whole) reason_ = StopReason::kEndOfGeneration;
  const bool shown = std::binary_search(shown_.begin(), shown_.end(), token_);
  if (!end_ || options_.show_special) {
    std::string text;
    if (shown && !options_.show_special) {
      decoder_.Finish(&text);  // a character that was begun stays broken
      text += tokenizer_.TokenBytes(token_, /*show_special=*/true);
    } else {
      decoder_.Push(token_, &text);
    }
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
  end_token_read_ = end_;
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
