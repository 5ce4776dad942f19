// SPDX-License-Identifier: Apache-2.0
#include "recall/passage_text.h"

#include <algorithm>
#include <bitset>
#include <string_view>
#include <vector>

#include "recall/sentences.h"
#include "recall/terms.h"

namespace weir {
namespace {

std::string_view Trimmed(std::string_view text) {
  const size_t begin = text.find_first_not_of(" \n\t\r");
  if (begin == text.npos) return {};
  return text.substr(begin, text.find_last_not_of(" \n\t\r") + 1 - begin);
}

}  // namespace

std::string_view WholeSentences(std::string_view text, size_t begin, size_t end) {
  begin = SentenceStart(text, begin);
  return Trimmed(text.substr(begin, SentenceEnd(text, end) - begin));
}

Result<bool> HasPassage(const Passage& passage, BlockSource& blocks) {
  bool begins = false, ends = false;
  bool words = passage.n_rows > 0;  // the frame of a chat has none
  int32_t n = 0;
  WEIR_RETURN_IF_ERROR(blocks.ScanText(passage.from, [&](BlockPlace place, const Block& block) {
    if (n == 0 && place != passage.from) return false;  // where the first block was, there is none
    begins |= block.seq == passage.seq;
    words |= block.seq >= passage.seq && !block.text.empty();
    ends |= block.seq_end() == passage.seq_end;
    return ++n < passage.n_before + passage.n_blocks;
  }));
  return begins && ends && words;
}

Result<std::string> PassageText(const Passage& passage, BlockSource& blocks) {
  WEIR_ASSIGN_OR_RETURN(const bool there, HasPassage(passage, blocks));
  if (!there) return std::string();
  std::string text;
  size_t begin = 0, end = 0;
  int32_t n = 0;
  int64_t seq_end = 0;  // of the block before; a damaged one is missing, and what surrounds it is not one sentence
  const int32_t n_inside = passage.n_before + passage.n_blocks;
  WEIR_RETURN_IF_ERROR(blocks.ScanText(passage.from, [&](BlockPlace, const Block& block) {
    // The block before and the one after may be anything; what belongs to the passage is text.
    const bool inside = n >= passage.n_before && n < n_inside;
    if (!inside && (block.modality != Modality::kText || block.role != Role::kInput)) return ++n < n_inside;
    const bool gap = n > 0 && block.seq > seq_end;
    seq_end = block.seq_end();
    if (gap && n == n_inside) return false;
    if (gap && n == passage.n_before) text.clear();
    if (gap && n > passage.n_before) text += " ... ";
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
    // A passage begins where a line begins, which shows how long the first one is.
    size_t end = SentenceEnd(text, at + 1, true);
    if (end <= at + 1 && !EndsSentence(text, at)) end = text.size();
    sentences.push_back(std::string_view(text).substr(at, end - at));
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
  if (most == 0) return Trimmed(text);
  const auto context = static_cast<size_t>(n_context);
  const std::string_view first = sentences[best - std::min(best, context)];
  const std::string_view last = sentences[std::min(sentences.size() - 1, best + context)];
  return Trimmed({first.data(), static_cast<size_t>(last.data() + last.size() - first.data())});
}

}  // namespace weir
