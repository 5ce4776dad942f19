// SPDX-License-Identifier: Apache-2.0
// Unigram language model (T5 and its kin): of all ways to write a text as tokens, the one with the highest sum of
// scores (Kudo 2018, "Subword Regularization"; google/sentencepiece, unigram_model.cc). Text is normalised first by
// rules that the file carries in compiled form ("precompiled charsmap": a double array, Kanda 2018, and the replacement
// texts, each ended by a zero byte).
#include <algorithm>
#include <cfloat>
#include <cstring>
#include <limits>

#include "base/utf8.h"
#include "text/pretokenizer.h"
#include "text/token_model.h"

namespace weir {
namespace {

// The normaliser's rules. Every index is checked when it is used: the array comes unverified from the file.
class Charsmap {
 public:
  Status Load(std::string blob) {
    if (blob.empty()) return Status();
    if (blob.size() < 4) return Corrupt("tokenizer.ggml.precompiled_charsmap: {} bytes is too short", blob.size());
    uint32_t trie_bytes = 0;  // little-endian, like the trie itself
    for (int i = 3; i >= 0; --i) trie_bytes = trie_bytes << 8 | static_cast<uint8_t>(blob[i]);
    if (trie_bytes % 4 || trie_bytes > blob.size() - 4) {
      return Corrupt("tokenizer.ggml.precompiled_charsmap: a trie of {} bytes in {}", trie_bytes, blob.size());
    }
    trie_.resize(trie_bytes / 4);
    if (!trie_.empty()) std::memcpy(trie_.data(), blob.data() + 4, trie_bytes);
    texts_ = blob.substr(4 + trie_bytes);
    // With a final zero byte, every offset inside is a terminated text.
    if (!texts_.empty() && texts_.back() != '\0') {
      return Corrupt("tokenizer.ggml.precompiled_charsmap: the last replacement has no end");
    }
    return Status();
  }

  // The longest rule that is a prefix of the text: how many bytes it replaces (0: none) and its replacement.
  size_t Match(std::string_view text, std::string_view* replacement) const {
    size_t longest = 0;
    if (trie_.empty()) return 0;
    uint32_t node = Base(trie_[0]);
    for (size_t i = 0; i < text.size(); ++i) {
      const auto byte = static_cast<uint8_t>(text[i]);
      node ^= byte;
      if (byte == 0 || node >= trie_.size() || Label(trie_[node]) != byte) break;
      const bool has_value = trie_[node] >> 8 & 1;
      node ^= Base(trie_[node]);
      if (node >= trie_.size()) break;
      const uint32_t offset = trie_[node] & 0x7FFFFFFF;
      if (has_value && offset < texts_.size()) {
        longest = i + 1;
        *replacement = texts_.c_str() + offset;
      }
    }
    return longest;
  }

 private:
  static uint32_t Base(uint32_t unit) { return (unit >> 10) << ((unit & 1u << 9) >> 6); }
  static uint32_t Label(uint32_t unit) { return unit & (1u << 31 | 0xFF); }
  std::vector<uint32_t> trie_;
  std::string texts_;
};

// Bytes -> token, for all prefixes of a text at once. Children are a sorted run of one array.
class Trie {
 public:
  explicit Trie(std::vector<std::pair<std::string_view, int32_t>> entries) {
    std::stable_sort(entries.begin(), entries.end(), [](const auto& a, const auto& b) { return a.first < b.first; });
    nodes_.push_back({});
    // Breadth first over ranges of the sorted list, so that a node's children are adjacent.
    struct Range {
      size_t begin, end, depth;
      uint32_t node;
    };
    std::vector<Range> queue{{0, entries.size(), 0, 0}};
    for (size_t q = 0; q < queue.size(); ++q) {
      auto [begin, end, depth, node] = queue[q];
      while (begin < end && entries[begin].first.size() == depth) nodes_[node].id = entries[begin++].second;
      nodes_[node].first_child = static_cast<uint32_t>(nodes_.size());
      while (begin < end) {
        const char byte = entries[begin].first[depth];
        size_t stop = begin;
        while (stop < end && entries[stop].first[depth] == byte) ++stop;
        queue.push_back({begin, stop, depth + 1, static_cast<uint32_t>(nodes_.size())});
        nodes_.push_back({});
        nodes_.back().byte = static_cast<uint8_t>(byte);
        ++nodes_[node].n_children;
        begin = stop;
      }
    }
  }
  // -1 when there is no such child. Node 0 is the root.
  int64_t Child(int64_t node, char byte) const {
    const auto first = nodes_.begin() + nodes_[node].first_child, last = first + nodes_[node].n_children;
    const auto it =
        std::lower_bound(first, last, static_cast<uint8_t>(byte), [](const Node& n, uint8_t b) { return n.byte < b; });
    return it != last && it->byte == static_cast<uint8_t>(byte) ? it - nodes_.begin() : -1;
  }
  int32_t Id(int64_t node) const { return nodes_[node].id; }

 private:
  struct Node {
    uint32_t first_child = 0;
    uint16_t n_children = 0;
    uint8_t byte = 0;
    int32_t id = -1;
  };
  std::vector<Node> nodes_;
};

std::vector<std::pair<std::string_view, int32_t>> Entries(const Vocab& vocab) {
  std::vector<std::pair<std::string_view, int32_t>> out;
  for (int32_t id = 0; id < vocab.size(); ++id) {
    const TokenType type = vocab.type[id];
    if (type == TokenType::kNormal || type == TokenType::kUserDefined || type == TokenType::kUnused) {
      out.emplace_back(vocab.text[id], id);
    }
  }
  return out;
}

class Unigram final : public TokenModel {
 public:
  Unigram(const Vocab& vocab, const SpaceOptions& options)
      : vocab_(vocab), options_(options), cutter_(vocab), trie_(Entries(vocab)) {
    float lowest = 0;
    for (int32_t id = 0; id < vocab.size(); ++id) {
      if (vocab.type[id] == TokenType::kNormal) lowest = std::min(lowest, vocab.score[id]);
      const int byte = vocab.type[id] == TokenType::kByte ? ParseByteToken(vocab.text[id]) : -1;
      if (byte >= 0) byte_ids_[byte] = id, ++n_byte_ids_;
    }
    unknown_score_ = lowest - 10.0;  // sentencepiece's kUnkPenalty
  }

  Status LoadCharsmap(std::string blob) { return charsmap_.Load(std::move(blob)); }

  size_t Encode(std::string_view text, bool more, FragmentState* state, std::vector<int32_t>* ids,
                EncodeReport* report) const override {
    std::string word;
    size_t pos = 0;
    while (pos < text.size()) {
      // A word grows until it may be cut; if it never may before the text runs out, it waits and its state is restored.
      FragmentState next = *state;
      word.clear();
      size_t end = pos;
      for (bool complete = false; !complete;) {
        const size_t begin = end;
        const size_t limit = WordLimit(text, pos);
        end = std::min(NextCandidate(text, end), limit);
        if (end == text.size() && more) return pos;
        Normalize(text.substr(begin, end - begin), &next, &word);
        next.at_start = false;
        complete = end == limit || cutter_.MayCutBeforeSpace(word);
      }
      Viterbi(word, &next, ids, report);
      *state = next;
      pos = end;
    }
    return pos;
  }

  std::string Bytes(std::string_view token_text) const override { return UnescapeSpaces(token_text); }

 private:
  // The position where a word that begins at `pos` ends.
  static size_t WordLimit(std::string_view text, size_t pos) {
    size_t limit = std::min(text.size(), pos + kMaxWordBytes);
    while (limit < text.size() && (static_cast<uint8_t>(text[limit]) & 0xC0) == 0x80) --limit;
    return limit;
  }

  // The next space after another character. Raw text is examined, because the normaliser's rules may turn other
  // characters into spaces; no rule spans a space.
  static size_t NextCandidate(std::string_view text, size_t pos) {
    for (++pos; pos < text.size(); ++pos) {
      if (text[pos] == ' ' && text[pos - 1] != ' ') break;
    }
    return std::min(pos, text.size());
  }

  void Normalize(std::string_view raw, FragmentState* state, std::string* out) const {
    if (state->at_start && options_.add_space_prefix && !options_.remove_extra_whitespaces) *out += kSpaceMark;
    for (size_t pos = 0; pos < raw.size();) {
      std::string_view part = raw.substr(pos, Utf8Bytes(raw[pos]));
      std::string_view replacement;
      if (const size_t n = charsmap_.Match(raw.substr(pos), &replacement)) {
        pos += n;
        part = replacement;
      } else {
        pos += part.size();
      }
      for (const char c : part) {
        if (c == ' ') {
          state->in_word = false;
          // Runs of spaces shrink to one, written when the next word begins; trailing ones disappear.
          if (!options_.remove_extra_whitespaces) *out += kSpaceMark;
          continue;
        }
        if (!state->in_word) {
          state->in_word = true;
          // The first run becomes the prefix, if there is to be one.
          const bool wanted = state->word_seen || options_.add_space_prefix;
          if (options_.remove_extra_whitespaces && wanted) *out += kSpaceMark;
          state->word_seen = true;
        }
        *out += c;
      }
    }
  }

  struct Best {
    double score = -DBL_MAX;
    uint32_t from = 0;
    int32_t id = -1;
  };

  void Viterbi(std::string_view word, FragmentState* state, std::vector<int32_t>* ids, EncodeReport* report) const {
    std::vector<Best> best(word.size() + 1);
    best[0].score = 0;
    for (size_t pos = 0; pos < word.size();) {
      // A replacement comes from the file: its bytes may be invalid UTF-8.
      const size_t char_bytes = DecodeUtf8(word, pos).bytes;
      bool has_single = false;
      const auto reach = [&](size_t end, int32_t id, double score) {
        if (best[pos].score + score > best[end].score)
          best[end] = {best[pos].score + score, static_cast<uint32_t>(pos), id};
      };
      int64_t node = 0;
      for (size_t end = pos; end < word.size();) {
        node = trie_.Child(node, word[end]);
        if (node < 0) break;
        ++end;
        const int32_t id = trie_.Id(node);
        if (id < 0) continue;
        if (end - pos == char_bytes) has_single = true;
        reach(end, id, vocab_.type[id] == TokenType::kUserDefined ? 0.0 : vocab_.score[id]);
      }
      if (!has_single) reach(pos + char_bytes, -1, unknown_score_);
      pos += char_bytes;
    }
    std::vector<std::pair<size_t, size_t>> path;  // [begin, end), last first
    for (size_t end = word.size(); end > 0; end = best[end].from) path.emplace_back(best[end].from, end);
    for (auto it = path.rbegin(); it != path.rend(); ++it) {
      const int32_t id = best[it->second].id;
      if (id >= 0) {
        ids->push_back(id);
      } else {
        EmitUnknown(word.substr(it->first, it->second - it->first), state->last_unknown, ids, report);
      }
      state->last_unknown = id < 0;
    }
  }

  // Neighbouring unknown characters share one unknown token.
  void EmitUnknown(std::string_view piece, bool after_unknown, std::vector<int32_t>* ids, EncodeReport* report) const {
    if (n_byte_ids_ == 256) {
      for (const char c : piece) ids->push_back(byte_ids_[static_cast<uint8_t>(c)]);
    } else if (options_.unknown_id >= 0) {
      if (!after_unknown) ids->push_back(options_.unknown_id);
    } else {
      report->n_dropped_bytes += static_cast<int64_t>(piece.size());
    }
  }

  const Vocab& vocab_;
  const SpaceOptions options_;
  const WordCutter cutter_;
  const Trie trie_;
  Charsmap charsmap_;
  double unknown_score_ = 0;
  int32_t byte_ids_[256] = {};
  int n_byte_ids_ = 0;
};

}  // namespace

Result<std::unique_ptr<TokenModel>> MakeUnigram(const Vocab& vocab, const SpaceOptions& options, std::string charsmap) {
  auto model = std::make_unique<Unigram>(vocab, options);
  WEIR_RETURN_IF_ERROR(model->LoadCharsmap(std::move(charsmap)));
  return std::unique_ptr<TokenModel>(std::move(model));
}

}  // namespace weir
