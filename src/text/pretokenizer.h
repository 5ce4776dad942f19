// SPDX-License-Identifier: Apache-2.0
// Pre-tokenizers: the regular expression that cuts text into words before byte-level BPE merges inside each word.
//
// A GGUF file names its expression in `tokenizer.ggml.pre`. Known names and where their expressions are published:
//   gpt-2 (phi-2, olmo, mpt, mellum, trillion, a.x-4.0, exaone4)     openai/gpt-2, src/encoder.py
//   smollm (starcoder, refact, command-r, minerva-7b)     SmolLM tokenizer.json: digits one by one, then as GPT-2
//   llama-bpe (llama3, llama-v3, falcon3, pixtral)     meta-llama/llama-models, tokenizer.py
//   smaug-bpe, dbrx (Phi-4, OLMo 2), glm4 (chatglm-bpe)     the same, but merges alone decide, and no BOS
//   qwen2 (deepseek-r1-qwen, megrez, stablelm2, hunyuan)     Qwen2 tokenizer.json
//   seed-coder     Seed-Coder tokenizer.json
//   gpt-4o (minimax-m2)     openai/tiktoken, o200k_base (Phi-4-mini, gpt-oss)
//   kimi-k2     moonshotai, tokenization_kimi.py of Kimi-K2
//   tekken     mistralai, tekken.json (Mistral Nemo, Mistral Small 3)
//   deepseek-llm, deepseek-coder, deepseek-v3 (hunyuan-dense)     tokenizer.json of those models
//   falcon     the GGUF convention for the first Falcon: punctuation, GPT-2, digits by three
//   default    the GGUF convention for files of unknown origin: punctuation, digits by three, then GPT-2
// For a model that applies several expressions in sequence, a single equivalent one is used here.
//
// Streaming guarantee: a word depends only on the bytes from its start to kMaxWordBytes after it, never on earlier
// text. Text that has no boundary for kMaxWordBytes is cut there, in whole texts and in streams alike, so both always
// give the same words.
#pragma once

#include <cstddef>
#include <memory>
#include <string>
#include <string_view>

#include "base/status.h"

namespace weir {

// The longest word, in bytes. Bounds the memory and time of everything that works on one word.
inline constexpr size_t kMaxWordBytes = 64 << 10;

class PreTokenizer {
 public:
  // kUnsupported names an unknown `pre`.
  static Result<std::unique_ptr<PreTokenizer>> Create(std::string_view pre);
  ~PreTokenizer();
  PreTokenizer(const PreTokenizer&) = delete;
  PreTokenizer& operator=(const PreTokenizer&) = delete;

  // Length in bytes of the word that starts at text[0]. 0 when `more` (text will follow) and the bytes seen so far do
  // not determine where the word ends. Never 0 for non-empty text when `more` is false.
  // REQUIRES: valid UTF-8. Thread-safe.
  size_t WordBytes(std::string_view text, bool more) const;

  // A word that is itself in the vocabulary is one token, whatever the merges say (Llama 3 and its kin).
  bool whole_word_first() const { return whole_word_first_; }
  // The family prepends BOS unless the file says otherwise.
  bool add_bos() const { return add_bos_; }

 private:
  PreTokenizer() = default;
  void* code_ = nullptr;  // pcre2_code
  bool whole_word_first_ = false;
  bool add_bos_ = false;
};

}  // namespace weir
