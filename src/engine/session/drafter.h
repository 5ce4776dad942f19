// SPDX-License-Identifier: Apache-2.0
// Guesses what comes next in a stream by a draft model (speculative decoding: Leviathan et al. 2023; Chen et al. 2023):
// a smaller model that follows the stream in a pot of its own and continues it greedily for as long as it is sure.
//
// The draft reads late: tokens wait until a guess is wanted, then it reads them in one pass. Its pot keeps the first
// tokens and the newest ones (StreamingLLM, Xiao et al. 2023), so that a long prompt costs it no more than its pot.
// Rows of pictures are left out. What it holds decides nothing but how often guesses are right: it is not saved, and a
// stream that was restored begins with the text that the session's pot still holds.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "engine/buffer_space.h"
#include "engine/runner.h"
#include "engine/session/prediction.h"
#include "engine/session_plan.h"
#include "kv/store.h"

namespace weir {

class Drafter {
 public:
  // kUnsupported where layers keep a state, which cannot un-read a guess, or positions have three axes.
  static Status Check(const Model& draft);
  // The shapes for these options; kInvalidArgument for options that are out of range.
  static Result<DraftPlan> Plan(const DraftOptions& options);
  // Every byte of a planned draft.
  static std::vector<PlanItem> Items(const Backend& backend, const DraftPlan& plan);
  // REQUIRES: a plan of a model. `backend` and `ledger` must outlive it.
  static Result<std::unique_ptr<Drafter>> Make(const DraftPlan& plan, Backend& backend, Ledger& ledger);

  // Tokens that the stream has read. Those outside the draft's vocabulary are left out.
  void Push(std::span<const int32_t> tokens);
  // The stream is another one, of which nothing is known.
  void Clear();

  // Tokens that Guess() will read first.
  int64_t n_waiting() const { return std::ssize(waiting_); }
  // Reads what waits.
  Status CatchUp();
  // Up to `most` tokens that follow the stream, fewer where the draft is not sure; empty before the first token. Valid
  // until the next call.
  Result<std::span<const int32_t>> Guess(int64_t most);

 private:
  explicit Drafter(const DraftPlan& plan) : plan_(plan) {}
  void LayOut(const Backend& backend, BufferSpace* space);
  // Reads tokens into the pot, which has room for them.
  Status Read(std::span<const int32_t> tokens);
  // Makes room for n rows: the first tokens stay, and of the others the newest.
  Status MakeRoom(int64_t n);
  // Removes the rows of guesses that did not come.
  void ForgetWrong();

  const DraftPlan plan_;
  Backend* backend_ = nullptr;
  std::unique_ptr<Pot> pot_;
  std::unique_ptr<Runner> runner_;
  BufferSpace space_;
  Prediction prediction_;
  std::vector<SlotMeta> rows_;
  std::vector<int32_t> first_;    // of the stream, which stay
  std::vector<int32_t> waiting_;  // read by the stream and not here, the newest ones
  bool skipped_ = false;          // tokens before those were dropped unread
  int32_t newest_ = -1;
  int64_t n_read_ = 0;
  // Guesses whose rows are the last ones of the pot, and how many of them came.
  std::vector<int32_t> ahead_;
  size_t n_came_ = 0;
  std::vector<int32_t> guess_;
  KeepSet keep_;
};

}  // namespace weir
