// weir-plugin: restorer
// SPDX-License-Identifier: Apache-2.0
// read: the passages' words, or pictures, are read again on top of the pot.
#include <algorithm>
#include <optional>
#include <utility>

#include "quant/half.h"
#include "recall/passage_text.h"
#include "recall/restorers/restorer.h"

namespace weir {

std::vector<int32_t> RestoreJob::Encode(std::string_view text) const {
  EncodeOptions options;
  options.add_special = false;
  return tokenizer.Encode(text, options);
}

namespace {

// Passages without pictures as they are read again.
std::string ExcerptText(const std::vector<RecalledPassage>& passages) {
  std::string out;
  for (const RecalledPassage& passage : passages) {
    if (passage.n_rows == 0) out += "\n" + passage.text;
  }
  return out.empty() ? out : "\n\n[From earlier in the text]" + out + "\n[End]";
}

// What a passage is, as words; its first block's where pictures follow. nullopt: it is gone.
Result<std::optional<std::string>> TextOf(const RestoreJob& job, const Passage& passage) {
  if (passage.n_rows == 0) {
    WEIR_ASSIGN_OR_RETURN(std::string text, PassageText(passage, job.blocks));
    if (!passage.whole) text = std::string(AroundBestSentence(text, job.question, job.context));
    return text.empty() ? std::nullopt : std::optional(std::move(text));
  }
  WEIR_ASSIGN_OR_RETURN(const bool there, HasPassage(passage, job.blocks));
  if (!there) return std::optional<std::string>();
  std::string text;
  int32_t n = 0;
  WEIR_RETURN_IF_ERROR(job.blocks.ScanText(passage.from, [&](BlockPlace, const Block& block) {
    if (n >= passage.n_before) text += block.text;
    return ++n < passage.n_before + passage.n_blocks;
  }));
  return std::optional(std::string(AroundBestSentence(text, job.question, 0)));
}

Status ReadPictures(const RestoreJob& job, const Passage& passage, const Session::AppendOptions& append) {
  Status status;
  Session::AppendOptions here = append;
  WEIR_RETURN_IF_ERROR(job.blocks.Scan(passage.from, [&](BlockPlace, const Block& block) {
    if (block.seq >= passage.seq_end) return false;
    const bool fits = !block.rows.empty() && block.rows.size() <= job.rows.size();
    if (block.seq >= passage.seq && fits) {
      std::ranges::transform(block.rows, job.rows.begin(), F16ToF32);
      here.columns = block.columns;
      status = job.session.AppendEmbeddings(job.rows.first(block.rows.size()), block.modality, here);
    }
    return status.ok();
  }));
  return status;
}

class Read final : public Restorer {
 public:
  // Pictures come first, each behind its words; then texts, together.
  Result<std::vector<RecalledPassage>> Restore(const RestoreJob& job, std::span<const Passage> passages) override {
    std::vector<RecalledPassage> out;
    std::vector<Passage> shown;
    std::vector<int32_t> text_tokens;
    int64_t n_shown_tokens = 0;
    const int64_t n_left = job.n_left();
    for (const Passage& passage : passages) {
      if (passage.n_rows > 0 && job.rows.empty()) continue;
      WEIR_ASSIGN_OR_RETURN(std::optional<std::string> text, TextOf(job, passage));
      if (!text) continue;
      std::vector<RecalledPassage> more = out;
      const int64_t n_tokens = passage.n_rows == 0 ? 0 : passage.n_rows + std::ssize(job.Encode(*text));
      more.push_back({passage.seq, passage.seq_end, passage.t_ms, passage.score, passage.n_rows, *std::move(text)});
      std::ranges::sort(more, {}, &RecalledPassage::seq);
      std::vector<int32_t> tokens = job.Encode(ExcerptText(more));
      if (n_shown_tokens + n_tokens + std::ssize(tokens) > n_left) continue;
      n_shown_tokens += n_tokens;
      if (passage.n_rows > 0) shown.push_back(passage);
      out = std::move(more);
      text_tokens = std::move(tokens);
    }
    Session::AppendOptions append;
    append.excerpt = true;
    append.t_src_ms = job.t_ms;
    std::ranges::sort(shown, {}, &Passage::seq);
    for (const Passage& passage : shown) {
      const auto at = std::ranges::find(out, passage.seq, &RecalledPassage::seq);
      WEIR_RETURN_IF_ERROR(job.session.Append(job.Encode(at->text), append));
      WEIR_RETURN_IF_ERROR(ReadPictures(job, passage, append));
    }
    if (!text_tokens.empty()) WEIR_RETURN_IF_ERROR(job.session.Append(text_tokens, append));
    return out;
  }
};

}  // namespace

extern const RestorerInfo kReadRestorer;
const RestorerInfo kReadRestorer = {
    .name = "read",
    .summary = "reads the passages again on top of the pot",
    .make = [](const Options&) { return std::unique_ptr<Restorer>(new Read); },
};

}  // namespace weir
