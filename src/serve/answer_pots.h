// SPDX-License-Identifier: Apache-2.0
// The room of answer pots: a few sessions that are made at the start and lent to requests which bring their whole
// prompt.
//
// A pot that comes back keeps what it read, so that the next turn of the same chat goes on from there
// (chat/prompt_reuse.h). Free pots are ordered: those that nobody can go on from first, then the longest unused.
//
// Everything runs on the engine's thread.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <span>
#include <vector>

#include "base/ledger.h"
#include "chat/prompt_reader.h"
#include "engine/frame_store.h"
#include "engine/loaded_model.h"
#include "engine/session.h"

namespace weir {

class AnswerPots {
 public:
  AnswerPots() = default;
  // n pots of the same kind, each of which reserves `bytes_each` of `ledger` first. `encoder` may be nullptr.
  // kOverBudget when the ledger lacks the bytes; errors of Session::Make. `model`, `encoder` and `ledger` outlive the
  // pots.
  static Result<AnswerPots> Make(LoadedModel& model, Encoder* encoder, const SessionOptions& options, int n,
                                 int64_t bytes_each, Ledger& ledger);

  int64_t n() const { return std::ssize(pots_); }
  int64_t n_free() const { return std::ssize(free_); }
  bool HasFree() const { return !free_.empty(); }
  // Bytes of keys and values of all of them.
  int64_t kv_bytes() const;

  // nullptr when all are lent. The pot holds the first n_seen() tokens of `prompt`, which is read on behind them; of an
  // empty prompt, nothing.
  Session* Take(std::span<const PromptPart> prompt);
  // Of Take(). What the pot holds may be gone on from; one that was Reset() is the first to be lent again.
  void Give(Session* session);
  // What a pot keeps of a video's frames while it reads them. REQUIRES: there is an encoder.
  FrameStore& KeptFrames(const Session& pot) { return *kept_frames_.at(&pot); }

 private:
  std::vector<Reservation> reservations_;
  std::vector<std::unique_ptr<Session>> pots_;
  std::map<const Session*, std::unique_ptr<FrameStore>> kept_frames_;  // in the ledgers of pots_
  std::vector<Session*> free_;
};

}  // namespace weir
