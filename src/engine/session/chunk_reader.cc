// SPDX-License-Identifier: Apache-2.0
#include "engine/session/chunk_reader.h"

#include <algorithm>

#include "kv/attend.h"

namespace weir {
namespace {

// How far positions fall behind the token count at the end of a picture: the next token's position is after the
// picture's last line and last column, or after all of the video that it continues (kv/axes.h).
int64_t ShiftBehind(const Chunk& chunk) {
  if (chunk.tokens != nullptr || chunk.first + chunk.n != chunk.n_all) return 0;
  const int64_t columns = std::min<int64_t>(chunk.columns, chunk.n_all);
  const int64_t lines = (chunk.n_all + chunk.columns - 1) / chunk.columns;
  const VideoPlace& video = chunk.video;
  return std::max({lines, columns, video.back, video.time + 1}) - video.back - chunk.n_all;
}

int64_t SlotsRead(const Pot& pot, const BatchItem& item) {
  int64_t n = 0;
  for (int32_t group = 0; group < pot.shape().n_groups(); ++group) {
    n += item.reads == nullptr ? std::ssize(pot.meta(group)) : std::ssize(item.reads[group]);
  }
  return n;
}

}  // namespace

Status ChunkReader::CheckTokens(std::span<const int32_t> tokens) const {
  const int32_t n_vocab = parts_.core.model->config().n_vocab;
  for (int32_t id : tokens) {
    if (id < 0 || id >= n_vocab) return InvalidArgument("token {} is outside the vocabulary of {}", id, n_vocab);
  }
  return Status();
}

int32_t ChunkReader::NextRows(int64_t n_left) const {
  const SessionCore& core = parts_.core;
  const PolicyNeeds& needs = core.needs;
  const int32_t n_pinned = core.stream.n_pinned;
  int32_t rows = core.plan.chunk_rows;
  if (needs.evicts && n_pinned > 0) rows = std::min(rows, core.n_slots() - n_pinned - (needs.min_slots - 1));
  if (needs.positions == Positions::kReset) rows = std::min(rows, core.n_free());
  return static_cast<int32_t>(std::min<int64_t>(std::max(rows, 0), n_left));
}

Result<int32_t> ChunkReader::MakeRoom(int64_t n_left) {
  const SessionCore& core = parts_.core;
  const Positions positions = core.needs.positions;
  // Distillation happens when the pot is completely full, and its result does not depend on the chunks.
  if (positions == Positions::kReset) WEIR_RETURN_IF_ERROR(parts_.selector.MakeRoom(1));
  const int32_t n = NextRows(n_left);
  if (n == 0) {
    return OverBudget("{} of the pot's {} slots are pinned, which leaves no room for more tokens", core.stream.n_pinned,
                      core.n_slots());
  }
  if (positions == Positions::kAbs) {
    // Before anything is evicted, and before other sessions of a batch depend on it.
    WEIR_RETURN_IF_ERROR(CheckLearnedPositions(core.model->config().attention, positions, core.stream.n_seen + n));
  }
  WEIR_RETURN_IF_ERROR(parts_.selector.MakeRoom(n));
  return n;
}

BatchItem ChunkReader::Begin(const Chunk& chunk) {
  SessionCore& core = parts_.core;
  const bool is_tokens = chunk.tokens != nullptr;
  core.rows.clear();
  for (int64_t i = 0; i < chunk.n; ++i) {
    core.rows.push_back({.seq = core.stream.n_seen + i,
                         .t_src_ms = std::max(chunk.t_src_ms, core.stream.t_newest_ms),
                         .token_id = is_tokens ? chunk.tokens[i] : VisualId(chunk.columns, chunk.video.steps),
                         .modality = chunk.modality,
                         .pinned = chunk.pinned,
                         .row = static_cast<uint16_t>(is_tokens ? 0 : chunk.first + i)});
  }
  BatchItem item = {.pot = core.pot.get(),
                    .tokens = core.rows,
                    .embeddings = chunk.embeddings,
                    .reads = parts_.reads.Begin(chunk),
                    .pos_shift = core.stream.pos_shift - chunk.video.back,
                    .video_time = chunk.video.time};
  parts_.evidence.BeginChunk(core, chunk, &item);
  parts_.rewind.Before(core, chunk, parts_.prediction.has_logits());
  return item;
}

void ChunkReader::Announce(const Chunk& chunk) {
  SessionCore& core = parts_.core;
  const bool is_tokens = chunk.tokens != nullptr;
  if (chunk.excerpt) return;
  Arrival arrival = {.seq = core.stream.n_seen,
                     .n = chunk.n,
                     .modality = chunk.modality,
                     .columns = chunk.columns,
                     .row = chunk.first,
                     .n_rows = chunk.n_all,
                     .t_src_ms = core.stream.t_newest_ms,
                     .generated = chunk.generated};
  if (chunk.generated) core.n_question_left = 0;
  if (is_tokens) {
    arrival.tokens = {chunk.tokens, static_cast<size_t>(chunk.n)};
    arrival.question = !chunk.generated && core.n_question_left > 0;
    if (arrival.question) core.n_question_left -= chunk.n;
  } else {
    arrival.embeddings = {chunk.embeddings, static_cast<size_t>(chunk.n * core.model->config().row_width())};
  }
  if (core.listener != nullptr) core.listener->Arrived(arrival);
}

void ChunkReader::End(const Chunk& chunk, const BatchItem& item, const float* hidden, float* nll) {
  SessionCore& core = parts_.core;
  Prediction& prediction = parts_.prediction;
  parts_.rewind.Note(core, chunk, item, prediction.has_logits());
  const auto likelihoods = [&](Normaliser normaliser) -> std::span<const float> {
    if (normaliser == Normaliser::kNone) return {};
    if (chunk.tokens == nullptr) return prediction.EmbeddingNll(chunk.n);
    return prediction.TokenNll({chunk.tokens, static_cast<size_t>(chunk.n)}, hidden, normaliser);
  };
  // What the policy learns does not depend on whether a caller measures too.
  if (nll != nullptr) {
    std::ranges::copy(likelihoods(Normaliser::kExact), nll);
    if (!prediction.has_row()) nll[0] = 0;
  }
  parts_.evidence.EndChunk(core, chunk, item, likelihoods(parts_.evidence.demand().likelihoods));
  parts_.reads.End(item);
  prediction.Read(hidden + (chunk.n - 1) * core.model->config().n_embd);

  StreamPlace& stream = core.stream;
  stream.n_slots_read = SlotsRead(*core.pot, item);
  stream.pos_shift += ShiftBehind(chunk);
  stream.t_newest_ms = std::max(stream.t_newest_ms, chunk.t_src_ms);
  Announce(chunk);
  stream.n_seen += chunk.n;
  stream.n_seen_by[static_cast<size_t>(chunk.modality)] += chunk.n;
  if (chunk.pinned) stream.n_pinned += static_cast<int32_t>(chunk.n);
}

}  // namespace weir
