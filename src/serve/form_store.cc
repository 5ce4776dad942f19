// SPDX-License-Identifier: Apache-2.0
#include "serve/form_store.h"

#include <algorithm>
#include <utility>

#include "io/json.h"

namespace weir {
namespace {

// Lengths keep two lists of choices apart.
std::string KeyOf(const FormSpec& spec) {
  std::string key = std::to_string(static_cast<int>(spec.kind)) + "\n" + spec.text;
  for (const std::string& choice : spec.choices) key += std::to_string(choice.size()) + ":" + choice;
  return key;
}

}  // namespace

std::shared_ptr<const FormVocab> FormStore::Vocab() {
  const std::lock_guard lock(mutex_);
  if (vocab_ == nullptr) vocab_ = FormVocab::Make(tokenizer_);
  return vocab_;
}

std::shared_ptr<const Form> FormStore::Find(const std::string& key) {
  const auto it = std::find_if(entries_.begin(), entries_.end(), [&](const Entry& e) { return e.key == key; });
  if (it == entries_.end()) return nullptr;
  entries_.splice(entries_.begin(), entries_, it);
  return it->form;
}

Result<std::shared_ptr<const Form>> FormStore::Get(const FormSpec& spec) {
  return Get(KeyOf(spec), [&] { return MakeForm(spec, Vocab()); });
}

Result<std::shared_ptr<const Form>> FormStore::Get(const HeldAnswer& answer, const AnswerForm& reading) {
  std::string key = "held\n" + JsonText(answer.tools) + "\n";
  for (const auto* names : {&answer.only, &answer.strict}) {
    for (const std::string& name : *names) key += name + " ";
    key += "\n";
  }
  for (const bool flag : {answer.must, answer.parallel, answer.in_thoughts, answer.may_think, answer.begun}) {
    key += flag ? '1' : '0';
  }
  if (answer.words) key += KeyOf(*answer.words);
  return Get(std::move(key), [&] { return MakeForm(answer, reading, Vocab()); });
}

Result<std::shared_ptr<const Form>> FormStore::Get(std::string key,
                                                   const std::function<Result<std::shared_ptr<const Form>>()>& make) {
  {
    const std::lock_guard lock(mutex_);
    if (auto known = Find(key)) return known;
  }
  WEIR_ASSIGN_OR_RETURN(std::shared_ptr<const Form> form, make());
  const std::lock_guard lock(mutex_);
  if (auto known = Find(key)) return known;  // made by another request meanwhile
  entries_.push_front({std::move(key), form});
  if (entries_.size() > kKept) entries_.pop_back();
  return form;
}

}  // namespace weir
