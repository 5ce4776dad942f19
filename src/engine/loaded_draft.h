// SPDX-License-Identifier: Apache-2.0
// A draft model: a smaller model of the same vocabulary, which guesses what a loaded model will write
// (engine/session/drafter.h).
#pragma once

#include <memory>
#include <string>

#include "base/ledger.h"
#include "base/status.h"
#include "engine/loaded_model.h"

namespace weir {

// A loaded file: mapped, checked, weights prepared in the backend of the model that it guesses for. Shared by all
// sessions (SessionOptions::draft).
class LoadedDraft {
 public:
  // kInvalidArgument names the first token that differs between the vocabularies; one may be up to kMostPadding tokens
  // longer than the other, as within families whose files are padded. kUnsupported for a model that cannot un-read a
  // wrong guess. Errors of GgufFile::Open(), LoadModel() and Tokenizer::Load(). `model` must outlive it.
  static constexpr int32_t kMostPadding = 128;
  static Result<std::unique_ptr<LoadedDraft>> Load(const std::string& path, LoadedModel& model);

  Model& model() const { return *model_; }
  const GgufFile& file() const { return *file_; }
  // The file's name for its model, or its path.
  const std::string& name() const;
  // Bytes of the prepared weights.
  const Ledger& ledger() const { return ledger_; }

 private:
  LoadedDraft() = default;
  Ledger ledger_;  // first: outlives the weights
  std::unique_ptr<GgufFile> file_;
  std::unique_ptr<Model> model_;
};

// Whether a token that one model writes is the same for the other. The texts of messages are the files' paths.
Status CheckSameVocabulary(const Tokenizer& model, const std::string& model_path, const Tokenizer& draft,
                           const std::string& draft_path);

}  // namespace weir
