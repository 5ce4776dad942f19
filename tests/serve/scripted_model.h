// SPDX-License-Identifier: Apache-2.0
// A model that says what it was told to say: each token decides the next one. The last character of the last message
// chooses the answer.
#pragma once

#include <map>
#include <string>
#include <vector>

#include "cli/edited_model.h"

namespace weir::testing {

// Control tokens are written as they are; everything else is ordinary text. All words differ.
struct ScriptedWord {
  std::string text;
  bool control = false;
};

// `scripts`: the words after each character. At most 60 words and characters together.
inline std::string ScriptedModel(const std::map<char, std::vector<ScriptedWord>>& scripts, const std::string& jinja) {
  constexpr size_t kWidth = 64, kFirstWord = 260;
  EditedModel model("llama");
  auto& tokens = std::get<std::vector<std::string>>(model.metadata["tokenizer.ggml.tokens"].v);
  auto& merges = std::get<std::vector<std::string>>(model.metadata["tokenizer.ggml.merges"].v);
  std::vector<int64_t> types(tokens.size(), 1);
  for (size_t i = 0; i < 3; ++i) types[i] = 3;
  merges.resize(1);
  size_t n_words = 0, n_used = 0;
  EditedTensor& embedding = model.Tensor("token_embd.weight");
  EditedTensor& output = model.Tensor("output.weight");
  for (EditedTensor* tensor : {&embedding, &output}) std::fill(tensor->data.begin(), tensor->data.end(), 0);
  for (const char* layer : {"blk.0.", "blk.1.", "blk.2."}) {
    for (const char* name : {"attn_output.weight", "ffn_down.weight"}) {
      EditedTensor& tensor = model.Tensor(layer + std::string(name));
      std::fill(tensor.data.begin(), tensor.data.end(), 0);
    }
  }
  for (size_t i = 0; i < kWidth; ++i) model.Tensor("output_norm.weight").SetFloat(i, 1);
  for (const auto& [start, words] : scripts) {
    size_t last = std::find(tokens.begin(), tokens.end(), std::string(1, start)) - tokens.begin();
    for (size_t i = 0; i <= words.size(); ++i) {
      const size_t next = i == words.size() ? 2 : kFirstWord + n_words++;
      if (i < words.size()) {
        tokens[next] = words[i].text;
        types[next] = words[i].control ? 3 : 4;
      }
      embedding.SetFloat(last * kWidth + n_used, 1);
      output.SetFloat(next * kWidth + n_used, 10);
      ++n_used;
      last = next;
    }
  }
  for (size_t i = kFirstWord + n_words; i < tokens.size(); ++i) tokens[i] = "unused" + std::to_string(i);
  model.metadata["tokenizer.ggml.token_type"].v = types;
  model.metadata["tokenizer.chat_template"].v = jinja;
  return model.Bytes();
}

}  // namespace weir::testing
