// SPDX-License-Identifier: Apache-2.0
// Tokenizers: text to token ids and back, from a GGUF file's metadata alone.
//
// Three models: byte-level BPE (`tokenizer.ggml.model` = "gpt2"; its word splitting is named by `tokenizer.ggml.pre`,
// see text/pretokenizer.h), SentencePiece-style BPE ("llama") and unigram ("t5"). The metadata is untrusted input:
// counts, ids and types are checked in Load(), so that encoding cannot fail.
//
// Text is UTF-8. Broken sequences are replaced by U+FFFD and counted in EncodeReport: neither an error nor silent.
// Endless text goes through text/stream.h, which gives the same ids as Encode() of the whole.
//
// Sources: Sennrich et al. 2016 (BPE), Kudo 2018 (unigram), google/sentencepiece, openai/gpt-2; key names from the GGUF
// specification (ggml docs/gguf.md).
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "base/status.h"
#include "io/gguf.h"

namespace weir {

struct Vocab;
class SpecialTokens;
class TokenModel;
struct FragmentState;

// The file's numbering.
enum class TokenType : uint8_t { kNormal = 1, kUnknown = 2, kControl = 3, kUserDefined = 4, kUnused = 5, kByte = 6 };

struct EncodeOptions {
  // Put BOS before and EOS after the text if the file asks for it.
  bool add_special = true;
  // Recognise the texts of control tokens ("<|im_end|>"). Leave it off for text that users wrote. User-defined tokens
  // are recognised either way: they are ordinary text that the model was given a token for.
  bool parse_special = false;
};

// Changes that encoding had to make.
struct EncodeReport {
  int64_t n_replaced = 0;       // broken UTF-8 sequences read as U+FFFD
  int64_t n_dropped_bytes = 0;  // bytes the vocabulary has no token for (SmolLM lacks some control characters)
};

// A piece of text and whether control tokens may be recognised in it: yes in a chat template's own words, no in a
// user's.
struct TextPiece {
  std::string text;
  bool parse_special = false;
};

// Immutable after Load(); all methods are thread-safe.
class Tokenizer {
 public:
  // kNotFound or kCorrupt names the metadata key; kUnsupported a model or pre-tokenizer that this build does not
  // support. Keeps no reference to the file.
  static Result<std::unique_ptr<Tokenizer>> Load(const GgufFile& file);
  ~Tokenizer();
  Tokenizer(const Tokenizer&) = delete;
  Tokenizer& operator=(const Tokenizer&) = delete;

  // `report` (may be null) is added to, not reset. Holds the whole answer in memory: for bounded text.
  std::vector<int32_t> Encode(std::string_view text, const EncodeOptions& options = {},
                              EncodeReport* report = nullptr) const;
  // Encodes the pieces as one text (words may span pieces), with control tokens recognised only in pieces that allow
  // it. A control token never spans pieces.
  std::vector<int32_t> EncodePieces(std::span<const TextPiece> pieces, bool add_special,
                                    EncodeReport* report = nullptr) const;

  // The text of the ids, always valid UTF-8. Control tokens are left out unless `show_special`; ids outside the
  // vocabulary are left out. The space that SentencePiece models put before a text is removed.
  std::string Decode(std::span<const int32_t> ids, bool show_special = false) const;

  int32_t n_tokens() const;
  // The vocabulary's own spelling ("Ġthe", "▁the", "<0x0A>"). REQUIRES: 0 <= id < n_tokens().
  const std::string& TokenText(int32_t id) const;
  TokenType Type(int32_t id) const;
  // The bytes the token stands for; not always whole characters. Empty for control tokens unless `show_special`, for
  // unused tokens, and for ids outside the vocabulary.
  std::string TokenBytes(int32_t id, bool show_special = false) const;

  // -1 if the file has none.
  int32_t bos_id() const { return bos_id_; }
  int32_t eos_id() const { return eos_id_; }
  int32_t eot_id() const { return eot_id_; }  // end of turn
  int32_t unknown_id() const { return unknown_id_; }
  bool add_bos() const { return add_bos_; }
  bool add_eos() const { return add_eos_; }
  // EOS, end of turn, end of message, and the well-known texts that end an answer ("<|im_end|>", "<|eot_id|>" ...).
  bool IsEndOfGeneration(int32_t id) const;
  std::span<const int32_t> end_of_generation_ids() const { return end_ids_; }

  // True for models that put a space before a text (and remove it when decoding).
  bool has_space_prefix() const { return has_space_prefix_; }

 private:
  friend class StreamEncoder;
  Tokenizer();
  Status LoadVocab(const GgufFile& file);
  Status LoadModel(const GgufFile& file);
  Status LoadSpecialIds(const GgufFile& file);
  void FindEndTokens();
  void EncodeCore(std::string_view text, std::span<const std::pair<size_t, size_t>> control_ranges,
                  std::vector<int32_t>* ids, EncodeReport* report) const;

  std::unique_ptr<Vocab> vocab_;
  std::unique_ptr<TokenModel> model_;
  std::unique_ptr<SpecialTokens> control_and_user_;  // for parse_special
  std::unique_ptr<SpecialTokens> user_;              // otherwise
  std::vector<int32_t> end_ids_;                     // sorted
  int32_t bos_id_ = -1, eos_id_ = -1, eot_id_ = -1, eom_id_ = -1, unknown_id_ = -1;
  bool add_bos_ = false, add_eos_ = false, has_space_prefix_ = false, is_byte_level_ = false;
};

}  // namespace weir
