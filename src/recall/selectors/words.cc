// weir-plugin: selector
// SPDX-License-Identifier: Apache-2.0
// words: BM25 (Robertson and Zaragoza 2009) over windows of two blocks that overlap by one, without normalisation by
// length (b = 0), since windows are of one length. Half of a score is what one sentence has of the question: in a list
// or a long text, words of neighbouring sentences meet by chance. The whole source is scanned twice, first for the
// windows that a word occurs in, then for scores: no index, so memory does not depend on the length of the stream.
#include <algorithm>
#include <array>
#include <bit>
#include <cmath>
#include <optional>
#include <utility>

#include "recall/selectors/selector.h"
#include "recall/sentences.h"
#include "recall/terms.h"

namespace weir {
namespace {

constexpr double kSaturation = 1.2;  // k1
// A question of so many words is about one statement: of sentences that have them all, the newest supersedes the
// others. Words of neighbouring sentences do not: in a long stream they meet by chance, and what they say is another
// thing.
constexpr size_t kStatement = 3;

// How often each of the question's words occurs.
using Counts = std::array<uint8_t, kMaxTerms>;

// The question's words in the sentences of a text, a bit each.
struct Said {
  uint64_t most = 0;            // in the sentence that has most of them
  uint64_t head = 0, tail = 0;  // before the first end of a sentence, and behind the last
  bool ends = false;            // a sentence ends inside
};
static_assert(kMaxTerms <= 64);

struct Window {
  Passage passage;
  Counts counts{};
  Said said;
  bool question = false;  // the user said it in a round
  bool asks = false;      // with a question mark
  int32_t n_new = 0;      // words that the question does not have
};

uint64_t More(uint64_t a, uint64_t b) { return std::popcount(a) >= std::popcount(b) ? a : b; }

// Of two texts, one behind the other: a sentence may go on from one to the other.
Said Joined(const Said& a, const Said& b) {
  const uint64_t middle = a.tail | b.head;
  Said out;
  out.most = More(More(a.most, b.most), middle);
  out.head = a.ends ? a.head : middle;
  out.tail = b.ends ? b.tail : middle;
  out.ends = a.ends || b.ends;
  return out;
}

void CountTerms(std::string_view text, const TermTable& table, Window* window) {
  Said& said = window->said;
  for (size_t at = 0; at < text.size();) {
    size_t end = at;
    while (end < text.size() && !(MayEndSentence(text[end]) && EndsSentence(text, end))) ++end;
    uint64_t found = 0;
    ForEachTerm(text.substr(at, end - at), [&](Term term) {
      const int idx = table.Find(term);
      if (idx < 0) return;
      uint8_t& count = window->counts[static_cast<size_t>(idx)];
      count = static_cast<uint8_t>(std::min(100, count + 1));
      found |= uint64_t{1} << idx;
    });
    said.most = More(said.most, found);
    if (!said.ends) said.head = found;
    said.tail = end < text.size() ? 0 : found;
    said.ends |= end < text.size();
    at = end + 1;
  }
}

// Calls `each` with every window of blocks that may be brought back. A block between two that may not is a window; so
// is one that pictures follow, with these.
template <typename Each>
Status ForEachWindow(BlockSource& blocks, const RecallQuery& query, const TermTable& table, const Each& visit) {
  std::vector<Term> words;  // of the question, with those that say nothing
  ForEachTerm(query.text, [&](Term word) {
    if (words.size() < kMaxTerms && std::ranges::find(words, word) == words.end()) words.push_back(word);
  });
  const TermTable asked(words);
  // The question's earlier copies are left out, and so are questions with one other word: they say nothing. A statement
  // with one other word ("My cat is called Tom.") may be the answer.
  const auto each = [&](const Window& window) {
    if (!window.question || window.n_new > (window.asks ? 1 : 0)) visit(window);
  };
  struct Seen {
    BlockPlace place;
    Window alone;
  };
  std::optional<Seen> before, last;  // the two latest blocks, while nothing lies between
  Role role = Role::kInput;          // of the last
  const auto end = [&] {
    if (last && (!before || last->alone.passage.n_rows > 0)) each(std::as_const(last->alone));
    before.reset();
    last.reset();
  };
  WEIR_RETURN_IF_ERROR(blocks.ScanText(blocks.begin(), [&](BlockPlace place, const Block& block) {
    if (block.modality != Modality::kText && last) {
      Passage& shown = last->alone.passage;
      ++shown.n_blocks;
      shown.n_rows += block.n_tokens;
      shown.seq_end = block.seq_end();
      return true;
    }
    if (last && last->alone.passage.n_rows > 0) {
      each(std::as_const(last->alone));
      before.reset();
      last.reset();
    }
    if (block.modality != Modality::kText || !query.MayBring(block)) {
      end();
      return true;
    }
    Window alone;
    if (block.role != role) end();  // what two said is not one passage
    role = block.role;
    alone.passage = {.from = place, .n_blocks = 1, .seq = block.seq, .seq_end = block.seq_end(), .t_ms = block.t_ms};
    alone.question = block.role == Role::kQuestion;
    if (alone.question) {
      alone.n_new = CountNewWords(block.text, asked);
      for (const char* mark : {"?", "\uff1f", "\u061f"}) alone.asks |= block.text.find(mark) != block.text.npos;
    }
    CountTerms(block.text, table, &alone);
    if (last) {
      Window both = last->alone;
      both.passage.n_blocks = 2;
      both.n_new += alone.n_new;
      both.asks |= alone.asks;
      both.passage.seq_end = block.seq_end();
      if (before) {
        both.passage.from = before->place;
        both.passage.n_before = 1;
      }
      both.said = Joined(last->alone.said, alone.said);
      for (size_t t = 0; t < kMaxTerms; ++t) both.counts[t] = static_cast<uint8_t>(both.counts[t] + alone.counts[t]);
      each(std::as_const(both));
      before = std::move(last);
    }
    last = {place, alone};
    return true;
  }));
  end();
  return Status();
}

class Words final : public Selector {
 public:
  explicit Words(bool older) : older_(older) { best_.reserve(kRoom); }
  int64_t MemoryBytes() const override { return static_cast<int64_t>(kRoom * sizeof(Kept)); }

  Result<std::vector<Passage>> Select(const RecallQuery& query, BlockSource& blocks) override {
    const std::vector<Term> terms = QueryTerms(query.text);
    if (terms.empty()) return std::vector<Passage>();
    const TermTable table(terms);
    std::array<int64_t, kMaxTerms> n_with{};
    int64_t n_windows = 0;
    WEIR_RETURN_IF_ERROR(ForEachWindow(blocks, query, table, [&](const Window& window) {
      ++n_windows;
      for (size_t t = 0; t < terms.size(); ++t) n_with[t] += window.counts[t] > 0;
    }));
    std::array<double, kMaxTerms> weight{};
    double whole = 0;
    for (size_t t = 0; t < terms.size(); ++t) {
      const auto n = static_cast<double>(n_with[t]);
      weight[t] = std::log(1 + (static_cast<double>(n_windows) - n + 0.5) / (n + 0.5));
      whole += weight[t];
    }
    best_.clear();
    Passage newest;  // that says all of the question's words
    WEIR_RETURN_IF_ERROR(ForEachWindow(blocks, query, table, [&](const Window& window) {
      double score = 0, together = 0;
      const bool all =
          terms.size() >= kStatement && static_cast<size_t>(std::popcount(window.said.most)) == terms.size();
      for (size_t t = 0; t < terms.size(); ++t) {
        const double n = window.counts[t];
        score += weight[t] * n * (kSaturation + 1) / (n + kSaturation);
        if ((window.said.most >> t & 1) != 0) together += weight[t];
      }
      score = (score + together) / 2;
      if (score > 0) Keep(window.passage, score / whole, all);
      if (all) {
        newest = window.passage;
        newest.score = score / whole;
      }
    }));
    std::vector<Passage> out;
    // It goes first: passages that repeat the words may score higher.
    if (newest.seq_end > 0 && !older_) out.push_back(newest);
    for (const Kept& kept : best_) {
      const Passage& one = kept.passage;
      if (kept.all && !older_ && one.seq_end <= newest.seq) continue;
      const auto overlaps = [&](const Passage& other) { return one.seq < other.seq_end && other.seq < one.seq_end; };
      if (std::ssize(out) == query.most) break;
      if (std::ranges::none_of(out, overlaps)) out.push_back(one);
    }
    for (Passage& one : out) {
      one.score = std::min(one.score, 1.0);
      one.held = one.seq >= query.held_from;
    }
    // What the pot holds is newer than what matches no better than it: an older value of the same thing, say.
    const auto held = std::ranges::find(out, true, &Passage::held);
    if (held != out.end()) out.erase(held + 1, out.end());
    return out;
  }

 private:
  static constexpr size_t kMaxKept = 256, kRoom = kMaxKept + 1;  // one comes before one goes
  struct Kept {
    Passage passage;
    bool all;  // a sentence has all of the question's words
  };
  // Windows come in the order of the stream: among equals the newest goes first.
  void Keep(Passage passage, double score, bool all) {
    const auto score_of = [](const Kept& kept) { return kept.passage.score; };
    if (best_.size() == kMaxKept && score < score_of(best_.back())) return;
    passage.score = score;
    const auto at = std::ranges::lower_bound(best_, score, std::greater(), score_of);
    best_.insert(at, {passage, all});
    if (best_.size() > kMaxKept) best_.pop_back();
  }

  const bool older_;
  std::vector<Kept> best_;
};

constexpr OptionInfo kOptions[] = {
    {.key = "older",
     .fallback = 0,
     .min = 0,
     .max = 1,
     .integral = true,
     .help = "1: also what a newer passage with all of the question's words supersedes"}};

}  // namespace

extern const SelectorInfo kWordsSelector;
const SelectorInfo kWordsSelector = {
    .name = "words",
    .summary = "passages that share rare words with the question (BM25)",
    .source = "Robertson and Zaragoza 2009",
    .options = kOptions,
    .make = [](const Options& options) { return std::unique_ptr<Selector>(new Words(options.Int("older") != 0)); },
};

}  // namespace weir
