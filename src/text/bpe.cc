// SPDX-License-Identifier: Apache-2.0
// Byte-level BPE (GPT-2, Llama 3, Qwen, SmolLM): every byte is a printable character of the vocabulary's alphabet, a
// pre-tokenizer cuts the text into words, and inside a word the pair with the lowest merge rank is joined until none is
// left (Sennrich et al. 2016; alphabet: openai/gpt-2, bytes_to_unicode).
#include <algorithm>
#include <array>
#include <cstring>

#include "base/utf8.h"
#include "text/pretokenizer.h"
#include "text/special_tokens.h"
#include "text/token_model.h"

namespace weir {
namespace {

// GPT-2's alphabet: printable Latin-1 bytes stand for themselves, the other 68 follow from U+0100 on.
std::array<char32_t, 256> MakeAlphabet() {
  std::array<char32_t, 256> alphabet{};
  char32_t next = 0x100;
  for (int b = 0; b < 256; ++b) {
    const bool printable = (b >= 0x21 && b <= 0x7E) || (b >= 0xA1 && b <= 0xAC) || b >= 0xAE;
    alphabet[b] = printable ? b : next++;
  }
  return alphabet;
}

const std::array<char32_t, 256>& Alphabet() {
  static const std::array<char32_t, 256> alphabet = MakeAlphabet();
  return alphabet;
}

// The inverse: -1 for characters that represent no byte.
int ByteOf(char32_t cp) {
  static const std::array<int16_t, 0x144> inverse = [] {
    std::array<int16_t, 0x144> out;
    out.fill(-1);
    for (int b = 0; b < 256; ++b) out[Alphabet()[b]] = static_cast<int16_t>(b);
    return out;
  }();
  return cp < inverse.size() ? inverse[cp] : -1;
}

struct Merge {
  uint32_t rank;
  int32_t result;
};
constexpr uint32_t kNoRank = UINT32_MAX;

// Pair of symbols -> merge. Open addressing, because encoding spends most of its time in this look-up.
class MergeTable {
 public:
  void Reserve(size_t n) {
    size_t slots = 16;
    while (slots < n * 2) slots *= 2;
    slots_.assign(slots, {kEmpty, {kNoRank, -1}});
    mask_ = slots - 1;
  }
  // The first of equal pairs wins.
  void Insert(int32_t left, int32_t right, Merge merge) {
    Slot& slot = slots_[Probe(Key(left, right))];
    if (slot.key == kEmpty) slot = {Key(left, right), merge};
  }
  Merge Find(int32_t left, int32_t right) const { return slots_[Probe(Key(left, right))].merge; }

 private:
  static constexpr uint64_t kEmpty = UINT64_MAX;
  struct Slot {
    uint64_t key;
    Merge merge;
  };
  static uint64_t Key(int32_t left, int32_t right) {
    return static_cast<uint64_t>(static_cast<uint32_t>(left)) << 32 | static_cast<uint32_t>(right);
  }
  size_t Probe(uint64_t key) const {
    size_t i = (key * 0x9E3779B97F4A7C15u >> 20) & mask_;
    while (slots_[i].key != key && slots_[i].key != kEmpty) i = (i + 1) & mask_;
    return i;
  }
  std::vector<Slot> slots_;
  size_t mask_ = 0;
};

// A cache of recent words and their tokens: text repeats itself, and most words are short. It has a fixed number of
// slots, each overwritten by the next word with the same hash, so its size is bounded.
class WordCache {
 public:
  static constexpr size_t kMaxWord = 15, kMaxIds = 4, kSlots = 4096;
  struct Slot {
    char word[kMaxWord + 1];  // the last byte is the length
    int32_t ids[kMaxIds];
    uint8_t n_ids;
  };
  WordCache() : slots_(kSlots, Slot{}) {}
  Slot* At(std::string_view word) {
    uint64_t a = 0, b = 0;
    std::memcpy(&a, word.data(), std::min<size_t>(word.size(), 8));
    if (word.size() > 8) std::memcpy(&b, word.data() + 8, word.size() - 8);
    const uint64_t hash = (a ^ (b + word.size()) * 0xC2B2AE3D27D4EB4Fu) * 0x9E3779B97F4A7C15u;
    return &slots_[hash >> 32 & (kSlots - 1)];
  }
  static bool Holds(const Slot& slot, std::string_view word) {
    return static_cast<size_t>(slot.word[kMaxWord]) == word.size() && !std::memcmp(slot.word, word.data(), word.size());
  }
  static void Put(Slot* slot, std::string_view word, const int32_t* ids, size_t n) {
    std::memcpy(slot->word, word.data(), word.size());
    slot->word[kMaxWord] = static_cast<char>(word.size());
    std::copy(ids, ids + n, slot->ids);
    slot->n_ids = static_cast<uint8_t>(n);
  }

 private:
  std::vector<Slot> slots_;
};

class Bpe final : public TokenModel {
 public:
  explicit Bpe(const Vocab& vocab) : vocab_(vocab) {}

  Status Build(const std::vector<std::string>& merges, std::string_view pre, bool* add_bos) {
    WEIR_ASSIGN_OR_RETURN(pre_, PreTokenizer::Create(pre));
    *add_bos = pre_->add_bos();
    if (merges.size() > static_cast<size_t>(INT32_MAX) / 4) return Corrupt("tokenizer.ggml.merges: too many entries");
    // Merges may go through symbols that are not tokens; those get numbers past the vocabulary, used only in this file.
    std::unordered_map<std::string, int32_t> extra;
    const auto symbol = [&](const std::string& text) {
      const int32_t id = vocab_.Find(text);
      if (id >= 0 && Mergeable(id)) return id;
      const auto [it, is_new] = extra.try_emplace(text, vocab_.size() + static_cast<int32_t>(extra.size()));
      if (is_new) extra_bytes_.push_back(Bytes(text));
      return it->second;
    };
    for (int b = 0; b < 256; ++b) {
      std::string text;
      AppendUtf8(Alphabet()[b], &text);
      byte_symbol_[b] = symbol(text);
    }
    merges_.Reserve(merges.size());
    for (size_t i = 0; i < merges.size(); ++i) {
      // A merge is written "left right"; the left part has at least one byte, which may itself be a space.
      const size_t space = merges[i].find(' ', 1);
      if (space == std::string::npos || space + 1 == merges[i].size()) {
        return Corrupt("tokenizer.ggml.merges[{}] is not two symbols with a space between", i);
      }
      const std::string left = merges[i].substr(0, space), right = merges[i].substr(space + 1);
      merges_.Insert(symbol(left), symbol(right), {static_cast<uint32_t>(i), symbol(left + right)});
    }
    if (pre_->whole_word_first()) {
      for (int32_t id = 0; id < vocab_.size(); ++id) {
        if (vocab_.type[id] != TokenType::kNormal) continue;
        whole_.emplace(Bytes(vocab_.text[id]), id);
      }
    }
    return Status();
  }

  size_t Encode(std::string_view text, bool more, FragmentState* state, std::vector<int32_t>* ids,
                EncodeReport* report) const override {
    state->at_start = false;
    // A cache pays off once words repeat; a short prompt would only pay for clearing it.
    std::unique_ptr<WordCache> cache;
    if (text.size() >= 16 << 10) cache = std::make_unique<WordCache>();
    Scratch scratch;
    size_t pos = 0;
    while (pos < text.size()) {
      const size_t bytes = pre_->WordBytes(text.substr(pos), more);
      if (bytes == 0) break;
      const std::string_view word = text.substr(pos, bytes);
      pos += bytes;
      WordCache::Slot* slot = cache && bytes <= WordCache::kMaxWord ? cache->At(word) : nullptr;
      if (slot && WordCache::Holds(*slot, word)) {
        ids->insert(ids->end(), slot->ids, slot->ids + slot->n_ids);
        continue;
      }
      const size_t before = ids->size();
      const int64_t dropped_before = report->n_dropped_bytes;
      EncodeWord(word, &scratch, ids, report);
      const size_t n = ids->size() - before;
      // A word that lost bytes is encoded again each time, so that every loss is counted.
      if (slot && n <= WordCache::kMaxIds && report->n_dropped_bytes == dropped_before) {
        WordCache::Put(slot, word, ids->data() + before, n);
      }
    }
    return pos;
  }

  std::string Bytes(std::string_view token_text) const override {
    std::string out;
    for (size_t pos = 0; pos < token_text.size();) {
      const Utf8Char c = DecodeUtf8(token_text, pos);
      const int byte = c.valid ? ByteOf(c.cp) : -1;
      if (byte >= 0) {
        out.push_back(static_cast<char>(byte));
      } else {
        out.append(token_text.substr(pos, c.bytes));
      }
      pos += c.bytes;
    }
    return out;
  }

 private:
  struct Symbol {
    int32_t id;
    int32_t prev, next;  // idx in the word, -1 at the ends
    uint32_t rank;       // of the merge with the next symbol
    int32_t result;
  };
  struct Candidate {
    uint32_t rank;
    int32_t left;
    int32_t left_id, right_id;  // the pair when it was found: a candidate is stale when either symbol has changed
    int32_t result;
    bool operator<(const Candidate& o) const { return rank != o.rank ? rank > o.rank : left > o.left; }
  };
  struct Scratch {
    std::vector<Symbol> symbols;
    std::vector<Candidate> heap;
  };

  // Ordinary text never encodes to control, unknown or byte tokens.
  bool Mergeable(int32_t id) const {
    const TokenType type = vocab_.type[id];
    return type == TokenType::kNormal || type == TokenType::kUserDefined || type == TokenType::kUnused;
  }

  void EncodeWord(std::string_view word, Scratch* scratch, std::vector<int32_t>* ids, EncodeReport* report) const {
    if (!whole_.empty()) {
      const auto it = whole_.find(word);
      if (it != whole_.end()) {
        ids->push_back(it->second);
        return;
      }
    }
    std::vector<Symbol>& symbols = scratch->symbols;
    symbols.resize(word.size());
    for (size_t i = 0; i < word.size(); ++i) symbols[i].id = byte_symbol_[static_cast<uint8_t>(word[i])];
    if (word.size() <= kShortWord) {
      MergeShort(&symbols);
      for (const Symbol& s : symbols) Emit(s.id, ids, report);
    } else {
      MergeLong(&symbols, &scratch->heap);
      for (int32_t i = 0; i >= 0; i = symbols[i].next) Emit(symbols[i].id, ids, report);
    }
  }

  // Both merge the pair of lowest rank, the leftmost among equals, until none is left. Scanning a short array is faster
  // than a heap; a long word needs the heap, to avoid quadratic time.
  static constexpr size_t kShortWord = 40;

  void MergeShort(std::vector<Symbol>* word) const {
    std::vector<Symbol>& s = *word;
    size_t n = s.size();
    const auto rank = [&](size_t i) {
      const Merge m = i + 1 < n ? merges_.Find(s[i].id, s[i + 1].id) : Merge{kNoRank, -1};
      s[i].rank = m.rank;
      s[i].result = m.result;
    };
    for (size_t i = 0; i < n; ++i) rank(i);
    while (n > 1) {
      size_t best = 0;
      for (size_t i = 1; i < n; ++i) {
        if (s[i].rank < s[best].rank) best = i;
      }
      if (s[best].rank == kNoRank) break;
      s[best].id = s[best].result;
      std::copy(s.begin() + best + 2, s.begin() + n, s.begin() + best + 1);
      --n;
      rank(best);
      if (best > 0) rank(best - 1);
    }
    s.resize(n);
  }

  void MergeLong(std::vector<Symbol>* word, std::vector<Candidate>* heap) const {
    std::vector<Symbol>& s = *word;
    heap->clear();
    for (size_t i = 0; i < s.size(); ++i) {
      s[i].prev = static_cast<int32_t>(i) - 1;
      s[i].next = i + 1 < s.size() ? static_cast<int32_t>(i) + 1 : -1;
    }
    const auto offer = [&](int32_t left) {
      if (left < 0 || s[left].next < 0) return;
      const int32_t right_id = s[s[left].next].id;
      const Merge m = merges_.Find(s[left].id, right_id);
      if (m.rank == kNoRank) return;
      heap->push_back({m.rank, left, s[left].id, right_id, m.result});
      std::push_heap(heap->begin(), heap->end());
    };
    for (size_t i = 0; i + 1 < s.size(); ++i) offer(static_cast<int32_t>(i));
    while (!heap->empty()) {
      std::pop_heap(heap->begin(), heap->end());
      const Candidate c = heap->back();
      heap->pop_back();
      const int32_t right = s[c.left].next;
      if (s[c.left].id != c.left_id || right < 0 || s[right].id != c.right_id) continue;
      s[c.left].id = c.result;
      s[c.left].next = s[right].next;
      if (s[right].next >= 0) s[s[right].next].prev = c.left;
      s[right].id = -1;
      offer(c.left);
      offer(s[c.left].prev);
    }
  }

  void Emit(int32_t symbol, std::vector<int32_t>* ids, EncodeReport* report) const {
    if (symbol < vocab_.size()) {
      ids->push_back(symbol);
      return;
    }
    // Not a token: its bytes, as far as they are tokens.
    for (const char c : extra_bytes_[symbol - vocab_.size()]) {
      const int32_t id = byte_symbol_[static_cast<uint8_t>(c)];
      if (id < vocab_.size()) {
        ids->push_back(id);
      } else {
        ++report->n_dropped_bytes;
      }
    }
  }

  const Vocab& vocab_;
  std::unique_ptr<PreTokenizer> pre_;
  MergeTable merges_;
  std::array<int32_t, 256> byte_symbol_{};
  std::vector<std::string> extra_bytes_;  // of symbols past the vocabulary
  std::unordered_map<std::string, int32_t, TextHash, std::equal_to<>>
      whole_;  // raw bytes -> id, if whole words come first
};

}  // namespace

Result<std::unique_ptr<TokenModel>> MakeBpe(const Vocab& vocab, const std::vector<std::string>& merges,
                                            std::string_view pre, bool* add_bos) {
  auto model = std::make_unique<Bpe>(vocab);
  WEIR_RETURN_IF_ERROR(model->Build(merges, pre, add_bos));
  return std::unique_ptr<TokenModel>(std::move(model));
}

}  // namespace weir
