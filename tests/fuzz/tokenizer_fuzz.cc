// SPDX-License-Identifier: Apache-2.0
// Any text, encoded whole and in pieces by each tokenizer model: no crash, equal ids, bounded output.
//
// Input: one byte choosing the model, one choosing the options and the size of the pieces, then the text.
#include <cstdio>
#include <cstdlib>

#include "base/utf8.h"
#include "text/stream.h"
#include "text/vocab_test_util.h"

namespace {

using weir::Tokenizer;
using weir::testing::MetadataBuilder;

std::unique_ptr<Tokenizer> Make(int kind) {
  MetadataBuilder b;
  std::vector<std::string> tokens = {"<unk>", "<s>", "</s>", "<sep>"};
  std::vector<int32_t> types = {2, 3, 3, 4};
  const bool is_bpe = kind < 3;
  for (int byte = 0; byte < 256; ++byte) {
    char spelled[8];
    std::snprintf(spelled, sizeof(spelled), "<0x%02X>", byte);
    tokens.push_back(is_bpe ? weir::testing::SpellBytes(std::string(1, static_cast<char>(byte))) : spelled);
    types.push_back(is_bpe ? 1 : 6);
  }
  for (const char* word :
       {"a", "b", "ab", "aa", "\u2581", "\u2581\u2581", "\u2581a", "ba", "abab", "\n\n", "x\u2581y"}) {
    tokens.emplace_back(word);
    types.push_back(1);
  }
  std::vector<float> scores;
  for (size_t i = 0; i < tokens.size(); ++i) scores.push_back(-static_cast<float>(i % 17));
  const char* const pres[] = {"llama-bpe", "smollm", "default"};
  b.Add("tokenizer.ggml.model", is_bpe ? "gpt2" : kind == 3 ? "llama" : "t5");
  if (is_bpe) b.Add("tokenizer.ggml.pre", pres[kind]);
  b.Add("tokenizer.ggml.tokens", tokens).Add("tokenizer.ggml.token_type", types).Add("tokenizer.ggml.scores", scores);
  b.Add("tokenizer.ggml.merges", std::vector<std::string>{"a b", "ab ab", "a a", "b a"});
  b.Add("tokenizer.ggml.remove_extra_whitespaces", kind == 4);
  b.Add("tokenizer.ggml.unknown_token_id", 0)
      .Add("tokenizer.ggml.bos_token_id", 1)
      .Add("tokenizer.ggml.eos_token_id", 2);
  auto made = weir::testing::LoadFrom(b);
  if (!made.ok()) std::abort();
  return std::move(made).value();
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  static const std::unique_ptr<Tokenizer> tokenizers[] = {Make(0), Make(1), Make(2), Make(3), Make(4)};
  if (size < 2) return 0;
  const Tokenizer& tokenizer = *tokenizers[data[0] % 5];
  const weir::EncodeOptions options{.add_special = (data[1] & 1) != 0, .parse_special = (data[1] & 2) != 0};
  const size_t step = 1 + (data[1] >> 2);
  const std::string_view text(reinterpret_cast<const char*>(data) + 2, size - 2);
  const auto whole = tokenizer.Encode(text, options);
  if (whole.size() > 3 * text.size() + 4) std::abort();
  for (const int32_t id : whole) {
    if (id < 0 || id >= tokenizer.n_tokens()) std::abort();
  }
  weir::StreamEncoder encoder(tokenizer, options);
  std::vector<int32_t> ids;
  for (size_t pos = 0; pos < text.size(); pos += step) encoder.Push(text.substr(pos, step), &ids);
  encoder.Finish(&ids);
  if (ids != whole) std::abort();
  const std::string decoded = tokenizer.Decode(ids, true);
  int64_t n_replaced = 0;
  (void)weir::SanitizeUtf8(decoded, &n_replaced);
  if (n_replaced != 0) std::abort();
  // Any bytes as ids must decode to valid text, too.
  std::vector<int32_t> any;
  for (const char c : text) any.push_back(static_cast<uint8_t>(c) * 3 - 5);
  (void)weir::SanitizeUtf8(tokenizer.Decode(any), &n_replaced);
  if (n_replaced != 0) std::abort();
  return 0;
}
