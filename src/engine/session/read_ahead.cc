// SPDX-License-Identifier: Apache-2.0
#include "engine/session/read_ahead.h"

#include <algorithm>

#include "kv/attend.h"

namespace weir {

void ReadAhead::LayOut(int64_t n_vocab, const SessionPlan& plan, BufferSpace* space) {
  n_vocab_ = n_vocab;
  most_ = std::max(plan.max_guesses, plan.draft.most);
  if (!enabled()) return;
  rows_logits_ = space->Floats(MemTag::kLogits, (1 + most_) * n_vocab, Access::kDevice);
  space->Reserve(MemTag::kMeta, Lookup::Bytes() + most_ * static_cast<int64_t>(sizeof(int32_t)));
}

Status ReadAhead::Use(SessionCore* core) {
  core_ = core;
  if (!enabled()) return Status();
  lookup_.Prepare();
  ahead_.reserve(static_cast<size_t>(most_));
  if (core->plan.draft.model == nullptr) return Status();
  WEIR_ASSIGN_OR_RETURN(drafter_, Drafter::Make(core->plan.draft, *core->backend, core->ledger));
  return Status();
}

void ReadAhead::Follow(std::span<const int32_t> tokens) {
  lookup_.Push(tokens);
  if (drafter_ != nullptr) drafter_->Push(tokens);
}

bool ReadAhead::Holds(int32_t token) const {
  return taken_ < ahead_.size() && ahead_[taken_] == token && core_->stream.n_seen == next_seq_ &&
         core_->stream.n_selections == at_selection_;
}

void ReadAhead::Follow(const Chunk& chunk) {
  if (chunk.tokens != nullptr) return Follow({chunk.tokens, static_cast<size_t>(chunk.n)});
  const int32_t no_token = -1;
  Follow({&no_token, 1});
}

void ReadAhead::ReadElsewhere(const Chunk& chunk) {
  if (!enabled()) return;
  Follow(chunk);
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
  if (drafter_ != nullptr) drafter_->Clear();
  step_began_.reset();
  if (!enabled()) return;
  for (const SlotMeta& slot : core_->pot->meta(0)) Follow({&slot.token_id, 1});
}

int64_t ReadAhead::RowOf(const Chunk& chunk, const BatchItem& item) const {
  const bool plain = chunk.n == 1 && chunk.tokens != nullptr && chunk.generated && !chunk.pinned && !chunk.observed &&
                     item.evidence == nullptr && item.reads == nullptr && item.watch == nullptr;
  return plain && Holds(chunk.tokens[0]) ? static_cast<int64_t>(taken_) + 1 : -1;
}

void ReadAhead::EndStep() {
  if (!step_began_) return;
  step_.seconds = step_.draft_seconds + SecondsSince(*step_began_);
  count_.Took(step_);
  step_began_.reset();
}

Result<std::span<const int32_t>> ReadAhead::FindGuess(int64_t most) {
  Lookup::Guess found = lookup_.Find(std::min<int64_t>(core_->plan.max_guesses, most));
  if (drafter_ != nullptr && found.n_same < 2) found.next = {};  // the draft knows better
  if (!core_->options.always_guess) {
    found.next = found.next.first(static_cast<size_t>(count_.Best(found.n_same, found.votes, std::ssize(found.next))));
  }
  step_.n_same = found.n_same;
  step_.votes = found.votes;
  if (!found.next.empty() || drafter_ == nullptr) return found.next;
  const DraftPlan& plan = core_->plan.draft;
  most = std::min<int64_t>(most, plan.most);
  if (!core_->options.always_guess) most = count_.BestDraft(most);
  if (most < plan.least) return found.next;
  // A prompt is read once; the rule counts what follows.
  if (drafter_->n_waiting() > 2 * plan.most) WEIR_RETURN_IF_ERROR(drafter_->CatchUp());
  const Clock::time_point began = Clock::now();
  WEIR_ASSIGN_OR_RETURN(std::span<const int32_t> guess, drafter_->Guess(most));
  step_.draft_seconds = SecondsSince(began);
  step_.n_same = GuessCount::kDraft;
  step_.votes = Lookup::Votes::kOne;
  // A padded vocabulary may be longer than the model's.
  guess = guess.first(
      static_cast<size_t>(std::ranges::find_if(guess, [&](int32_t id) { return id >= n_vocab_; }) - guess.begin()));
  if (std::ssize(guess) < plan.least) guess = {};
  n_drafted_ += std::ssize(guess);
  return guess;
}

Result<const float*> ReadAhead::Read(const Chunk& chunk, const BatchItem& item, const TensorObserver* observer) {
  if (!enabled()) return core_->runner->Forward({&item, 1}, observer);
  Follow(chunk);
  if (const int64_t row = RowOf(chunk, item); row > 0) {
    WEIR_RETURN_IF_ERROR(item.pot->BeginAppend(item.tokens));
    ++taken_;
    ++next_seq_;
    ++step_.n_right;
    ++n_taken_;
    n_drafted_taken_ += step_.n_same == GuessCount::kDraft;
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
  const bool alone = answers && item.evidence == nullptr && item.reads == nullptr && item.watch == nullptr &&
                     item.embeddings == nullptr && observer == nullptr && !chunk.pinned;
  std::span<const int32_t> guess;
  step_ = {};
  if (alone) {
    // The token itself takes a slot, and the last one stays free: its row may vote. Windows make room for the same
    // tokens, too.
    const int64_t room = std::min({most_, int64_t{core_->n_free()} - 2, core_->pot->n_window_free() - 1});
    WEIR_ASSIGN_OR_RETURN(guess, FindGuess(room));
  }
  step_.n_guessed = std::ssize(guess);
  const Clock::time_point began = Clock::now();
  const Result<const float*> hidden =
      guess.empty() ? core_->runner->Forward({&item, 1}, observer) : ReadWith(guess, item);
  if (answers && hidden.ok()) step_began_ = began;
  return hidden;
}

Result<const float*> ReadAhead::ReadWith(std::span<const int32_t> guess, const BatchItem& item) {
  const SlotMeta first = item.tokens.front();
  for (const int32_t id : guess) {
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
  const auto n = static_cast<int32_t>(guess.size());
  core_->rows.resize(1);
  WEIR_RETURN_IF_ERROR(hidden.status());
  core_->pot->DropLast(n);  // their keys and values stay where they are
  core_->runner->Logits(*hidden, n + 1, rows_logits_);
  ahead_.assign(guess.begin(), guess.end());
  next_seq_ = first.seq + 1;
  at_selection_ = core_->stream.n_selections;
  n_guessed_ += n;
  hidden_ = *hidden;
  logits_now_ = rows_logits_;
  return *hidden;
}

}  // namespace weir
