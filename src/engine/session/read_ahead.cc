// SPDX-License-Identifier: Apache-2.0
#include "engine/session/read_ahead.h"

#include <algorithm>

#include "kv/attend.h"

namespace weir {

int64_t GuessCount::Best(int n_same, int64_t most) const {
  // Losses are bounded whatever the estimates say.
  if (one_ == 0 || lost_ > 0.01 * total_ + 4 * one_) return 0;
  const double right = right_[static_cast<size_t>(n_same)];
  double tokens = 1, next = 1, best_rate = 1.02;  // not for a gain within the error of the estimates
  int64_t best = 0;
  for (int64_t n = 1; n <= most; ++n) {
    tokens += next *= right;
    const double rate = tokens / (1 + more_ * static_cast<double>(n));
    if (rate > best_rate) best_rate = rate, best = n;
  }
  return best;
}

void GuessCount::Took(double seconds, int n_same, int64_t n_guessed, int64_t n_right) {
  constexpr double kNew = 0.1;
  if (one_ > 0) seconds = std::min(seconds, 8 * one_);  // somebody else's pause
  total_ += seconds;
  if (n_guessed == 0) {
    one_ = one_ == 0 ? seconds : one_ + kNew * (seconds - one_);
    return;
  }
  lost_ += seconds - one_ * static_cast<double>(1 + n_right);
  more_ += kNew * (std::max(0.0, seconds / one_ - 1) / static_cast<double>(n_guessed) - more_);
  // Guesses after the first wrong one say nothing.
  double& right = right_[static_cast<size_t>(n_same)];
  for (int64_t i = 0; i < std::min(n_right + 1, n_guessed); ++i) right += kNew * ((i < n_right ? 1.0 : 0.0) - right);
}

void ReadAhead::LayOut(int64_t n_vocab, int64_t most, BufferSpace* space) {
  n_vocab_ = n_vocab;
  most_ = most;
  if (!enabled()) return;
  rows_logits_ = space->Floats(MemTag::kLogits, (1 + most) * n_vocab, Access::kDevice);
  space->Reserve(MemTag::kMeta, Lookup::Bytes() + most * static_cast<int64_t>(sizeof(int32_t)));
}

void ReadAhead::Use(SessionCore* core) {
  core_ = core;
  if (!enabled()) return;
  lookup_.Prepare();
  ahead_.reserve(static_cast<size_t>(most_));
}

bool ReadAhead::Holds(int32_t token) const {
  return taken_ < ahead_.size() && ahead_[taken_] == token && core_->stream.n_seen == next_seq_ &&
         core_->stream.n_selections == at_selection_;
}

void ReadAhead::ReadElsewhere(int32_t token) {
  if (!enabled()) return;
  lookup_.Push({&token, 1});
  Drop();
  step_began_.reset();
}

void ReadAhead::Drop() {
  ahead_.clear();
  taken_ = 0;
  logits_now_ = nullptr;
}

void ReadAhead::Restart() {
  Drop();
  lookup_.Clear();
  step_began_.reset();
  if (!enabled()) return;
  for (const SlotMeta& slot : core_->pot->meta(0)) lookup_.Push({&slot.token_id, 1});
}

int64_t ReadAhead::RowOf(const Chunk& chunk, const BatchItem& item) const {
  const bool plain = chunk.n == 1 && chunk.tokens != nullptr && chunk.generated && !chunk.pinned && !chunk.observed &&
                     item.evidence == nullptr && item.reads == nullptr && item.watch == nullptr;
  return plain && Holds(chunk.tokens[0]) ? static_cast<int64_t>(taken_) + 1 : -1;
}

void ReadAhead::EndStep() {
  if (!step_began_) return;
  count_.Took(SecondsSince(*step_began_), step_same_, step_guessed_, step_right_);
  step_began_.reset();
}

Result<const float*> ReadAhead::Read(const Chunk& chunk, const BatchItem& item, const TensorObserver* observer) {
  if (!enabled()) return core_->runner->Forward({&item, 1}, observer);
  if (chunk.tokens != nullptr) {
    lookup_.Push({chunk.tokens, static_cast<size_t>(chunk.n)});
  } else {
    const int32_t no_token = -1;
    lookup_.Push({&no_token, 1});
  }
  if (const int64_t row = RowOf(chunk, item); row > 0) {
    WEIR_RETURN_IF_ERROR(item.pot->BeginAppend(item.tokens));
    ++taken_;
    ++next_seq_;
    ++step_right_;
    ++n_taken_;
    logits_now_ = rows_logits_ + row * n_vocab_;
    return hidden_ + row * core_->model->config().n_embd;
  }
  Drop();
  const bool answers = chunk.n == 1 && chunk.generated;
  if (answers) {
    EndStep();
  } else {
    step_began_.reset();  // the time since the last token is somebody else's
  }
  Lookup::Guess guess;
  const bool alone = answers && item.evidence == nullptr && item.reads == nullptr && item.watch == nullptr &&
                     item.embeddings == nullptr && observer == nullptr && !chunk.pinned;
  if (alone) {
    // The token itself takes a slot, and the last one stays free: its row may vote. Windows make room for the same
    // tokens, too.
    guess = lookup_.Find(std::min({most_, int64_t{core_->n_free()} - 2, core_->pot->n_window_free() - 1}));
    if (!core_->options.always_guess) {
      guess.next = guess.next.first(static_cast<size_t>(count_.Best(guess.n_same, std::ssize(guess.next))));
    }
  }
  step_same_ = guess.n_same;
  step_guessed_ = std::ssize(guess.next);
  step_right_ = 0;
  const Clock::time_point began = Clock::now();
  const Result<const float*> hidden =
      guess.next.empty() ? core_->runner->Forward({&item, 1}, observer) : ReadWith(guess, item);
  if (answers && hidden.ok()) step_began_ = began;
  return hidden;
}

Result<const float*> ReadAhead::ReadWith(Lookup::Guess guess, const BatchItem& item) {
  const SlotMeta first = item.tokens.front();
  for (const int32_t id : guess.next) {
    SlotMeta row = first;
    row.seq = first.seq + std::ssize(core_->rows);
    row.token_id = id;
    core_->rows.push_back(row);
  }
  BatchItem wide = item;
  wide.tokens = core_->rows;
  wide.one_by_one = true;
  wide.last_hidden_only = false;
  const Result<const float*> hidden = core_->runner->Forward({&wide, 1});
  const auto n = static_cast<int32_t>(guess.next.size());
  core_->rows.resize(1);
  WEIR_RETURN_IF_ERROR(hidden.status());
  core_->pot->DropLast(n);  // their keys and values stay where they are
  core_->runner->Logits(*hidden, n + 1, rows_logits_);
  ahead_.assign(guess.next.begin(), guess.next.end());
  next_seq_ = first.seq + 1;
  at_selection_ = core_->stream.n_selections;
  n_guessed_ += n;
  hidden_ = *hidden;
  logits_now_ = rows_logits_;
  return *hidden;
}

}  // namespace weir
