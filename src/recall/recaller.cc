// SPDX-License-Identifier: Apache-2.0
#include "recall/recaller.h"

#include <algorithm>
#include <limits>
#include <numeric>
#include <utility>

namespace weir {

Recaller::Recaller(RecallSpec spec, BlockSource& blocks, const Tokenizer& tokenizer, Recorder* recorder,
                   std::span<float> rows)
    : spec_(std::move(spec)),
      blocks_(blocks),
      tokenizer_(tokenizer),
      recorder_(recorder),
      selector_(spec_.info->make(spec_.options)),
      restorer_(spec_.restorer->make(spec_.options)),
      rows_(rows) {}

int64_t Recaller::MemoryBytes(const RecallSpec& spec) { return spec.info->make(spec.options)->MemoryBytes(); }

Result<std::vector<Passage>> Recaller::Search(Session& session, std::string_view question, int64_t t_ms, int32_t most,
                                              std::optional<std::span<const SeqSpan>> gold) {
  RecallQuery query = {.text = question,
                       .held_from = std::max(session.held().unbroken_from, session.n_seen() - spec_.near()),
                       .n_seen = session.n_seen(),
                       .t_now_ms = t_ms,
                       .answers = spec_.answers(),
                       .most = most,
                       .gold = gold};
  if (spec_.info->needs_keys) {
    if (reader_ == nullptr || archive_ == nullptr || archive_->keys() == nullptr) {
      return Unsupported("{} needs keys that are kept while the stream is read", spec_.info->name);
    }
    WEIR_RETURN_IF_ERROR(reader_->Read(session, tokenizer_, question));
    query.vectors = &reader_->vectors();
    query.keys = archive_->keys();
  }
  return selector_->Select(query, blocks_);
}

Status Recaller::Rerank(const RestoreJob& job, std::vector<Passage>* passages) {
  const std::vector<int32_t> asked = job.Encode(job.question);
  std::vector<float> nll(asked.size());
  std::vector<std::pair<double, size_t>> order;
  for (size_t i = 0; i < passages->size(); ++i) {
    double sum = 0;
    if (!(*passages)[i].held) {
      WEIR_ASSIGN_OR_RETURN(const auto back, restorer_->Restore(job, {&(*passages)[i], 1}));
      if (back.empty() || job.n_left() < std::ssize(asked)) {
        sum = std::numeric_limits<double>::infinity();
      } else {
        Session::AppendOptions append;
        append.excerpt = true;
        append.t_src_ms = job.t_ms;
        append.nll = nll.data();
        WEIR_RETURN_IF_ERROR(job.session.Append(asked, append));
        sum = std::accumulate(nll.begin(), nll.end(), 0.0);
      }
      WEIR_RETURN_IF_ERROR(job.session.TakeBackExcerpt());
    }
    order.emplace_back(sum, i);
  }
  std::ranges::stable_sort(order, {}, &std::pair<double, size_t>::first);
  std::vector<Passage> out;
  for (const auto& [sum, i] : order) out.push_back((*passages)[i]);
  *passages = std::move(out);
  return Status();
}

Result<Recalled> Recaller::Bring(Session& session, std::string_view question, int64_t t_ms,
                                 std::optional<std::span<const SeqSpan>> gold) {
  if (recorder_ != nullptr) recorder_->Flush();
  const int32_t most = std::max(spec_.n_passages(), spec_.rerank());
  WEIR_ASSIGN_OR_RETURN(const std::vector<Passage> found, Search(session, question, t_ms, most, gold));
  Recalled out;
  std::vector<Passage> chosen;
  for (const Passage& passage : found) {
    out.best_score = std::max(out.best_score, passage.score);
    if (passage.held || passage.score < std::max(spec_.gate(), spec_.margin() * found[0].score)) continue;
    chosen.push_back(passage);
  }
  RestoreJob job = {.session = session,
                    .blocks = blocks_,
                    .tokenizer = tokenizer_,
                    .question = question,
                    .context = spec_.context(),
                    .t_ms = t_ms,
                    .rows = rows_};
  if (reader_ != nullptr && archive_ != nullptr) {
    job.kv = archive_->kv();
    job.shape = reader_->vectors().shape;
  }
  if (spec_.rerank() > 1 && chosen.size() > 1) WEIR_RETURN_IF_ERROR(Rerank(job, &chosen));
  if (std::ssize(chosen) > spec_.n_passages()) chosen.resize(static_cast<size_t>(spec_.n_passages()));
  WEIR_ASSIGN_OR_RETURN(out.passages, restorer_->Restore(job, chosen));
  out.held = !found.empty() && found[0].held;
  out.too_large = out.passages.empty() && !chosen.empty();
  out.gated = out.passages.empty() && !found.empty() && !out.held && !out.too_large;
  out.n_tokens = session.n_excerpt();
  return out;
}

Result<Recalled> Recaller::TryToBring(Session& session, std::string_view question, int64_t t_ms) {
  auto recalled = Bring(session, question, t_ms);
  if (recalled.ok()) return recalled;
  WEIR_RETURN_IF_ERROR(TakeBack(session));
  if (recalled.status().code() != StatusCode::kIo) return recalled.status();
  Recalled out;
  out.failed = recalled.status();
  return out;
}

}  // namespace weir
