// Keeping the beginning of what was read, for a prompt that begins alike.
//
// Rows of one chunk are computed together, and on no device need their bits be those of rows that come in other chunks,
// or one by one. So what is kept are chunks that a new prompt would come in too: whole ones, from where the pinned
// tokens end. A chunk whose rows vote takes another forward pass, and whether it does follows the prompt's end; only
// pinned ones, whose end is the same, may.
#include <algorithm>

#include "engine/session.h"

namespace weir {

void Session::ForbidRewind() {
  plain_ = false;
  n_rewindable_ = 0;
}

void Session::NoteChunk(const Rows& rows, const AppendOptions& options, const BatchItem& item) {
  // Logits that are there already give a likelihood in other bits.
  plain_ = plain_ && rows.tokens != nullptr && !options.generated && options.observer == nullptr && !logits_fresh_;
  if (plain_) n_rewindable_ = n_seen_;
  const bool whole = rows.n == plan_.chunk_rows && item.evidence == nullptr;
  plain_ = plain_ && (options.pinned ? n_pinned_ == n_seen_ : whole);
}

int64_t Session::RewindPoint(int64_t n_same, int64_t n_call) const {
  const Evidence& evidence = needs_.evidence;
  if (options_.nll || evidence.rows == EvidenceRows::kAll) return 0;
  // Room for a chunk: rows vote anew before a selection asks for scores that Rewind() has cleared.
  int64_t most = std::min<int64_t>(n_same - 1, n_slots() - plan_.chunk_rows);
  // Nearer to the prompt's end, the chunk that ends there would vote.
  if (evidence.rows == EvidenceRows::kLast) most = std::min<int64_t>(most, n_call - evidence.n_last);
  const int64_t beyond = std::max<int64_t>(0, n_rewindable_ - most), chunk = plan_.chunk_rows;
  const int64_t n = n_rewindable_ - (beyond + chunk - 1) / chunk * chunk;
  return n > 0 && !pot_->meta(0)[static_cast<size_t>(n)].pinned ? n : 0;
}

void Session::Rewind(int64_t n) {
  if (n == 0) return Reset();
  backend_->Synchronise();
  const float next_nll =
      pot_->shape().nll ? pot_->nll(0)[static_cast<size_t>(n)] : std::numeric_limits<float>::infinity();
  pot_->DropLast(pot_->n_used() - static_cast<int32_t>(n));
  for (int32_t group = 0; group < pot_->shape().n_groups(); ++group) {
    const std::span<float> scores = pot_->scores(group);
    std::fill(scores.begin(), scores.end(), 0.0f);  // votes of rows that are gone
  }
  StartAnew();
  const std::span<const SlotMeta> kept = pot_->meta(0);
  n_pinned_ = static_cast<int32_t>(std::count_if(kept.begin(), kept.end(), [](const SlotMeta& m) { return m.pinned; }));
  t_newest_ms_ = kept.back().t_src_ms;
  n_seen_ = n_seen_by_[static_cast<size_t>(Modality::kText)] = n_rewindable_ = n;
  n_unscored_ = static_cast<int32_t>(n);
  next_nll_ = next_nll;
}

}  // namespace weir
