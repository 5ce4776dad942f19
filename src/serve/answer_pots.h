// SPDX-License-Identifier: Apache-2.0
// The pool of answer pots: a few sessions that are made at start-up and lent to requests that carry their whole prompt.
//
// A returned pot keeps what it read, so that the next turn of the same chat can reuse it (chat/prompt_reuse.h). Free
// pots are ordered: pots without reusable content first, then least recently used first.
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
  // Makes n pots of the same kind; each first reserves `bytes_each` of `ledger`. `encoder` may be nullptr. kOverBudget
  // if the ledger lacks the bytes; errors of Session::Make. `model`, `encoder` and `ledger` must outlive the pots.
  static Result<AnswerPots> Make(LoadedModel& model, Encoder* encoder, const SessionOptions& options, int n,
                                 int64_t bytes_each, Ledger& ledger);

  int64_t n() const { return std::ssize(pots_); }
  int64_t n_free() const { return std::ssize(free_); }
  bool HasFree() const { return !free_.empty(); }
  // Bytes of keys and values of all of them.
  int64_t kv_bytes() const;

  // Lends a pot; nullptr if all are lent. The pot already holds the first n_seen() tokens of `prompt`, and the caller
  // reads the rest; for an empty prompt the pot is empty.
  Session* Take(std::span<const PromptPart> prompt);
  // Returns a pot from Take(). Later prompts may reuse its content; a pot that was Reset() is lent first.
  void Give(Session* session);
  // The frames of a video that a pot keeps while it reads them. REQUIRES: there is an encoder.
  FrameStore& KeptFrames(const Session& pot) { return *kept_frames_.at(&pot); }

 private:
  std::vector<Reservation> reservations_;
  std::vector<std::unique_ptr<Session>> pots_;
  std::map<const Session*, std::unique_ptr<FrameStore>> kept_frames_;  // in the ledgers of pots_
  std::vector<Session*> free_;
};

}  // namespace weir
