// SPDX-License-Identifier: Apache-2.0
// Internal to src/text: the interface between tokenizer models (bpe.cc, spm.cc, unigram.cc) and tokenizer.cc. For other
// code: tokenizer.h.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "base/status.h"
#include "text/tokenizer.h"

namespace weir {

inline constexpr std::string_view kSpaceMark = "\xE2\x96\x81";  // U+2581, SentencePiece's spelling of a space

// The file's token list, checked: three arrays of one length, finite scores.
struct Vocab {
  std::vector<std::string> text;
  std::vector<float> score;  // all 0 when the file has none; minus infinity: nothing is joined to this token
  std::vector<TokenType> type;
  std::unordered_map<std::string_view, int32_t> by_text;  // views into `text`; the last of equal texts wins

  int32_t size() const { return static_cast<int32_t>(text.size()); }
  // -1 when there is none.
  int32_t Find(std::string_view token) const {
    const auto it = by_text.find(token);
    return it == by_text.end() ? -1 : it->second;
  }
};

// Settings in the file for SentencePiece-style models.
struct SpaceOptions {
  bool add_space_prefix = true;
  bool remove_extra_whitespaces = false;
  int32_t unknown_id = -1;
};

// A model's state inside a fragment (the text between two special tokens, or the ends of the text).
struct FragmentState {
  bool at_start = true;       // nothing of this fragment has been read yet
  bool in_word = false;       // unigram: the last character was not a space
  bool word_seen = false;     // unigram: a character other than a space was read
  bool last_unknown = false;  // unigram: the last token was the unknown token
};

class TokenModel {
 public:
  virtual ~TokenModel() = default;

  // Appends the tokens of `text`, the next part of a fragment, and returns how many bytes they cover. With `more`,
  // stops before the first word that later bytes could change; without it, always covers everything.
  // `report` may not be null. REQUIRES: valid UTF-8. Thread-safe.
  virtual size_t Encode(std::string_view text, bool more, FragmentState* state, std::vector<int32_t>* ids,
                        EncodeReport* report) const = 0;

  // The bytes a normal token stands for.
  virtual std::string Bytes(std::string_view token_text) const = 0;
};

// Each keeps a reference to `vocab`, which must outlive it.
Result<std::unique_ptr<TokenModel>> MakeBpe(const Vocab& vocab, const std::vector<std::string>& merges,
                                            std::string_view pre, bool* add_bos);
Result<std::unique_ptr<TokenModel>> MakeSpm(const Vocab& vocab, const SpaceOptions& options);
// `charsmap`: the normaliser's compiled rules as SentencePiece stores them; empty for none.
Result<std::unique_ptr<TokenModel>> MakeUnigram(const Vocab& vocab, const SpaceOptions& options, std::string charsmap);

// The value of a byte token's text "<0xNN>", or -1.
int ParseByteToken(std::string_view text);
// `text` with every U+2581 turned into a space.
std::string UnescapeSpaces(std::string_view text);

// Where a SentencePiece-style text may be cut without changing its tokens: between two characters that are adjacent in
// no token. Only cuts at white space are considered; text without white space is cut after kMaxWordBytes.
class WordCutter {
 public:
  explicit WordCutter(const Vocab& vocab);
  // Length of the first word of raw text (spaces not yet escaped); 0 when `more` and it may continue.
  size_t WordBytes(std::string_view text, bool more) const;
  // May a text be cut between the last character of `left`, as tokens spell it, and a space?
  bool MayCutBeforeSpace(std::string_view left) const;

 private:
  bool MayCut(char32_t left, char32_t right) const;
  std::unordered_map<char32_t, std::vector<char32_t>> left_of_;  // for a space or newline: characters that precede it
                                                                 // in tokens
  std::vector<char32_t> right_of_newline_;                       // characters that follow a newline in tokens
};

}  // namespace weir
