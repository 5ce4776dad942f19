// SPDX-License-Identifier: Apache-2.0
#include "engine/loaded_draft.h"

#include <algorithm>
#include <cstdlib>

#include "engine/session/drafter.h"

namespace weir {

Status CheckSameVocabulary(const Tokenizer& model, const std::string& model_path, const Tokenizer& draft,
                           const std::string& draft_path) {
  const int32_t n_model = model.n_tokens(), n_draft = draft.n_tokens();
  if (std::abs(n_model - n_draft) > LoadedDraft::kMostPadding) {
    return InvalidArgument("{} has {} tokens, {} has {}: a draft needs the vocabulary of the model that it guesses for",
                           draft_path, n_draft, model_path, n_model);
  }
  for (int32_t id = 0; id < std::min(n_model, n_draft); ++id) {
    if (model.TokenText(id) == draft.TokenText(id)) continue;
    return InvalidArgument(
        "token {} is '{}' in {} and '{}' in {}: a draft needs the vocabulary of the model that it guesses for", id,
        draft.TokenText(id), draft_path, model.TokenText(id), model_path);
  }
  return Status();
}

Result<std::unique_ptr<LoadedDraft>> LoadedDraft::Load(const std::string& path, LoadedModel& model) {
  std::unique_ptr<LoadedDraft> out(new LoadedDraft);
  WEIR_ASSIGN_OR_RETURN(out->file_, GgufFile::Open(path));
  // Cheaper than weights, so that the wrong file is refused at once.
  WEIR_ASSIGN_OR_RETURN(const std::unique_ptr<Tokenizer> tokenizer, Tokenizer::Load(*out->file_));
  WEIR_RETURN_IF_ERROR(CheckSameVocabulary(model.tokenizer(), model.file().path(), *tokenizer, path));
  WEIR_ASSIGN_OR_RETURN(out->model_, LoadModel(*out->file_, model.backend(), out->ledger_));
  WEIR_RETURN_IF_ERROR(Drafter::Check(*out->model_));
  return out;
}

const std::string& LoadedDraft::name() const {
  const std::string& name = model_->config().name;
  return name.empty() ? file_->path() : name;
}

}  // namespace weir
