// SPDX-License-Identifier: Apache-2.0
#include "chat/form_memory.h"

#include <utility>

namespace weir {

Status AddForms(int64_t bytes, SessionOptions* options) {
  WEIR_RETURN_IF_ERROR(CheckFormBytes(bytes));
  if (bytes > 0) options->beside.push_back({MemTag::kOther, "answers held to a form", bytes});
  return Status();
}

Result<FormMemory> FormMemory::Make(int64_t bytes, Session& session) {
  FormMemory out;
  if (bytes == 0) return out;
  WEIR_ASSIGN_OR_RETURN(out.bytes_, session.ledger().Reserve(MemTag::kOther, bytes));
  out.room_ = std::make_shared<FormRoom>(bytes);
  return out;
}

Result<std::shared_ptr<const FormVocab>> SharedFormVocab::Get() {
  const std::lock_guard lock(mutex_);
  if (vocab_ == nullptr) {
    WEIR_ASSIGN_OR_RETURN(bytes_, ledger_.Reserve(MemTag::kOther, FormVocab::MostBytes(tokenizer_)));
    vocab_ = FormVocab::Make(tokenizer_);
    bytes_.Release();
    WEIR_ASSIGN_OR_RETURN(bytes_, ledger_.Reserve(MemTag::kOther, vocab_->n_bytes()));
  }
  return vocab_;
}

}  // namespace weir
