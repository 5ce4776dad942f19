// SPDX-License-Identifier: Apache-2.0
#include "serve/form_store.h"

#include <algorithm>
#include <utility>

namespace weir {

std::shared_ptr<const FormVocab> FormStore::Vocab() {
  const std::lock_guard lock(mutex_);
  if (vocab_ == nullptr) vocab_ = FormVocab::Make(tokenizer_);
  return vocab_;
}

std::shared_ptr<const Form> FormStore::Find(const FormSpec& spec) {
  const auto it = std::find_if(entries_.begin(), entries_.end(), [&](const Entry& e) {
    return e.spec.kind == spec.kind && e.spec.text == spec.text && e.spec.choices == spec.choices;
  });
  if (it == entries_.end()) return nullptr;
  entries_.splice(entries_.begin(), entries_, it);
  return it->form;
}

Result<std::shared_ptr<const Form>> FormStore::Get(const FormSpec& spec) {
  {
    const std::lock_guard lock(mutex_);
    if (auto known = Find(spec)) return known;
  }
  WEIR_ASSIGN_OR_RETURN(std::shared_ptr<const Form> form, MakeForm(spec, Vocab()));
  const std::lock_guard lock(mutex_);
  if (auto known = Find(spec)) return known;  // made by another request meanwhile
  entries_.push_front({spec, form});
  if (entries_.size() > kKept) entries_.pop_back();
  return form;
}

}  // namespace weir
