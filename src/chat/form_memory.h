// SPDX-License-Identifier: Apache-2.0
// Memory of a session's answers that are held to a form: a part of its plan, reserved when it is made. And the
// vocabulary as forms see it, which the sessions of a model share.
//
//     AddForms(bytes, &options);  // before Session::Make()
//     WEIR_ASSIGN_OR_RETURN(FormMemory forms, FormMemory::Make(bytes, *session));
//     WEIR_ASSIGN_OR_RETURN(auto vocab, shared_vocab.Get());
//     WEIR_ASSIGN_OR_RETURN(auto form, MakeForm(spec, vocab, forms.room()));
#pragma once

#include <cstdint>
#include <memory>
#include <mutex>

#include "base/ledger.h"
#include "base/status.h"
#include "engine/session.h"
#include "text/forms/form_room.h"
#include "text/forms/form_vocab.h"
#include "text/tokenizer.h"

namespace weir {

// 0: no answer is held to a form. kInvalidArgument for a size that no form fits into.
Status AddForms(int64_t bytes, SessionOptions* options);

class FormMemory {
 public:
  // Nothing.
  FormMemory() = default;
  // For a session that was planned with AddForms() of as many bytes; it must outlive the object.
  static Result<FormMemory> Make(int64_t bytes, Session& session);
  // nullptr: there is none.
  const std::shared_ptr<FormRoom>& room() const { return room_; }

 private:
  Reservation bytes_;
  std::shared_ptr<FormRoom> room_;
};

// Thread-safe. Made for the first answer that has a form; its bytes are reserved before.
class SharedFormVocab {
 public:
  // Both must outlive the object.
  SharedFormVocab(const Tokenizer& tokenizer, Ledger& ledger) : tokenizer_(tokenizer), ledger_(ledger) {}
  Result<std::shared_ptr<const FormVocab>> Get();

 private:
  const Tokenizer& tokenizer_;
  Ledger& ledger_;
  std::mutex mutex_;
  Reservation bytes_;
  std::shared_ptr<const FormVocab> vocab_;
};

}  // namespace weir
