// SPDX-License-Identifier: Apache-2.0
// SentencePiece-style BPE (Llama 1 and 2, Mistral, Gemma, Phi-3): spaces are spelled U+2581, and of all neighbouring
// symbols whose joint text is a token, the pair with the highest score is joined first, until none is left. Characters
// without a token become byte tokens. Source: google/sentencepiece, bpe_model.cc.
#include <algorithm>
#include <cmath>

#include "base/utf8.h"
#include "text/pretokenizer.h"
#include "text/token_model.h"

namespace weir {

int ParseByteToken(std::string_view text) {
  if (text.size() != 6 || text.substr(0, 3) != "<0x" || text[5] != '>') return -1;
  int value = 0;
  for (const char c : text.substr(3, 2)) {
    const int digit = c >= '0' && c <= '9'   ? c - '0'
                      : c >= 'A' && c <= 'F' ? c - 'A' + 10
                      : c >= 'a' && c <= 'f' ? c - 'a' + 10
                                             : -1;
    if (digit < 0) return -1;
    value = value * 16 + digit;
  }
  return value;
}

std::string UnescapeSpaces(std::string_view text) {
  std::string out;
  for (size_t pos = 0; pos < text.size();) {
    if (text.substr(pos, kSpaceMark.size()) == kSpaceMark) {
      out.push_back(' ');
      pos += kSpaceMark.size();
    } else {
      out.push_back(text[pos++]);
    }
  }
  return out;
}

namespace {
constexpr char32_t kMark = 0x2581;
bool IsCutPoint(char32_t c) { return c == kMark || c == U'\n'; }
}  // namespace

WordCutter::WordCutter(const Vocab& vocab) {
  for (int32_t id = 0; id < vocab.size(); ++id) {
    const TokenType type = vocab.type[id];
    if (type == TokenType::kControl || type == TokenType::kUnknown || type == TokenType::kByte) continue;
    const std::string& text = vocab.text[id];
    char32_t last = 0;
    for (size_t pos = 0; pos < text.size();) {
      const Utf8Char c = DecodeUtf8(text, pos);
      const char32_t cp = c.cp == U' ' ? kMark : c.cp;
      if (pos > 0 && IsCutPoint(cp)) left_of_[cp].push_back(last);
      if (pos > 0 && last == U'\n') right_of_newline_.push_back(cp);
      last = cp;
      pos += c.bytes;
    }
  }
  const auto tidy = [](std::vector<char32_t>* v) {
    std::sort(v->begin(), v->end());
    v->erase(std::unique(v->begin(), v->end()), v->end());
  };
  for (auto& [cp, left] : left_of_) tidy(&left);
  tidy(&right_of_newline_);
}

bool WordCutter::MayCut(char32_t left, char32_t right) const {
  if (IsCutPoint(right)) {
    const auto it = left_of_.find(right);
    return it == left_of_.end() || !std::binary_search(it->second.begin(), it->second.end(), left);
  }
  return left == U'\n' && !std::binary_search(right_of_newline_.begin(), right_of_newline_.end(), right);
}

bool WordCutter::MayCutBeforeSpace(std::string_view left) const {
  size_t last = left.size();
  while (last > 0 && (static_cast<uint8_t>(left[--last]) & 0xC0) == 0x80) {
  }
  return left.empty() || MayCut(DecodeUtf8(left, last).cp, kMark);
}

size_t WordCutter::WordBytes(std::string_view text, bool more) const {
  char32_t last = 0;
  for (size_t pos = 0; pos < text.size();) {
    const Utf8Char c = DecodeUtf8(text, pos);
    const char32_t cp = c.cp == U' ' ? kMark : c.cp;
    if (pos > 0 && (pos + c.bytes > kMaxWordBytes || MayCut(last, cp))) return pos;
    last = cp;
    pos += c.bytes;
  }
  return more ? 0 : text.size();
}

namespace {

class Spm final : public TokenModel {
 public:
  Spm(const Vocab& vocab, const SpaceOptions& options) : vocab_(vocab), options_(options), cutter_(vocab) {
    std::fill(std::begin(byte_ids_), std::end(byte_ids_), -1);
    for (int32_t id = 0; id < vocab.size(); ++id) {
      const int byte = vocab.type[id] == TokenType::kByte ? ParseByteToken(vocab.text[id]) : -1;
      if (byte >= 0) byte_ids_[byte] = id;
    }
  }

  size_t Encode(std::string_view text, bool more, FragmentState* state, std::vector<int32_t>* ids,
                EncodeReport* report) const override {
    std::string word;
    std::vector<Symbol> symbols;
    std::vector<Candidate> heap;
    size_t pos = 0;
    while (pos < text.size()) {
      const size_t bytes = cutter_.WordBytes(text.substr(pos), more);
      if (bytes == 0) break;
      word.clear();
      if (state->at_start && options_.add_space_prefix) word += kSpaceMark;
      state->at_start = false;
      for (const char c : text.substr(pos, bytes)) {
        if (c == ' ') {
          word += kSpaceMark;
        } else {
          word += c;
        }
      }
      EncodeWord(word, &symbols, &heap, state, ids, report);
      pos += bytes;
    }
    return pos;
  }

  std::string Bytes(std::string_view token_text) const override { return UnescapeSpaces(token_text); }

 private:
  struct Symbol {
    uint32_t begin, bytes;  // of the word; 0 bytes once joined to the left
    int32_t prev, next;
  };
  struct Candidate {
    float score;
    int32_t left, right;
    uint32_t bytes;  // of both: a candidate is stale when they have grown since
    bool operator<(const Candidate& o) const { return score != o.score ? score < o.score : left > o.left; }
  };

  // Ordinary text that spells a control, unknown or byte token must not become one.
  int32_t FindText(std::string_view text) const {
    const int32_t id = vocab_.Find(text);
    if (id < 0) return -1;
    const TokenType type = vocab_.type[id];
    return type == TokenType::kControl || type == TokenType::kUnknown || type == TokenType::kByte ? -1 : id;
  }

  void EncodeWord(std::string_view word, std::vector<Symbol>* symbols, std::vector<Candidate>* heap,
                  FragmentState* state, std::vector<int32_t>* ids, EncodeReport* report) const {
    if (const int32_t id = WholeWord(word); id >= 0) {
      ids->push_back(id);
      state->last_unknown = false;
      return;
    }
    std::vector<Symbol>& s = *symbols;
    s.clear();
    heap->clear();
    for (size_t pos = 0; pos < word.size();) {
      const int32_t idx = static_cast<int32_t>(s.size());
      const uint32_t bytes = Utf8Bytes(word[pos]);
      s.push_back({static_cast<uint32_t>(pos), bytes, idx - 1, idx + 1});
      pos += bytes;
    }
    if (s.empty()) return;
    s.back().next = -1;
    const auto offer = [&](int32_t left, int32_t right) {
      if (left < 0 || right < 0) return;
      const uint32_t bytes = s[left].bytes + s[right].bytes;
      const int32_t id = FindText(word.substr(s[left].begin, bytes));
      if (id < 0 || !std::isfinite(vocab_.score[id])) return;
      heap->push_back({vocab_.score[id], left, right, bytes});
      std::push_heap(heap->begin(), heap->end());
    };
    for (int32_t i = 1; i < static_cast<int32_t>(s.size()); ++i) offer(i - 1, i);
    while (!heap->empty()) {
      std::pop_heap(heap->begin(), heap->end());
      const Candidate c = heap->back();
      heap->pop_back();
      if (!s[c.left].bytes || !s[c.right].bytes || s[c.left].bytes + s[c.right].bytes != c.bytes) continue;
      s[c.left].bytes = c.bytes;
      s[c.right].bytes = 0;
      s[c.left].next = s[c.right].next;
      if (s[c.left].next >= 0) s[s[c.left].next].prev = c.left;
      offer(s[c.left].prev, c.left);
      offer(c.left, s[c.left].next);
    }
    for (int32_t i = 0; i >= 0; i = s[i].next) Emit(word.substr(s[i].begin, s[i].bytes), state, ids, report);
  }

  // A single character is the only word whose token is known without looking at the merges.
  int32_t WholeWord(std::string_view word) const {
    return static_cast<size_t>(Utf8Bytes(word[0])) == word.size() ? FindText(word) : -1;
  }

  // Neighbouring unknown characters share one unknown token.
  void Emit(std::string_view piece, FragmentState* state, std::vector<int32_t>* ids, EncodeReport* report) const {
    const bool after_unknown = state->last_unknown;
    state->last_unknown = false;
    if (const int32_t id = FindText(piece); id >= 0) {
      ids->push_back(id);
      return;
    }
    const bool has_bytes =
        std::all_of(piece.begin(), piece.end(), [&](char c) { return byte_ids_[static_cast<uint8_t>(c)] >= 0; });
    if (has_bytes) {
      for (const char c : piece) ids->push_back(byte_ids_[static_cast<uint8_t>(c)]);
    } else if (options_.unknown_id >= 0) {
      if (!after_unknown) ids->push_back(options_.unknown_id);
      state->last_unknown = true;
    } else {
      report->n_dropped_bytes += static_cast<int64_t>(piece.size());
    }
  }

  const Vocab& vocab_;
  const SpaceOptions options_;
  const WordCutter cutter_;
  int32_t byte_ids_[256];
};

}  // namespace

Result<std::unique_ptr<TokenModel>> MakeSpm(const Vocab& vocab, const SpaceOptions& options) {
  return std::unique_ptr<TokenModel>(std::make_unique<Spm>(vocab, options));
}

}  // namespace weir
