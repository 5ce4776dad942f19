// SPDX-License-Identifier: Apache-2.0
#include "serve/answer_pots.h"

#include <utility>

#include "chat/prompt_reuse.h"

namespace weir {

Result<AnswerPots> AnswerPots::Make(LoadedModel& model, Encoder* encoder, const SessionOptions& options, int n,
                                    int64_t bytes_each, Ledger& ledger) {
  AnswerPots out;
  for (int i = 0; i < n; ++i) {
    WEIR_ASSIGN_OR_RETURN(Reservation bytes, ledger.Reserve(MemTag::kOther, bytes_each));
    WEIR_ASSIGN_OR_RETURN(std::unique_ptr<Session> pot, Session::Make(model.model(), model.backend(), options));
    if (encoder != nullptr) {
      WEIR_ASSIGN_OR_RETURN(out.kept_frames_[pot.get()], FrameStore::Make(*encoder, pot->ledger()));
    }
    out.free_.push_back(pot.get());
    out.pots_.push_back(std::move(pot));
    out.reservations_.push_back(std::move(bytes));
  }
  return out;
}

int64_t AnswerPots::kv_bytes() const {
  int64_t out = 0;
  for (const auto& pot : pots_) out += pot->ledger().used_bytes(MemTag::kKv);
  return out;
}

Session* AnswerPots::Take(std::span<const PromptPart> prompt) {
  if (free_.empty()) return nullptr;
  const PotChoice choice = ChoosePot(free_, prompt);
  Session* session = free_[choice.index];
  free_.erase(free_.begin() + static_cast<ptrdiff_t>(choice.index));
  session->Rewind(choice.n_tokens);
  return session;
}

void AnswerPots::Give(Session* session) {
  // A pot with nothing to reuse is lent first.
  free_.insert(session->n_rewindable() == 0 ? free_.begin() : free_.end(), session);
}

}  // namespace weir
