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

FormStore::FormStore(const Tokenizer& tokenizer, int64_t bytes)
    : tokenizer_(tokenizer), room_(bytes > 0 ? std::make_shared<FormRoom>(bytes) : nullptr) {
  if (room_ != nullptr) room_->SetReclaim([this] { DropIdle(); });
}

FormStore::~FormStore() {
  if (room_ != nullptr) room_->SetReclaim(nullptr);  // answers that are not yet gone have it too
}

int64_t FormStore::MemoryBytes(const Tokenizer& tokenizer, int64_t bytes) {
  return bytes == 0 ? 0 : bytes + FormVocab::MostBytes(tokenizer);
}

void FormStore::DropIdle() {
  const std::lock_guard lock(mutex_);
  entries_.remove_if([](const Entry& e) { return e.form.use_count() == 1; });
}

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
  return Get(KeyOf(spec), [&] { return MakeForm(spec, Vocab(), room_); });
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
  return Get(std::move(key), [&] { return MakeForm(answer, reading, Vocab(), room_); });
}

Result<std::shared_ptr<const Form>> FormStore::Get(std::string key,
                                                   const std::function<Result<std::shared_ptr<const Form>>()>& make) {
  if (room_ == nullptr) {
    return Unsupported("this server keeps no memory for forms: it was started with --form-memory 0");
  }
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
