// SPDX-License-Identifier: Apache-2.0
#include "recall/terms.h"

#include <algorithm>
#include <iterator>
#include <optional>
#include <string>

#include "base/utf8.h"

namespace weir {
namespace {

// Words of questions and of every text, as ForEachWord() gives them (without a plural's s); they would only dilute a
// search.
constexpr std::string_view kStopWords[] = {
    "a",     "about",   "according", "after", "all",  "also",   "am",   "an",   "and",   "answer", "any",   "are",
    "as",    "ask",     "at",        "be",    "been", "before", "but",  "by",   "can",   "could",  "did",   "do",
    "doe",   "earlier", "for",       "from",  "give", "had",    "has",  "have", "he",    "her",    "him",   "his",
    "how",   "i",       "if",        "in",    "into", "is",     "it",   "its",  "me",    "my",     "no",    "not",
    "of",    "on",      "one",       "or",    "our",  "please", "said", "say",  "she",   "should", "so",    "some",
    "tell",  "text",    "than",      "that",  "the",  "their",  "them", "then", "there", "these",  "they",  "thi",
    "those", "to",      "told",      "up",    "was",  "we",     "were", "what", "when",  "where",  "which", "who",
    "whom",  "whose",   "why",       "will",  "with", "would",  "you",  "your"};
static_assert(std::ranges::is_sorted(kStopWords), "it is searched by halves");

constexpr Term kBasis = 0x811C9DC5u;
Term Mix(Term hash, uint8_t byte) { return (hash ^ byte) * 0x01000193u; }

Term Hash(std::string_view word) {
  Term hash = kBasis;
  for (const char c : word) hash = Mix(hash, static_cast<uint8_t>(c));
  return hash;
}

bool IsIdeograph(char32_t cp) {
  return (cp >= 0x3040 && cp <= 0x30FF) || (cp >= 0x3400 && cp <= 0x9FFF) || (cp >= 0xF900 && cp <= 0xFAFF) ||
         (cp >= 0x20000 && cp <= 0x3FFFF);
}

// Letters beyond ASCII: everything but the blocks of punctuation, signs and spaces.
bool IsLetter(char32_t cp) {
  return cp >= 0xC0 && cp != 0xD7 && cp != 0xF7 && !(cp >= 0x2000 && cp <= 0x2BFF) && !(cp >= 0x3000 && cp <= 0x303F) &&
         !(cp >= 0xFE30 && cp <= 0xFE4F) && !(cp >= 0xFF00 && cp <= 0xFF0F) && cp != 0xFFFD;
}

char32_t Fold(char32_t cp) {
  if ((cp >= 0xC0 && cp <= 0xDE) || (cp >= 0x391 && cp <= 0x3A9) || (cp >= 0x410 && cp <= 0x42F)) return cp + 0x20;
  if (cp >= 0x400 && cp <= 0x40F) return cp + 0x50;
  if (cp >= 0x100 && cp <= 0x17F && cp != 0x130 && cp != 0x131) {
    // Capitals are even up to U+0137 and from U+014A to U+0177, odd in between and after.
    const bool even = cp <= 0x137 || (cp >= 0x14A && cp <= 0x177);
    return (cp % 2 == 0) == even ? cp + 1 : cp;
  }
  return cp;
}

// Harman's S stemmer: plurals in -ies, -es and -s.
void Stem(std::string* word) {
  if (word->ends_with("'s")) word->resize(word->size() - 2);
  const size_t n = word->size();
  if (n < 4 || word->back() != 's') return;
  if (word->ends_with("ies") && !word->ends_with("eies") && !word->ends_with("aies")) {
    word->replace(n - 3, 3, "y");
  } else if (!word->ends_with("us") && !word->ends_with("ss")) {
    word->pop_back();
  }
}

bool IsStopWord(std::string_view word) {
  return std::binary_search(std::begin(kStopWords), std::end(kStopWords), word);
}

template <typename Each>
void ForEachWord(std::string_view text, const Each& each) {
  std::string word;
  char32_t before = 0;  // the ideograph before this character
  const auto end = [&] {
    while (!word.empty() && word.back() == '\'') word.pop_back();
    if (word.empty()) return;
    Stem(&word);
    each(word);
    word.clear();
  };
  for (size_t at = 0; at < text.size();) {
    const auto byte = static_cast<uint8_t>(text[at]);
    if (byte < 0x80) {
      ++at;
      before = 0;
      if (byte >= 'A' && byte <= 'Z') {
        word.push_back(static_cast<char>(byte + 32));
      } else if ((byte >= 'a' && byte <= 'z') || (byte >= '0' && byte <= '9') || (byte == '\'' && !word.empty())) {
        word.push_back(static_cast<char>(byte));
      } else {
        end();
      }
      continue;
    }
    const Utf8Char c = DecodeUtf8(text, at);
    at += static_cast<size_t>(c.bytes);
    if (IsIdeograph(c.cp)) {
      end();
      std::string sign;
      AppendUtf8(c.cp, &sign);
      each(sign);
      if (before != 0) {
        std::string pair;
        AppendUtf8(before, &pair);
        AppendUtf8(c.cp, &pair);
        each(pair);
      }
      before = c.cp;
      continue;
    }
    before = 0;
    if (c.cp == 0x2019 && !word.empty()) {  // a typographer's apostrophe
      word.push_back('\'');
    } else if (IsLetter(c.cp)) {
      AppendUtf8(Fold(c.cp), &word);
    } else {
      end();
    }
  }
  end();
}

bool IsNumber(std::string_view word) {
  return std::ranges::all_of(word, [](char c) { return c >= '0' && c <= '9'; });
}

// Of a word and the number behind it.
Term Pair(Term word, Term number) {
  Term hash = Mix(word, ' ');
  for (int shift = 0; shift < 32; shift += 8) hash = Mix(hash, static_cast<uint8_t>(number >> shift));
  return hash;
}

}  // namespace

void ForEachTerm(std::string_view text, const std::function<void(Term)>& each) {
  Term before = kBasis;
  ForEachWord(text, [&](std::string_view word) {
    const Term term = Hash(word);
    each(term);
    if (before != kBasis && IsNumber(word)) each(Pair(before, term));
    before = term;
  });
}

std::vector<Term> QueryTerms(std::string_view question) {
  std::vector<Term> terms;
  const auto add = [&](Term term) {
    if (terms.size() < kMaxTerms && std::ranges::find(terms, term) == terms.end()) terms.push_back(term);
  };
  std::optional<Term> before;  // a word that says something
  ForEachWord(question, [&](std::string_view word) {
    const Term term = Hash(word);
    const bool says = !IsStopWord(word);
    if (says) add(term);
    if (before && IsNumber(word)) add(Pair(*before, term));
    before = says ? std::optional(term) : std::nullopt;
  });
  return terms;
}

int CountNewWords(std::string_view question, const TermTable& asked) {
  // Templates without control tokens leave such words around what was said.
  static constexpr std::string_view kOfTemplates[] = {"assistant", "user", "system",      "model",    "human",
                                                      "bot",       "inst", "instruction", "response", "question",
                                                      "answer",    "gpt",  "ai"};
  int n = 0;
  ForEachWord(question, [&](std::string_view word) {
    n += !IsStopWord(word) && std::ranges::find(kOfTemplates, word) == std::end(kOfTemplates) &&
         asked.Find(Hash(word)) < 0;
  });
  return n;
}

TermTable::TermTable(const std::vector<Term>& terms) {
  std::ranges::fill(slots_, int8_t{-1});
  for (size_t i = 0; i < std::min(terms.size(), kMaxTerms); ++i) {
    size_t at = terms[i] % kSize;
    while (slots_[at] >= 0) at = (at + 1) % kSize;
    keys_[at] = terms[i];
    slots_[at] = static_cast<int8_t>(i);
  }
}

}  // namespace weir
