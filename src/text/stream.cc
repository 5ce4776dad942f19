// SPDX-License-Identifier: Apache-2.0
#include "text/stream.h"

#include <algorithm>
#include <cctype>

#include "base/utf8.h"
#include "text/special_tokens.h"
#include "text/token_model.h"

namespace weir {
namespace {

// Input is processed in parts of this size, so that a huge piece needs no huge copy.
constexpr size_t kPartBytes = 256 << 10;
constexpr size_t kMinDrainBytes = 256;

}  // namespace

StreamEncoder::StreamEncoder(const Tokenizer& tokenizer, const EncodeOptions& options)
    : tokenizer_(tokenizer),
      options_(options),
      specials_(options.parse_special ? *tokenizer.control_and_user_ : *tokenizer.user_),
      state_(std::make_unique<FragmentState>()) {}
StreamEncoder::~StreamEncoder() = default;

void StreamEncoder::Begin(std::vector<int32_t>* ids) {
  if (begun_) return;
  begun_ = true;
  if (options_.add_special && tokenizer_.add_bos()) ids->push_back(tokenizer_.bos_id());
}

void StreamEncoder::Push(std::string_view text, std::vector<int32_t>* ids) {
  Begin(ids);
  while (!text.empty()) {
    const std::string_view part = text.substr(0, kPartBytes);
    text.remove_prefix(part.size());
    broken_ += part;
    // Repair all but a last character that may still be completed.
    std::string_view rest = broken_;
    while (!rest.empty()) {
      const size_t good = ValidUtf8Prefix(rest);
      text_ += rest.substr(0, good);
      rest.remove_prefix(good);
      if (rest.empty()) break;
      const Utf8Char bad = DecodeUtf8(rest, 0);
      if (bad.truncated) break;
      AppendUtf8(0xFFFD, &text_);
      ++report_.n_replaced;
      rest.remove_prefix(bad.bytes);
    }
    broken_.erase(0, broken_.size() - rest.size());
    // Re-examining a long undetermined word for every arriving byte would take quadratic time.
    if (text_.size() >= drain_at_bytes_) {
      Drain(true, ids);
      drain_at_bytes_ = 2 * text_.size() + kMinDrainBytes;
    }
  }
}

void StreamEncoder::Finish(std::vector<int32_t>* ids) {
  Begin(ids);
  text_ += SanitizeUtf8(broken_, &report_.n_replaced);
  broken_.clear();
  Drain(false, ids);
  if (options_.add_special && tokenizer_.add_eos()) ids->push_back(tokenizer_.eos_id());
  begun_ = skip_spaces_ = false;
  drain_at_bytes_ = 0;
  *state_ = FragmentState();
}

void StreamEncoder::Drain(bool more, std::vector<int32_t>* ids) {
  const std::string_view text = text_;
  // While text may follow, a special token that begins in the last few bytes may still grow or change.
  const size_t margin = more && !specials_.empty() ? specials_.max_bytes() - 1 : 0;
  const size_t settled = text.size() - std::min(margin, text.size());
  size_t pos = 0;
  while (pos < text.size()) {
    if (skip_spaces_) {
      while (pos < text.size() && std::isspace(static_cast<unsigned char>(text[pos]))) ++pos;
      if (pos == text.size()) break;
      skip_spaces_ = false;
    }
    const SpecialTokens::Match match = specials_.Find(text, pos, settled);
    if (match.id < 0) {
      // A cut must not fall inside a character.
      size_t end = settled;
      while (end > pos && end < text.size() && (static_cast<uint8_t>(text[end]) & 0xC0) == 0x80) --end;
      if (end > pos) pos += tokenizer_.model_->Encode(text.substr(pos, end - pos), more, state_.get(), ids, &report_);
      break;
    }
    if (match.pos > pos) {
      tokenizer_.model_->Encode(text.substr(pos, match.pos - pos), false, state_.get(), ids, &report_);
    }
    ids->push_back(match.id);
    *state_ = FragmentState();
    skip_spaces_ = specials_.SkipsSpacesAfter(match.id);
    pos = match.pos + match.bytes;
  }
  text_.erase(0, pos);
}

StreamDecoder::StreamDecoder(const Tokenizer& tokenizer, const Options& options)
    : tokenizer_(tokenizer), options_(options), drop_space_(options.at_start && tokenizer.has_space_prefix()) {}

void StreamDecoder::Push(int32_t id, std::string* out) {
  std::string bytes = tokenizer_.TokenBytes(id, options_.show_special);
  if (bytes.empty()) return;
  if (drop_space_) {
    const TokenType type = tokenizer_.Type(id);
    // The prefix is before the first ordinary token, after a BOS that is shown.
    if (type != TokenType::kControl && type != TokenType::kUnknown) {
      if (bytes[0] == ' ') bytes.erase(0, 1);
      drop_space_ = false;
    }
  }
  bytes_ += bytes;
  Drain(true, out);
}

void StreamDecoder::Finish(std::string* out) {
  Drain(false, out);
  drop_space_ = options_.at_start && tokenizer_.has_space_prefix();
}

void StreamDecoder::Drain(bool more, std::string* out) {
  std::string_view rest = bytes_;
  while (!rest.empty()) {
    const size_t good = ValidUtf8Prefix(rest);
    out->append(rest.substr(0, good));
    rest.remove_prefix(good);
    if (rest.empty()) break;
    const Utf8Char bad = DecodeUtf8(rest, 0);
    if (bad.truncated && more) break;
    AppendUtf8(0xFFFD, out);
    rest.remove_prefix(bad.bytes);
  }
  bytes_.erase(0, bytes_.size() - rest.size());
}

}  // namespace weir
