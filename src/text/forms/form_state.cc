// SPDX-License-Identifier: Apache-2.0
#include "text/forms/form.h"
#include "text/forms/form_cache.h"

namespace weir {

using forms::Automaton;

FormState::FormState(std::shared_ptr<const Form> form, bool drop_space)
    : form_(std::move(form)), drop_space_(drop_space) {
  {
    const std::lock_guard lock(form_->mutex_);
    // One that had no memory to begin with is of no use to anybody.
    if (form_->newest_ == nullptr || form_->newest_->automaton.start() == Automaton::kDead) {
      form_->newest_ = std::make_shared<forms::FormCache>(form_->network_, form_->vocab_, form_->limits_, form_->room_);
    }
    cache_ = form_->newest_;
  }
  const std::lock_guard lock(cache_->mutex);
  state_ = cache_->automaton.start();
  Look();
}

void FormState::Look() {
  can_end_ = cache_->automaton.CanEnd(state_);
  must_end_ = state_ != Automaton::kDead && !cache_->automaton.CanGoOn(state_);
}

// Leaves a cache that has become too large, with nothing but the state: for the one that others have left it for, or
// for a new one.
Status FormState::Renew() {
  const std::lock_guard of_form(form_->mutex_);
  std::shared_ptr<forms::FormCache> to = form_->newest_;
  if (to == cache_) {
    to = std::make_shared<forms::FormCache>(form_->network_, form_->vocab_, form_->limits_, form_->room_);
  }
  {
    // Locked from the older to the newer: nobody goes the other way.
    const std::lock_guard lock(cache_->mutex);
    const std::lock_guard of_newer(to->mutex);
    form_->spare_.Shrink(0);
    to->automaton.BeginWork(forms::kMaxWork);
    const Automaton::State copy = cache_->automaton.CopyTo(state_, &to->automaton);
    if (to->automaton.failed()) return TooMuch();
    state_ = copy;
    if (form_->newest_ == cache_) to->credit = cache_->credit;
  }
  form_->newest_ = to;
  cache_ = std::move(to);  // the old one goes, if nobody else has it
  (void)form_->spare_.Cover(form_->limits_.cache_bytes / 8);
  return Status();
}

Status FormState::TooMuch() const {
  return Unsupported(
      "what may follow in this form takes more memory than is left of the {} bytes that are kept for forms",
      form_->room_ == nullptr ? forms::kMaxAutomatonBytes : form_->room_->bytes());
}

Result<std::shared_ptr<const TokenMask>> FormState::Mask() {
  bool refused = false;
  for (int attempt = 0; attempt < 3; ++attempt) {
    std::shared_ptr<const TokenMask> mask;
    bool large = false;
    {
      const std::lock_guard lock(cache_->mutex);
      if (state_ == Automaton::kDead) break;  // there was no memory to begin
      mask = cache_->MaskAt(state_, drop_space_);
      refused = cache_->automaton.refused();
      large = cache_->bytes() > form_->limits_.cache_bytes || refused;
    }
    if (refused && form_->room_ != nullptr) form_->room_->Reclaim();
    if (large) {
      const Status renewed = Renew();
      if (mask == nullptr) WEIR_RETURN_IF_ERROR(renewed);
    }
    if (mask != nullptr) return mask;
    if (!large) break;  // others, with the whole memory in the end, only where that was the reason
  }
  if (refused || state_ == Automaton::kDead) return TooMuch();
  return Unsupported("the form is too ambiguous: what may follow takes more than {} steps to find out, or {} in all",
                     forms::kMaxWork, forms::kFormWork);
}

Status FormState::Take(std::string_view bytes) {
  for (int attempt = 0;; ++attempt) {
    {
      const std::lock_guard lock(cache_->mutex);
      if (state_ == Automaton::kDead) return TooMuch();
      const Automaton::State next = cache_->Read(state_, bytes);
      if (!cache_->automaton.failed()) {
        if (next == Automaton::kDead) return InvalidArgument("the form does not allow this here");
        state_ = next;
        Look();
        return Status();
      }
      if (!cache_->automaton.refused()) {
        return Unsupported("the form is too ambiguous: what follows takes more than {} steps to read, or {} in all",
                           forms::kMaxWork, forms::kFormWork);
      }
    }
    if (attempt > 0) return TooMuch();
    if (form_->room_ != nullptr) form_->room_->Reclaim();
    WEIR_RETURN_IF_ERROR(Renew());
  }
}

Status FormState::Accept(int32_t token) {
  if (token < 0 || token >= form_->vocab_->n_tokens())
    return InvalidArgument("token {} is not in the vocabulary", token);
  std::string_view bytes = form_->vocab_->Bytes(token);
  if (bytes.empty()) return InvalidArgument("token {} stands for no text", token);
  if (drop_space_ && bytes[0] == ' ') bytes.remove_prefix(1);
  WEIR_RETURN_IF_ERROR(Take(bytes));
  drop_space_ = drop_space_ && static_cast<uint8_t>(form_->vocab_->Bytes(token)[0]) == forms::kTokenByte;
  return Status();
}

Status FormState::AcceptText(std::string_view text) { return Take(text); }

}  // namespace weir
