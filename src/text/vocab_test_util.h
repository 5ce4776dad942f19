// SPDX-License-Identifier: Apache-2.0
// For tests: GGUF metadata built in memory, also from the vocabularies of the data folder, so that every test goes
// through Tokenizer::Load().
#pragma once

#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <fstream>
#include <map>
#include <memory>
#include <nlohmann/json.hpp>
#include <optional>
#include <sstream>
#include <string>
#include <utility>
#include <vector>

#include "base/base64.h"
#include "io/gguf.h"
#include "text/tokenizer.h"

namespace weir::testing {

// Writes metadata in the GGUF v3 layout; no tensors.
class MetadataBuilder {
 public:
  MetadataBuilder& Add(const std::string& key, const std::string& value) { return Key(key, 8).Str(&body_, value); }
  MetadataBuilder& Add(const std::string& key, const char* value) { return Add(key, std::string(value)); }
  MetadataBuilder& Add(const std::string& key, int64_t value) { return Key(key, 11).Pod(&body_, value); }
  MetadataBuilder& Add(const std::string& key, int value) { return Add(key, static_cast<int64_t>(value)); }
  MetadataBuilder& Add(const std::string& key, bool value) { return Key(key, 7).Pod(&body_, value); }
  MetadataBuilder& Add(const std::string& key, const std::vector<std::string>& values) {
    Array(key, 8, values.size());
    for (const std::string& v : values) Str(&body_, v);
    return *this;
  }
  MetadataBuilder& Add(const std::string& key, const std::vector<float>& values) {
    Array(key, 6, values.size());
    for (const float v : values) Pod(&body_, v);
    return *this;
  }
  MetadataBuilder& Add(const std::string& key, const std::vector<int32_t>& values) {
    Array(key, 5, values.size());
    for (const int32_t v : values) Pod(&body_, v);
    return *this;
  }
  MetadataBuilder& Add(const std::string& key, const std::vector<int8_t>& values) {
    Array(key, 1, values.size());
    for (const int8_t v : values) Pod(&body_, v);
    return *this;
  }

  std::vector<uint8_t> Build() const {
    std::string out = "GGUF";
    MetadataBuilder head;
    head.Pod(&out, uint32_t{3}).Pod(&out, uint64_t{0}).Pod(&out, n_keys_);
    out += body_;
    return {out.begin(), out.end()};
  }

 private:
  template <typename T>
  MetadataBuilder& Pod(std::string* out, T value) {
    char bytes[sizeof(T)];
    std::memcpy(bytes, &value, sizeof(T));
    out->append(bytes, sizeof(T));
    return *this;
  }
  MetadataBuilder& Str(std::string* out, const std::string& s) {
    Pod(out, static_cast<uint64_t>(s.size()));
    *out += s;
    return *this;
  }
  MetadataBuilder& Key(const std::string& key, uint32_t type) {
    ++n_keys_;
    return Str(&body_, key).Pod(&body_, type);
  }
  void Array(const std::string& key, uint32_t type, size_t n) {
    Key(key, 9).Pod(&body_, type).Pod(&body_, static_cast<uint64_t>(n));
  }
  std::string body_;
  uint64_t n_keys_ = 0;
};

inline Result<std::unique_ptr<Tokenizer>> LoadFrom(const MetadataBuilder& builder) {
  const std::vector<uint8_t> bytes = builder.Build();
  WEIR_ASSIGN_OR_RETURN(const auto file, GgufFile::Parse(bytes, "memory"));
  return Tokenizer::Load(*file);
}

// nullopt when WEIR_DATA is not set or the file does not exist.
inline std::optional<std::string> ReadData(const std::string& path) {
  const char* root = std::getenv("WEIR_DATA");
  std::ifstream in(std::string(root ? root : ".") + "/" + path, std::ios::binary);
  if (!root || !in) return std::nullopt;
  std::ostringstream out;
  out << in.rdbuf();
  return std::move(out).str();
}

inline std::vector<std::string> Lines(const std::string& text) {
  std::vector<std::string> lines;
  std::istringstream in(text);
  for (std::string line; std::getline(in, line);) lines.push_back(line);
  return lines;
}

// GPT-2's spelling of bytes as characters.
inline std::string SpellBytes(const std::string& bytes) {
  static const std::vector<std::string> spelling = [] {
    std::vector<std::string> out(256);
    int next = 0x100;
    for (int b = 0; b < 256; ++b) {
      const bool printable = (b >= 0x21 && b <= 0x7E) || (b >= 0xA1 && b <= 0xAC) || b >= 0xAE;
      const int cp = printable ? b : next++;
      if (cp < 0x80) {
        out[b] = std::string(1, static_cast<char>(cp));
      } else {
        out[b] = {static_cast<char>(0xC0 | cp >> 6), static_cast<char>(0x80 | (cp & 0x3F))};
      }
    }
    return out;
  }();
  std::string out;
  for (const char c : bytes) out += spelling[static_cast<uint8_t>(c)];
  return out;
}

// Metadata of a byte-level BPE tokenizer from Hugging Face's vocab.json and merges.txt. `n_control`: how many ids from
// 0 on are control tokens. Ids without a token become unused tokens, as converters do.
inline MetadataBuilder FromVocabJson(const std::string& vocab_json, const std::string& merges_txt, const char* pre,
                                     int n_control) {
  const auto vocab = nlohmann::json::parse(vocab_json);
  std::vector<std::string> tokens(vocab.size());
  std::vector<int32_t> types(vocab.size(), 1);
  for (const auto& [text, id] : vocab.items()) tokens.at(id.get<size_t>()) = text;
  for (int i = 0; i < n_control; ++i) types[i] = 3;
  std::vector<std::string> merges;
  for (const std::string& line : Lines(merges_txt)) {
    if (!line.empty() && line.rfind("#version", 0) != 0) merges.push_back(line);
  }
  MetadataBuilder b;
  b.Add("tokenizer.ggml.model", "gpt2").Add("tokenizer.ggml.pre", pre).Add("tokenizer.ggml.tokens", tokens);
  b.Add("tokenizer.ggml.token_type", types).Add("tokenizer.ggml.merges", merges);
  return b;
}

// Metadata of Llama 3's tokenizer from its list of ranks. GGUF needs merges: the two parts of a token are the result of
// merging its bytes with tokens of lower rank only.
inline MetadataBuilder FromRanks(const std::string& ranks_text) {
  std::map<std::string, int32_t> rank_of;
  std::vector<std::string> raw;
  for (const std::string& line : Lines(ranks_text)) {
    const size_t space = line.find(' ');
    raw.push_back(*DecodeBase64(line.substr(0, space)));
    rank_of[raw.back()] = static_cast<int32_t>(raw.size()) - 1;
  }
  std::vector<std::string> tokens, merges;
  std::vector<int32_t> types(raw.size(), 1);
  for (size_t rank = 0; rank < raw.size(); ++rank) {
    tokens.push_back(SpellBytes(raw[rank]));
    if (raw[rank].size() < 2) continue;
    std::vector<std::string> parts;
    for (const char c : raw[rank]) parts.emplace_back(1, c);
    while (parts.size() > 2) {
      size_t best = parts.size();
      int32_t best_rank = static_cast<int32_t>(rank);
      for (size_t i = 0; i + 1 < parts.size(); ++i) {
        const auto it = rank_of.find(parts[i] + parts[i + 1]);
        if (it != rank_of.end() && it->second < best_rank) best = i, best_rank = it->second;
      }
      if (best == parts.size()) break;
      parts[best] += parts[best + 1];
      parts.erase(parts.begin() + static_cast<ptrdiff_t>(best) + 1);
    }
    if (parts.size() == 2) merges.push_back(SpellBytes(parts[0]) + " " + SpellBytes(parts[1]));
  }
  const auto n = static_cast<int64_t>(tokens.size());
  for (const char* special : {"<|begin_of_text|>", "<|end_of_text|>", "<|eot_id|>"}) {
    tokens.emplace_back(special);
    types.push_back(3);
  }
  MetadataBuilder b;
  b.Add("tokenizer.ggml.model", "gpt2").Add("tokenizer.ggml.pre", "llama-bpe").Add("tokenizer.ggml.tokens", tokens);
  b.Add("tokenizer.ggml.token_type", types).Add("tokenizer.ggml.merges", merges);
  b.Add("tokenizer.ggml.bos_token_id", n).Add("tokenizer.ggml.eos_token_id", n + 1);
  return b;
}

}  // namespace weir::testing
