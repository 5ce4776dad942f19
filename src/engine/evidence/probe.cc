// weir-plugin: evidence
// SPDX-License-Identifier: Apache-2.0
// How much the rows of a probe attend to every slot. Before each selection the probe, or in its place the last rows of
// a round's question, is read on top of the pot and removed again: it leaves only scores.
#include <algorithm>

#include "engine/evidence/evidence.h"

namespace weir {
namespace {

class ProbeEvidence : public EvidenceKind {
 public:
  ProbeEvidence(const PolicyNeeds& needs, const SessionOptions& options)
      : question_rows_(needs.question_rows),
        n_slots_(std::max({needs.question_rows, options.max_probe, static_cast<int32_t>(options.probe.size())})),
        call_{.rows = needs.evidence.row_reduce, .heads = needs.evidence.head_reduce} {}

  EvidenceDemand Demand() const override {
    return {.floats = {SlotFloat::kScore}, .attention = true, .probe_slots = n_slots_};
  }

  Status Check(const SessionOptions& options) const override {
    if (!options.probe.empty()) return Status();
    return InvalidArgument("policy {} ranks by a probe, and this session has none", options.policy.info->name);
  }

  void BeginRound(SessionCore& core, std::span<const int32_t> question) override {
    const std::span<const int32_t> last =
        question.last(std::min(question.size(), static_cast<size_t>(std::max(question_rows_, 0))));
    core.memo.question.assign(last.begin(), last.end());
  }

  Status Take(SessionCore& core, std::span<SlotView> /*views*/) override {
    const std::vector<int32_t>& probe = core.memo.question.empty() ? core.memo.probe : core.memo.question;
    core.rows.clear();
    for (size_t i = 0; i < probe.size(); ++i) {
      core.rows.push_back({.seq = core.stream.n_seen + static_cast<int64_t>(i), .token_id = probe[i]});
    }
    const int32_t n = static_cast<int32_t>(probe.size());
    call_.row_end = n;
    const BatchItem item = {.pot = core.pot.get(),
                            .tokens = core.rows,
                            .evidence = &call_,
                            .pos_shift = core.stream.pos_shift,
                            .last_hidden_only = true};
    core.pot->state().SetAside(core.stream.n_seen);
    const Status status = core.runner->Forward({&item, 1}).status();
    core.pot->state().BringBack();
    WEIR_RETURN_IF_ERROR(status);
    core.pot->DropLast(n);
    core.memo.n_score_rows = n;
    core.memo.n_unscored = 0;
    return Status();
  }

  void Show(const SessionCore& core, SlotView* view) const override {
    view->scores = core.pot->scores(view->group);
    view->row_attention = RowAttention(core, *view);
  }

 private:
  const int32_t question_rows_, n_slots_;
  EvidenceCall call_;
};

std::unique_ptr<EvidenceKind> Make(const PolicyNeeds& needs, const SessionOptions& options) {
  if (needs.evidence.rows != EvidenceRows::kProbe) return nullptr;
  return std::make_unique<ProbeEvidence>(needs, options);
}

}  // namespace

extern const EvidenceInfo kProbe;
const EvidenceInfo kProbe = {.name = "probe", .make = Make};

}  // namespace weir
