// SPDX-License-Identifier: Apache-2.0
#include "engine/session/drafter.h"

#include <fmt/core.h>
#include <algorithm>
#include <cmath>
#include <numeric>

namespace weir {
namespace {

constexpr int32_t kFirst = 4;     // tokens at the start of a stream that stay, as attention sinks
constexpr int64_t kMaxRows = 64;  // of a pass over what waits
constexpr int32_t kDefaultSlots = 1024;
constexpr int32_t kLargestPot = 1 << 20;

// Tokens that wait at most.
int64_t MostWaiting(const DraftPlan& plan) { return plan.pot.n_slots / 2; }

}  // namespace

Status Drafter::Check(const Model& draft) {
  const ModelConfig& config = draft.config();
  if (config.attention.n_state > 0) {
    return Unsupported("layers of {} keep a state, which cannot un-read a wrong guess: it cannot be a draft model",
                       config.architecture);
  }
  if (config.attention.has_axes()) {
    return Unsupported("positions of {} have three axes: it cannot be a draft model", config.architecture);
  }
  return Status();
}

Result<DraftPlan> Drafter::Plan(const DraftOptions& options) {
  DraftPlan out;
  if (options.model == nullptr) return out;
  const ModelConfig& config = options.model->config();
  if (options.most < 1 || options.most > 64 || options.least < 0 || options.least > options.most) {
    return InvalidArgument("a draft of {} to {} guesses: expected at least 0 to at most 64", options.least,
                           options.most);
  }
  if (!(options.sure >= 0 && options.sure <= 1)) {
    return InvalidArgument("a draft that is sure from {} on: expected 0 to 1", options.sure);
  }
  int32_t n_slots = options.pot_slots > 0 ? options.pot_slots : std::min(kDefaultSlots, config.n_ctx_train);
  if (const int32_t learned = config.attention.n_learned_positions; learned > 0) n_slots = std::min(n_slots, learned);
  // Half of it for what waits, the first tokens, the guesses, and something to look back on.
  const int32_t least = 4 * (options.most + kFirst);
  if (n_slots < least || n_slots > kLargestPot) {
    return InvalidArgument("a draft's pot of {} tokens: {} guesses at once need {} to {}", n_slots, options.most, least,
                           kLargestPot);
  }
  out.model = options.model;
  out.most = options.most;
  out.least = std::max(options.least, 1);
  out.sure = options.sure;
  out.pot = config.attention.pot();
  out.pot.n_slots = n_slots;
  out.runner = {.max_rows = kMaxRows, .max_slots = n_slots, .n_context = n_slots};
  return out;
}

void Drafter::LayOut(const Backend& backend, BufferSpace* space) {
  prediction_.LayOut(*plan_.model, backend, plan_.runner.max_rows, space);
  const int64_t n_ids = MostWaiting(plan_) + kFirst + 2 * plan_.most + plan_.pot.n_slots;
  space->Reserve(MemTag::kMeta, n_ids * static_cast<int64_t>(sizeof(int32_t)) +
                                    plan_.runner.max_rows * static_cast<int64_t>(sizeof(SlotMeta)));
}

std::vector<PlanItem> Drafter::Items(const Backend& backend, const DraftPlan& plan) {
  BufferSpace space;
  Drafter(plan).LayOut(backend, &space);
  return {
      {MemTag::kKv, fmt::format("draft: keys and values, {} slots", plan.pot.n_slots), Pot::KvBytes(plan.pot)},
      {MemTag::kMeta, "draft: metadata of the slots, rotary tables",
       Pot::MetaBytes(plan.pot) + Runner::MetaBytes(*plan.model, backend, plan.runner) + space.bytes(MemTag::kMeta)},
      {MemTag::kWorkspace, fmt::format("draft: activations and scratch, {} rows at once", plan.runner.max_rows),
       Runner::WorkspaceBytes(*plan.model, backend, plan.runner)},
      {MemTag::kLogits, "draft: logits and last hidden state", space.bytes(MemTag::kLogits)}};
}

Result<std::unique_ptr<Drafter>> Drafter::Make(const DraftPlan& plan, Backend& backend, Ledger& ledger) {
  std::unique_ptr<Drafter> out(new Drafter(plan));
  out->backend_ = &backend;
  WEIR_ASSIGN_OR_RETURN(out->pot_, Pot::Make(plan.pot, backend, ledger));
  WEIR_ASSIGN_OR_RETURN(out->runner_, Runner::Make(*plan.model, backend, plan.runner, ledger));
  out->space_ = BufferSpace(&backend, &ledger);
  out->LayOut(backend, &out->space_);
  WEIR_RETURN_IF_ERROR(out->space_.status());
  out->prediction_.Use(&backend, out->runner_.get());
  out->rows_.reserve(static_cast<size_t>(plan.runner.max_rows));
  out->first_.reserve(kFirst);
  out->waiting_.reserve(static_cast<size_t>(MostWaiting(plan)));
  out->ahead_.reserve(static_cast<size_t>(plan.most));
  out->guess_.reserve(static_cast<size_t>(plan.most));
  out->keep_.reserve(static_cast<size_t>(plan.pot.n_slots));
  return out;
}

void Drafter::Clear() {
  pot_->Clear();
  prediction_.Clear();
  first_.clear();
  waiting_.clear();
  ahead_.clear();
  n_came_ = 0;
  skipped_ = false;
  newest_ = -1;
  n_read_ = 0;
}

void Drafter::ForgetWrong() {
  pot_->DropLast(static_cast<int32_t>(ahead_.size() - n_came_));
  ahead_.clear();
  n_came_ = 0;
}

void Drafter::Push(std::span<const int32_t> tokens) {
  const int64_t most = MostWaiting(plan_);
  for (const int32_t id : tokens) {
    if (id < 0 || id >= plan_.model->config().n_vocab) continue;
    newest_ = id;
    if (first_.size() < kFirst) first_.push_back(id);
    if (n_came_ < ahead_.size()) {
      if (ahead_[n_came_] == id) {
        ++n_came_;
        continue;
      }
      ForgetWrong();
    }
    if (std::ssize(waiting_) == most) {
      waiting_.erase(waiting_.begin(), waiting_.begin() + most / 2);
      skipped_ = true;
    }
    waiting_.push_back(id);
  }
}

Status Drafter::MakeRoom(int64_t n) {
  if (pot_->n_free() >= n) return Status();
  const int32_t n_used = pot_->n_used();
  const auto n_new = static_cast<int32_t>(std::min<int64_t>(plan_.pot.n_slots / 2, plan_.pot.n_slots - kFirst - n));
  keep_.resize(static_cast<size_t>(kFirst + n_new));
  std::iota(keep_.begin(), keep_.begin() + kFirst, 0);
  std::iota(keep_.begin() + kFirst, keep_.end(), n_used - n_new);
  return pot_->Compact(0, keep_);
}

Status Drafter::Read(std::span<const int32_t> tokens) {
  while (!tokens.empty()) {
    const size_t n = std::min(tokens.size(), static_cast<size_t>(plan_.runner.max_rows));
    rows_.clear();
    for (const int32_t id : tokens.first(n)) rows_.push_back({.seq = n_read_++, .token_id = id});
    const BatchItem item = {.pot = pot_.get(), .tokens = rows_, .last_hidden_only = true};
    WEIR_ASSIGN_OR_RETURN(const float* hidden, runner_->Forward({&item, 1}));
    prediction_.Read(hidden + (static_cast<int64_t>(n) - 1) * plan_.model->config().n_embd);
    tokens = tokens.subspan(n);
  }
  return Status();
}

Status Drafter::CatchUp() {
  if (skipped_) {
    // What the pot holds ends before a gap; only the first tokens are of use.
    pot_->Clear();
    WEIR_RETURN_IF_ERROR(Read(first_));
    skipped_ = false;
  }
  WEIR_RETURN_IF_ERROR(MakeRoom(std::ssize(waiting_) + plan_.most));
  WEIR_RETURN_IF_ERROR(Read(waiting_));
  waiting_.clear();
  return Status();
}

Result<std::span<const int32_t>> Drafter::Guess(int64_t most) {
  guess_.clear();
  if (newest_ < 0) return std::span<const int32_t>(guess_);
  if (waiting_.empty() && !ahead_.empty()) {
    // The newest token was guessed, and more after it: its row is read again for its logits.
    ForgetWrong();
    pot_->DropLast(1);
    waiting_.push_back(newest_);
  }
  ForgetWrong();
  WEIR_RETURN_IF_ERROR(CatchUp());
  while (std::ssize(guess_) < std::min<int64_t>(most, plan_.most)) {
    if (!guess_.empty()) {  // the last guess is not read: nothing is guessed after it
      ahead_.push_back(guess_.back());
      WEIR_RETURN_IF_ERROR(Read({&ahead_.back(), 1}));
    }
    int32_t id = -1;
    float logit = 0;
    WEIR_RETURN_IF_ERROR(prediction_.MostLikely({&id, 1}, {&logit, 1}));
    WEIR_ASSIGN_OR_RETURN(const std::span<const float> logits, prediction_.Logits());
    if (std::exp(logit - backend_->LogSumExp(logits.data(), std::ssize(logits))) < plan_.sure) break;
    guess_.push_back(id);
  }
  return std::span<const int32_t>(guess_);
}

}  // namespace weir
