// SPDX-License-Identifier: Apache-2.0
// The forms that requests ask for. Making one takes time, and its masks are kept by it, so that the forms of the last
// few requests stay, in the memory that the server keeps for forms.
#pragma once

#include <functional>
#include <list>
#include <memory>
#include <mutex>
#include <string>

#include "base/status.h"
#include "text/forms/form.h"
#include "text/held_answer.h"
#include "text/tokenizer.h"

namespace weir {

// Thread-safe.
class FormStore {
 public:
  static constexpr size_t kKept = 4;

  // `bytes`: for all forms; 0: answers cannot be held to any. `tokenizer` must outlive the object.
  FormStore(const Tokenizer& tokenizer, int64_t bytes);
  ~FormStore();
  // What it takes in all.
  static int64_t MemoryBytes(const Tokenizer& tokenizer, int64_t bytes);
  int64_t used_bytes() const { return room_ == nullptr ? 0 : room_->used_bytes(); }

  // The form, as kept or new. Errors of MakeForm(), and kUnsupported without memory for forms.
  Result<std::shared_ptr<const Form>> Get(const FormSpec& spec);
  Result<std::shared_ptr<const Form>> Get(const HeldAnswer& answer, const AnswerForm& reading);
  // The vocabulary, made with the first form.
  std::shared_ptr<const FormVocab> Vocab();

 private:
  struct Entry {
    std::string key;  // everything that the form was made of
    std::shared_ptr<const Form> form;
  };
  Result<std::shared_ptr<const Form>> Get(std::string key,
                                          const std::function<Result<std::shared_ptr<const Form>>()>& make);
  // nullptr: not kept. REQUIRES: mutex_ is held.
  std::shared_ptr<const Form> Find(const std::string& key);
  // Forgets the forms that no answer has.
  void DropIdle();

  const Tokenizer& tokenizer_;
  const std::shared_ptr<FormRoom> room_;  // nullptr: none
  std::mutex mutex_;
  std::shared_ptr<const FormVocab> vocab_;
  std::list<Entry> entries_;  // the last used first
};

}  // namespace weir
