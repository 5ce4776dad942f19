// SPDX-License-Identifier: Apache-2.0
// Tiny models of tests/golden/models as the program loads them, with their tokenizers.
#pragma once

#include <gtest/gtest.h>

#include <memory>
#include <string>

#include "engine/loaded_model.h"
#include "support/build_paths.h"

namespace weir::testing {

// Fails the test if the file does not load; *out is then nullptr.
inline void LoadTiny(const std::string& name, std::unique_ptr<LoadedModel>* out) {
  LoadModelOptions options;
  options.path = SourceDir() + "/tests/golden/models/" + name + ".gguf";
  options.n_threads = 2;
  auto model = LoadedModel::Load(options);
  ASSERT_TRUE(model.ok()) << model.status().message();
  *out = *std::move(model);
}

// Tests on the tiny llama. GoogleTest runs neither SetUp() nor the test if the model failed to load.
class TinyLlamaTest : public ::testing::Test {
 protected:
  TinyLlamaTest() { LoadTiny("llama", &model_); }
  const Tokenizer& tokenizer() const { return model_->tokenizer(); }

  std::unique_ptr<LoadedModel> model_;
};

}  // namespace weir::testing
