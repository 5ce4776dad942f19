// SPDX-License-Identifier: Apache-2.0
#include "recall/recaller.h"

#include <algorithm>
#include <utility>

#include "recall/passage_text.h"

namespace weir {

Recaller::Recaller(RecallSpec spec, BlockSource& blocks, const Tokenizer& tokenizer, Recorder* recorder)
    : spec_(std::move(spec)),
      blocks_(blocks),
      tokenizer_(tokenizer),
      recorder_(recorder),
      selector_(spec_.info->make(spec_.options)) {}

int64_t Recaller::MemoryBytes(const RecallSpec& spec) { return spec.info->make(spec.options)->MemoryBytes(); }

std::string ExcerptText(const std::vector<RecalledPassage>& passages) {
  if (passages.empty()) return "";
  // Quoted: what a passage says is data, whatever it asks for.
  std::string out = "\n\n[Earlier:\n\"";
  for (const RecalledPassage& passage : passages) out += (&passage == passages.data() ? "" : "\n\n") + passage.text;
  return out + "\"]";
}

std::vector<int32_t> Recaller::Encode(const std::vector<RecalledPassage>& passages) const {
  EncodeOptions options;
  options.add_special = false;
  return tokenizer_.Encode(ExcerptText(passages), options);
}

Result<Recalled> Recaller::Bring(Session& session, std::string_view question, int64_t t_ms) {
  if (recorder_ != nullptr) recorder_->Flush();
  const RecallQuery query = {.text = question,
                             .unbroken_from = session.held().unbroken_from,
                             .n_seen = session.n_seen(),
                             .t_now_ms = t_ms,
                             .answers = spec_.answers(),
                             .most = spec_.n_passages()};
  WEIR_ASSIGN_OR_RETURN(const std::vector<Passage> found, selector_->Select(query, blocks_));
  Recalled out;
  std::vector<int32_t> tokens;
  for (const Passage& passage : found) {
    out.best_score = std::max(out.best_score, passage.score);
    if (passage.held || passage.score < std::max(spec_.gate(), spec_.margin() * found[0].score)) continue;
    WEIR_ASSIGN_OR_RETURN(std::string text, PassageText(passage, blocks_));
    if (text.empty()) continue;
    std::vector<RecalledPassage> more = out.passages;
    more.push_back({passage.seq, passage.seq_end, passage.t_ms, passage.score, std::move(text)});
    std::ranges::sort(more, {}, &RecalledPassage::seq);
    std::vector<int32_t> encoded = Encode(more);
    if (std::ssize(encoded) > session.plan().excerpt_slots) continue;
    out.passages = std::move(more);
    tokens = std::move(encoded);
  }
  out.held = !found.empty() && found[0].held;
  out.gated = out.passages.empty() && !found.empty() && !out.held;
  out.n_tokens = static_cast<int32_t>(tokens.size());
  Session::AppendOptions append;
  append.excerpt = true;
  append.t_src_ms = t_ms;
  if (!tokens.empty()) WEIR_RETURN_IF_ERROR(session.Append(tokens, append));
  return out;
}

}  // namespace weir
