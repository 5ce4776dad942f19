// SPDX-License-Identifier: Apache-2.0
// Endless text in bounded memory: encodes pieces of any size to tokens, and decodes tokens one by one to text.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "text/tokenizer.h"

namespace weir {

struct FragmentState;

// Text pushed in pieces -> ids, the same as Tokenizer::Encode() of the whole text, wherever it was cut (inside a
// character, a word or a special token).
//
// How it works: text is held back until later text can no longer change its tokens. For byte-level BPE the expression
// engine reports when a word depends on bytes that have not arrived yet; text for SentencePiece-style models is cut
// only between characters that are adjacent in no token; no cut is made where a special token could begin. A few
// hundred bytes of ordinary text are held back, and never more than about two words of kMaxWordBytes (64 KiB,
// text/pretokenizer.h) and one special token.
//
// Not thread-safe; one object per stream.
class StreamEncoder {
 public:
  // `tokenizer` must outlive the object.
  StreamEncoder(const Tokenizer& tokenizer, const EncodeOptions& options);
  ~StreamEncoder();

  // Appends to `ids` the tokens that later text cannot change. BOS comes with the first call.
  void Push(std::string_view text, std::vector<int32_t>* ids);
  // Ends the text: appends the tokens of the text held back, and EOS if the file asks for it. The object is then as
  // new.
  void Finish(std::vector<int32_t>* ids);

  // Totals since construction.
  const EncodeReport& report() const { return report_; }
  // Bytes read but not yet encoded.
  int64_t pending_bytes() const { return static_cast<int64_t>(text_.size() + broken_.size()); }

 private:
  void Begin(std::vector<int32_t>* ids);
  void Drain(bool more, std::vector<int32_t>* ids);

  const Tokenizer& tokenizer_;
  const EncodeOptions options_;
  const SpecialTokens& specials_;
  std::unique_ptr<FragmentState> state_;
  std::string text_;    // valid UTF-8, not yet encoded
  std::string broken_;  // a character whose last bytes have not arrived yet
  size_t drain_at_bytes_ = 0;
  bool begun_ = false;
  bool skip_spaces_ = false;
  EncodeReport report_;
};

// Ids -> text, whole characters only: a character whose bytes are spread over several tokens appears with the last of
// them. Broken bytes become U+FFFD.
//
// Not thread-safe; one object per answer.
class StreamDecoder {
 public:
  struct Options {
    bool show_special = false;  // control tokens as text; otherwise they are omitted
    // The ids start a text, so a SentencePiece model's first space is its prefix and is dropped. Turn it off for ids
    // that continue a text.
    bool at_start = true;
  };
  // `tokenizer` must outlive the object.
  StreamDecoder(const Tokenizer& tokenizer, const Options& options);

  // Appends to `out` the text that became complete.
  void Push(int32_t id, std::string* out);
  // Ends the text: an unfinished character becomes U+FFFD. The object is then as new.
  void Finish(std::string* out);

 private:
  void Drain(bool more, std::string* out);

  const Tokenizer& tokenizer_;
  const Options options_;
  bool drop_space_;
  std::string bytes_;  // not yet written
};

}  // namespace weir
