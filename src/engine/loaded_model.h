// A model file made ready: mapped, checked, bound to its architecture, weights prepared, tokenizer loaded.
#pragma once

#include <memory>
#include <string>

#include "backend/backend.h"
#include "base/ledger.h"
#include "base/status.h"
#include "io/gguf.h"
#include "model/architecture.h"
#include "text/tokenizer.h"

namespace weir {

struct LoadModelOptions {
  std::string path;
  int n_threads = 0;             // 0: one per usable core
  std::string device = "cpu";    // "cpu", or "ref" for the scalar reference
  // Checks and sizes everything without preparing a single weight: for `weir plan` and `weir info`. Such a model
  // answers questions about bytes; it cannot run.
  bool plan_only = false;
};

class LoadedModel {
 public:
  static Result<std::unique_ptr<LoadedModel>> Load(const LoadModelOptions& options);

  const GgufFile& file() const { return *file_; }
  Backend& backend() const { return *backend_; }
  Model& model() const { return *model_; }
  const Tokenizer& tokenizer() const { return *tokenizer_; }
  // Bytes of the prepared weights.
  const Ledger& ledger() const { return ledger_; }

 private:
  LoadedModel() = default;
  Ledger ledger_;   // first: outlives the weights
  std::unique_ptr<GgufFile> file_;
  std::unique_ptr<Backend> backend_;
  std::unique_ptr<Model> model_;
  std::unique_ptr<Tokenizer> tokenizer_;
};

}  // namespace weir
