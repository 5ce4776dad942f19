// SPDX-License-Identifier: Apache-2.0
#include "recall/recaller.h"

#include <algorithm>
#include <utility>

#include "quant/half.h"
#include "recall/passage_text.h"

namespace weir {

Recaller::Recaller(RecallSpec spec, BlockSource& blocks, const Tokenizer& tokenizer, Recorder* recorder,
                   std::span<float> rows)
    : spec_(std::move(spec)),
      blocks_(blocks),
      tokenizer_(tokenizer),
      recorder_(recorder),
      selector_(spec_.info->make(spec_.options)),
      rows_(rows) {}

int64_t Recaller::MemoryBytes(const RecallSpec& spec) { return spec.info->make(spec.options)->MemoryBytes(); }

std::string ExcerptText(const std::vector<RecalledPassage>& passages) {
  std::string out;
  for (const RecalledPassage& passage : passages) {
    if (passage.n_rows == 0) out += "\n" + passage.text;
  }
  return out.empty() ? out : "\n\n[From earlier in the text]" + out + "\n[End]";
}

std::vector<int32_t> Recaller::Encode(std::string_view text) const {
  EncodeOptions options;
  options.add_special = false;
  return tokenizer_.Encode(text, options);
}

Result<std::string> Recaller::TextOf(const Passage& passage, std::string_view question) {
  if (passage.n_rows == 0) {
    WEIR_ASSIGN_OR_RETURN(const std::string text, PassageText(passage, blocks_));
    return AroundBestSentence(text, question, spec_.context());
  }
  std::string text;
  int32_t n = 0;
  WEIR_RETURN_IF_ERROR(blocks_.Scan(passage.from, [&](BlockPlace, const Block& block) {
    if (n >= passage.n_before) text += block.text;
    return ++n < passage.n_before + passage.n_blocks;
  }));
  return AroundBestSentence(text, question, 0);
}

Status Recaller::ReadPictures(const Passage& passage, Session& session, const Session::AppendOptions& append) {
  Status status;
  int32_t n = 0;
  Session::AppendOptions here = append;
  WEIR_RETURN_IF_ERROR(blocks_.Scan(passage.from, [&](BlockPlace, const Block& block) {
    const bool fits = !block.rows.empty() && block.rows.size() <= rows_.size();
    if (n++ >= passage.n_before && fits) {
      std::ranges::transform(block.rows, rows_.begin(), F16ToF32);
      here.columns = block.columns;
      status = session.AppendEmbeddings(rows_.first(block.rows.size()), block.modality, here);
    }
    return status.ok() && n < passage.n_before + passage.n_blocks;
  }));
  return status;
}

Result<Recalled> Recaller::Bring(Session& session, std::string_view question, int64_t t_ms) {
  if (recorder_ != nullptr) recorder_->Flush();
  const RecallQuery query = {.text = question,
                             .held_from = std::max(session.held().unbroken_from, session.n_seen() - spec_.near()),
                             .n_seen = session.n_seen(),
                             .t_now_ms = t_ms,
                             .answers = spec_.answers(),
                             .most = spec_.n_passages()};
  WEIR_ASSIGN_OR_RETURN(const std::vector<Passage> found, selector_->Select(query, blocks_));
  // Pictures come first, each behind its words; then texts, together.
  Recalled out;
  std::vector<Passage> shown;
  std::vector<int32_t> text_tokens;
  int64_t n_shown_tokens = 0;
  for (const Passage& passage : found) {
    out.best_score = std::max(out.best_score, passage.score);
    if (passage.held || passage.score < std::max(spec_.gate(), spec_.margin() * found[0].score)) continue;
    if (passage.n_rows > 0 && rows_.empty()) continue;
    WEIR_ASSIGN_OR_RETURN(std::string text, TextOf(passage, question));
    if (text.empty() && passage.n_rows == 0) continue;
    std::vector<RecalledPassage> more = out.passages;
    const int64_t n_tokens = passage.n_rows == 0 ? 0 : passage.n_rows + std::ssize(Encode(text));
    more.push_back({passage.seq, passage.seq_end, passage.t_ms, passage.score, passage.n_rows, std::move(text)});
    std::ranges::sort(more, {}, &RecalledPassage::seq);
    std::vector<int32_t> tokens = Encode(ExcerptText(more));
    if (n_shown_tokens + n_tokens + std::ssize(tokens) > session.plan().excerpt_slots) continue;
    n_shown_tokens += n_tokens;
    if (passage.n_rows > 0) shown.push_back(passage);
    out.passages = std::move(more);
    text_tokens = std::move(tokens);
  }
  out.held = !found.empty() && found[0].held;
  out.gated = out.passages.empty() && !found.empty() && !out.held;

  Session::AppendOptions append;
  append.excerpt = true;
  append.t_src_ms = t_ms;
  std::ranges::sort(shown, {}, &Passage::seq);
  for (const Passage& passage : shown) {
    const auto at = std::ranges::find(out.passages, passage.seq, &RecalledPassage::seq);
    WEIR_RETURN_IF_ERROR(session.Append(Encode(at->text), append));
    WEIR_RETURN_IF_ERROR(ReadPictures(passage, session, append));
  }
  if (!text_tokens.empty()) WEIR_RETURN_IF_ERROR(session.Append(text_tokens, append));
  out.n_tokens = session.n_excerpt();
  return out;
}

}  // namespace weir
