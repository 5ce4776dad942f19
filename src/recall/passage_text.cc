// SPDX-License-Identifier: Apache-2.0
#include "recall/passage_text.h"

#include <algorithm>
#include <bitset>
#include <string_view>
#include <vector>

#include "recall/terms.h"

namespace weir {
namespace {

bool IsSpace(char c) { return c == ' ' || c == '\n' || c == '\t' || c == '\r'; }

// Whether a sentence ends with the character whose last byte is at `at`.
bool EndsSentence(std::string_view text, size_t at) {
  const char c = text[at];
  const bool mark = c == '.' || c == '!' || c == '?';
  const bool line = c == '\n' && at + 1 < text.size() && text[at + 1] == '\n';
  if (line) return true;
  if (at >= 2) {
    const std::string_view wide = text.substr(at - 2, 3);  // full stop, exclamation and question mark of East Asia
    if (wide == "\u3002" || wide == "\uFF01" || wide == "\uFF1F") return true;
  }
  return mark && (at + 1 == text.size() || IsSpace(text[at + 1]) || text[at + 1] == '"');
}

size_t SentenceStart(std::string_view text, size_t at) {
  for (size_t i = at; i > 0; --i) {
    if (!EndsSentence(text, i - 1)) continue;
    size_t start = i;
    while (start < at && (IsSpace(text[start]) || text[start] == '"')) ++start;
    return start;
  }
  return at;
}

std::string_view Trimmed(std::string_view text) {
  const size_t begin = text.find_first_not_of(" \n\t\r");
  if (begin == text.npos) return {};
  return text.substr(begin, text.find_last_not_of(" \n\t\r") + 1 - begin);
}

size_t SentenceEnd(std::string_view text, size_t at) {
  for (size_t i = at > 0 ? at - 1 : 0; i < text.size(); ++i) {
    if (EndsSentence(text, i)) return i + 1 < text.size() && text[i + 1] == '"' ? i + 2 : i + 1;
  }
  return at;
}

}  // namespace

std::string_view WholeSentences(std::string_view text, size_t begin, size_t end) {
  begin = SentenceStart(text, begin);
  return Trimmed(text.substr(begin, SentenceEnd(text, end) - begin));
}

Result<std::string> PassageText(const Passage& passage, BlockSource& blocks) {
  std::string text;
  size_t begin = 0, end = 0;
  int32_t n = 0;
  const int32_t n_inside = passage.n_before + passage.n_blocks;
  WEIR_RETURN_IF_ERROR(blocks.ScanText(passage.from, [&](BlockPlace, const Block& block) {
    // The block before and the one after may be anything; what belongs to the passage is text.
    const bool inside = n >= passage.n_before && n < n_inside;
    if (!inside && (block.modality != Modality::kText || block.role != Role::kInput)) return ++n < n_inside;
    if (n == passage.n_before) begin = text.size();
    text += block.text;
    if (++n == n_inside) end = text.size();
    return n <= n_inside;
  }));
  if (end == 0) return std::string();
  std::string out(WholeSentences(text, begin, end));
  for (char& c : out) {
    if (static_cast<unsigned char>(c) < 0x20 && c != '\n') c = ' ';
  }
  return std::string(Trimmed(out));
}

std::string_view AroundBestSentence(std::string_view text, std::string_view question, int32_t n_context) {
  const TermTable table(QueryTerms(question));
  std::vector<std::string_view> sentences;
  for (size_t at = 0; at < text.size();) {
    size_t end = SentenceEnd(text, at + 1);
    if (end <= at + 1 && !EndsSentence(text, at)) end = text.size();
    sentences.push_back(text.substr(at, end - at));
    at = end;
  }
  size_t best = 0, most = 0;
  for (size_t i = 0; i < sentences.size(); ++i) {
    std::bitset<kMaxTerms> found;
    ForEachTerm(sentences[i], [&](Term term) {
      if (const int idx = table.Find(term); idx >= 0) found.set(static_cast<size_t>(idx));
    });
    if (found.count() >= most && found.any()) {
      most = found.count();
      best = i;
    }
  }
  if (sentences.empty()) return {};
  const auto context = static_cast<size_t>(n_context);
  const std::string_view first = sentences[best - std::min(best, context)];
  const std::string_view last = sentences[std::min(sentences.size() - 1, best + context)];
  return Trimmed({first.data(), static_cast<size_t>(last.data() + last.size() - first.data())});
}

}  // namespace weir
