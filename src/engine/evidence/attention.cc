// weir-plugin: evidence
// SPDX-License-Identifier: Apache-2.0
// How much the rows of the stream attend to every slot: all rows, or the last ones of a prompt. The attention call
// itself (ops/column_scores.h) sums it into the floats stored with the slots.
#include <algorithm>
#include <cstdlib>

#include "engine/evidence/evidence.h"

namespace weir {
namespace {

class AttentionEvidence : public EvidenceKind {
 public:
  explicit AttentionEvidence(const Evidence& declared) : declared_(declared) {}

  EvidenceDemand Demand() const override { return {.floats = {SlotFloat::kScore}, .attention = true}; }

  void LayOut(const PotShape& pot, BufferSpace* space) override {
    // A layer's newest attention, separate from the sums.
    if (declared_.visual_latest) call_.latest = space->Floats(MemTag::kWorkspace, pot.max_head_slots());
  }

  void BeginChunk(const SessionCore& core, const Chunk& chunk, BatchItem* item) override {
    call_.row_begin = 0;
    call_.row_end = chunk.n;
    call_.rows = declared_.row_reduce;
    call_.heads = declared_.head_reduce;
    // A prompt's rows have the first temperature, an answer's first token the next one.
    const VoteNoise& noise = declared_.noise;
    call_.noise = {.on = noise.on,
                   .gumbel = noise.gumbel,
                   .seed = noise.seed,
                   .tau = noise.tau,
                   .tau_step = chunk.generated ? noise.tau_step : 0,
                   .tau_end = noise.tau_end,
                   .step = chunk.generated ? int64_t{core.memo.n_answer} + 1 : 0};
    if (Votes(core, chunk, *item)) item->evidence = &call_;
  }

  void Show(const SessionCore& core, SlotView* view) const override {
    view->scores = core.pot->scores(view->group);
    view->row_attention = RowAttention(core, *view);
  }

  int64_t MostRewound(int64_t n_call) const override {
    // The sum over all rows cannot be undone. Closer to the prompt's end, the chunk that ends there would vote.
    return declared_.rows == EvidenceRows::kAll ? 0 : n_call - std::abs(int64_t{declared_.n_last});
  }

 private:
  bool Votes(const SessionCore& core, const Chunk& chunk, const BatchItem& item) {
    if (item.reads != nullptr) return false;
    if (declared_.with_pictures && core.stream.n_seen_visual() == 0) return false;
    if (declared_.rows == EvidenceRows::kLast) return LastRowsVote(core, chunk);
    call_.accumulate = true;
    // A word that ends a frame is read after the frame and asks nothing of it.
    return !declared_.visual_latest || (chunk.tokens != nullptr && !chunk.of_picture);
  }

  // Only rows whose votes a selection will use: the newest of a prompt, and those before the pot is full.
  bool LastRowsVote(const SessionCore& core, const Chunk& chunk) {
    const int64_t n_last = std::abs(int64_t{declared_.n_last});
    const bool near_end = !chunk.generated && chunk.n_after < n_last,
               selects_next = core.n_free() - chunk.n < (chunk.n_after == 0 ? 1 : core.plan.chunk_rows);
    const int64_t n_vote = n_last - (near_end && !selects_next ? chunk.n_after : 0);
    call_.row_begin = chunk.n - std::min(chunk.n, n_vote);
    // If a prompt ends in a short chunk, or in a template's words after it, its rows are added to those that voted just
    // before: those of the same call, or of any.
    const EvidenceMemo& memo = core.memo;
    const bool of_one_call = declared_.n_last < 0;
    const int64_t most = of_one_call && n_last > core.n_slots() ? core.n_slots() / 2 : 2 * n_last;
    call_.accumulate = near_end && chunk.n_after + chunk.n < n_last && memo.n_unscored == 0 && memo.n_score_rows > 0 &&
                       memo.n_score_rows + chunk.n <= most && (!of_one_call || chunk.first > 0);
    return near_end || selects_next;
  }

  const Evidence declared_;
  EvidenceCall call_;  // of the current chunk
};

std::unique_ptr<EvidenceKind> Make(const PolicyNeeds& needs, const SessionOptions& /*options*/) {
  const EvidenceRows rows = needs.evidence.rows;
  if (rows != EvidenceRows::kAll && rows != EvidenceRows::kLast) return nullptr;
  return std::make_unique<AttentionEvidence>(needs.evidence);
}

}  // namespace

extern const EvidenceInfo kAttention;
const EvidenceInfo kAttention = {.name = "attention", .make = Make};

}  // namespace weir
