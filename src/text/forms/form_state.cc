// SPDX-License-Identifier: Apache-2.0
#include "text/forms/form.h"
#include "text/forms/form_cache.h"

namespace weir {

using forms::Automaton;

FormState::FormState(std::shared_ptr<const Form> form, bool drop_space)
    : form_(std::move(form)), drop_space_(drop_space) {
  {
    const std::lock_guard lock(form_->mutex_);
    if (form_->newest_ == nullptr) {
      form_->newest_ = std::make_shared<forms::FormCache>(form_->network_, form_->vocab_);
    }
    cache_ = form_->newest_;
  }
  const std::lock_guard lock(cache_->mutex);
  state_ = cache_->automaton.start();
  Look();
}

void FormState::Look() {
  can_end_ = cache_->automaton.CanEnd(state_);
  must_end_ = !cache_->automaton.CanGoOn(state_);
}

// Leaves a cache that has become too large, with nothing but the state: for the one that others have left it for, or
// for a new one.
void FormState::Renew() {
  const std::lock_guard of_form(form_->mutex_);
  std::shared_ptr<forms::FormCache> to = form_->newest_;
  if (to == cache_) to = std::make_shared<forms::FormCache>(form_->network_, form_->vocab_);
  {
    // Locked from the older to the newer: nobody goes the other way.
    const std::lock_guard lock(cache_->mutex);
    if (cache_->bytes() <= kMaxFormBytes) return;
    const std::lock_guard of_newer(to->mutex);
    to->automaton.BeginWork(forms::kMaxWork);
    state_ = cache_->automaton.CopyTo(state_, &to->automaton);
    if (form_->newest_ == cache_) to->credit = cache_->credit;
  }
  form_->newest_ = to;
  cache_ = std::move(to);
}

Result<std::shared_ptr<const TokenMask>> FormState::Mask() {
  for (int attempt = 0; attempt < 3; ++attempt) {
    std::shared_ptr<const TokenMask> mask;
    bool large = false;
    {
      const std::lock_guard lock(cache_->mutex);
      mask = cache_->MaskAt(state_, drop_space_);
      large = cache_->bytes() > kMaxFormBytes;
    }
    if (large) Renew();
    if (mask != nullptr) return mask;
    if (!large) break;  // others, with the whole memory in the end, only where that was the reason
  }
  return Unsupported("the form is too ambiguous: what may follow takes more than {} steps to find out, or {} in all",
                     forms::kMaxWork, forms::kFormWork);
}

Status FormState::Take(std::string_view bytes) {
  {
    const std::lock_guard lock(cache_->mutex);
    const Automaton::State next = cache_->Read(state_, bytes);
    if (cache_->automaton.failed()) {
      return Unsupported("the form is too ambiguous: what follows takes more than {} steps to read, or {} in all",
                         forms::kMaxWork, forms::kFormWork);
    }
    if (next == Automaton::kDead) return InvalidArgument("the form does not allow this here");
    state_ = next;
    Look();
  }
  return Status();
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
