// SPDX-License-Identifier: Apache-2.0
// For fuzzers: walks along a form under its masks.
#pragma once

#include <cstdint>
#include <cstdlib>
#include <memory>
#include <string>
#include <string_view>

#include "text/forms/form.h"
#include "text/vocab_test_util.h"

namespace weir {

inline std::shared_ptr<const FormVocab> FuzzVocab() {
  static const std::shared_ptr<const FormVocab> vocab = [] {
    std::vector<std::string> tokens;
    for (int b = 0; b < 256; ++b) tokens.push_back(testing::SpellBytes(std::string(1, static_cast<char>(b))));
    for (const char* word : {"the", "\": \"", "\",", "\"}", "{\"", "12", "]}", "\n  ", "null", "\xE2\x82"}) {
      tokens.push_back(testing::SpellBytes(word));
    }
    tokens.push_back(testing::SpellBytes(std::string(40, 'a')));
    std::vector<int32_t> types(tokens.size(), 1);
    tokens.emplace_back("<|call|>");
    types.push_back(3);
    testing::MetadataBuilder b;
    b.Add("tokenizer.ggml.model", "gpt2").Add("tokenizer.ggml.pre", "gpt-2").Add("tokenizer.ggml.tokens", tokens);
    b.Add("tokenizer.ggml.token_type", types).Add("tokenizer.ggml.merges", std::vector<std::string>{"t h"});
    return FormVocab::Make(*testing::LoadFrom(b).value());
  }();
  return vocab;
}

inline void CheckOneLine(const Status& status) {
  if (status.message().empty() || status.message().find('\n') != std::string::npos) std::abort();
}

// Draws allowed tokens, chosen by `seed`, until the answer may end or `max_steps`. The text if it may end, else "".
inline std::string WalkForm(const std::shared_ptr<const Form>& form, uint64_t seed, int max_steps) {
  FormState state(form);
  std::string text;
  for (int step = 0; step < max_steps; ++step) {
    seed = seed * 6364136223846793005u + 1442695040888963407u;
    if (state.CanEnd() && (seed >> 40) % 4 == 0) return text;
    const auto mask = state.Mask();
    if (!mask.ok()) {
      CheckOneLine(mask.status());
      return "";
    }
    if ((*mask)->n_allowed == 0) {
      if (!state.CanEnd() && text.size() < 300) std::abort();  // nothing nests so deep
      return state.CanEnd() ? text : "";
    }
    int64_t pick = static_cast<int64_t>((seed >> 33) % static_cast<uint64_t>((*mask)->n_allowed));
    int32_t token = 0;
    while (!(*mask)->Allows(token) || pick-- > 0) ++token;
    if (const Status status = state.Accept(token); !status.ok()) {
      if (status.code() == StatusCode::kOverBudget) return "";
      std::abort();  // the mask was wrong
    }
    text += form->vocab()->Bytes(token);
  }
  return "";
}

}  // namespace weir
