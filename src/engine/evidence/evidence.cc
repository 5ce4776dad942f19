// SPDX-License-Identifier: Apache-2.0
#include "engine/evidence/evidence.h"

#include <algorithm>

namespace weir {

float RowAttention(const SessionCore& core, const SlotView& view) {
  const Evidence& declared = core.needs.evidence;
  const bool means = declared.row_reduce == RowReduce::kSum && declared.head_reduce == HeadReduce::kMean;
  if (core.model->config().attention.sinks.empty() || !means || view.n_rows == 0) return 1;
  double sum = 0;
  for (const float score : view.scores) sum += score;
  return sum > 0 ? static_cast<float>(sum / view.n_rows) : 1;
}

EvidenceSet::EvidenceSet(const PolicyNeeds& needs, const SessionOptions& options) {
  for (const EvidenceInfo* info : AllEvidenceInfos()) {
    std::unique_ptr<EvidenceKind> kind = info->make(needs, options);
    if (kind == nullptr) continue;
    const EvidenceDemand demand = kind->Demand();
    demand_.floats.Add(demand.floats);
    demand_.attention |= demand.attention;
    demand_.likelihoods = std::max(demand_.likelihoods, demand.likelihoods);
    demand_.probe_slots = std::max(demand_.probe_slots, demand.probe_slots);
    kinds_.push_back(std::move(kind));
  }
}

Status EvidenceSet::Check(const SessionOptions& options) const {
  for (const auto& kind : kinds_) WEIR_RETURN_IF_ERROR(kind->Check(options));
  return Status();
}

void EvidenceSet::LayOut(const PotShape& pot, BufferSpace* space) {
  for (const auto& kind : kinds_) kind->LayOut(pot, space);
}

void EvidenceSet::BeginChunk(const SessionCore& core, const Chunk& chunk, BatchItem* item) {
  for (const auto& kind : kinds_) kind->BeginChunk(core, chunk, item);
}

void EvidenceSet::EndChunk(SessionCore& core, const Chunk& chunk, const BatchItem& item, std::span<const float> nll) {
  EvidenceMemo& memo = core.memo;
  if (const EvidenceCall* call = item.evidence; call != nullptr) {
    const int64_t before = call->accumulate ? memo.n_score_rows : 0;
    memo.n_score_rows = static_cast<int32_t>(std::min<int64_t>(INT32_MAX, before + call->row_end - call->row_begin));
    memo.n_unscored = 0;
  } else {
    memo.n_unscored += static_cast<int32_t>(chunk.n);
  }
  memo.n_answer = !chunk.generated ? 0 : static_cast<int32_t>(std::min<int64_t>(INT32_MAX, memo.n_answer + chunk.n));
  for (const auto& kind : kinds_) kind->EndChunk(core, chunk, nll);
}

void EvidenceSet::BeginRound(SessionCore& core, std::span<const int32_t> question) {
  core.memo.question.clear();
  for (const auto& kind : kinds_) kind->BeginRound(core, question);
}

bool EvidenceSet::Age(SessionCore& core) {
  bool changed = false;
  for (const auto& kind : kinds_) changed |= kind->Age(core);
  return changed;
}

Status EvidenceSet::Take(SessionCore& core, std::span<SlotView> views) {
  for (const auto& kind : kinds_) WEIR_RETURN_IF_ERROR(kind->Take(core, views));
  core.backend->Synchronise();
  for (SlotView& view : views) Show(core, &view);
  return Status();
}

void EvidenceSet::Show(const SessionCore& core, SlotView* view) const {
  view->n_rows = core.memo.n_score_rows;
  view->n_unscored = core.memo.n_unscored;
  for (const auto& kind : kinds_) kind->Show(core, view);
}

int64_t EvidenceSet::MostRewound(int64_t n_call) const {
  int64_t most = std::numeric_limits<int64_t>::max();
  for (const auto& kind : kinds_) most = std::min(most, kind->MostRewound(n_call));
  return most;
}

void EvidenceSet::Clear(SessionCore& core) {
  core.memo.n_score_rows = core.memo.n_unscored = core.memo.n_answer = 0;
  core.memo.question.clear();
  // A policy without a probe reserves no room for it and has nothing to save or restore.
  if (demand_.probe_slots > 0) core.memo.probe = core.options.probe;
}

void EvidenceSet::Rewound(SessionCore& core, int32_t n) {
  Clear(core);
  core.memo.n_unscored = n;
  for (int32_t group = 0; group < core.pot->shape().n_groups(); ++group) {
    std::ranges::fill(core.pot->scores(group), 0.0f);  // votes of removed rows
  }
}

void EvidenceSet::Selected(SessionCore& core, int32_t most) {
  core.memo.n_unscored = std::min(core.memo.n_unscored, most);
}

}  // namespace weir
