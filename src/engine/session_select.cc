// Who stays in a session's pot: what a policy is told, what it answers, and what is done about it.
#include <algorithm>

#include "engine/session.h"

namespace weir {

Status Session::ReadProbe(std::span<const int32_t> probe) {
  const int32_t n = static_cast<int32_t>(probe.size());
  chunk_.clear();
  for (int32_t i = 0; i < n; ++i) {
    SlotMeta meta;
    meta.seq = n_seen_ + i;
    meta.token_id = probe[i];
    chunk_.push_back(meta);
  }
  const EvidenceCall call = {0, n, needs_.evidence.row_reduce, needs_.evidence.head_reduce, false};
  BatchItem item{pot_.get(), chunk_, &call};
  item.pos_shift = pos_shift_;
  item.last_hidden_only = true;
  WEIR_RETURN_IF_ERROR(runner_->Forward({&item, 1}).status());
  pot_->DropLast(n);
  n_score_rows_ = n;
  n_unscored_ = 0;
  return Status();
}

VectorScoresArgs Session::VectorScoresOf(VectorScore what, int32_t layer, int32_t head, float* out) {
  const PotShape& shape = pot_->shape();
  const bool keys = what == VectorScore::kKeyDiff;
  return {what,
          keys ? pot_->keys(layer, head) : pot_->values(layer, head),
          keys ? shape.k_type : shape.v_type,
          pot_->n_used(layer, head),
          shape.head_dim,
          out};
}

void Session::TakeVectorScores() {
  const PotShape& shape = pot_->shape();
  std::vector<VectorScoresArgs> args;
  for (int32_t layer = 0; layer < shape.n_layers; ++layer) {
    for (int32_t head = 0; head < shape.n_kv_heads; ++head) {
      float* out = pot_->scores(shape.group_of(layer, head)).data();
      args.push_back(VectorScoresOf(needs_.evidence.vector, layer, head, out));
    }
  }
  backend_->VectorScores(args);
  n_unscored_ = 0;
}

void Session::TakeVisualScores() {
  for (SlotView& view : views_) view.visual = {};
  if (n_seen_visual() == 0) return;
  const PotShape& shape = pot_->shape();
  std::vector<VectorScoresArgs> args;
  float* out = visual_.as<float>();
  for (int32_t group = 0; group < shape.n_groups(); ++group) {
    args.push_back(
        VectorScoresOf(needs_.evidence.visual_vector, group / shape.n_kv_heads, group % shape.n_kv_heads, out));
    views_[group].visual = {out, static_cast<size_t>(args.back().n_slots)};
    out += args.back().n_slots;
  }
  backend_->VectorScores(args);
}

void Session::TakeNovelty() {
  const PotShape& shape = pot_->shape();
  float* out = novelty_.as<float>();
  for (int32_t group = 0; group < shape.n_groups(); ++group) {
    const std::span<const SlotMeta> slots = pot_->meta(group);
    const std::vector<int64_t> recent = RecentFrames(slots, needs_.evidence.recent_frames);
    FrameNoveltyArgs args;
    args.keys = pot_->keys(group / shape.n_kv_heads, group % shape.n_kv_heads);
    args.type = shape.k_type;
    args.n_slots = std::ssize(slots);
    args.head_dim = shape.head_dim;
    args.scratch = novelty_scratch_.data();
    args.out = out;
    int32_t* place = FrameNoveltyPlaces(args);
    backend_->Synchronise();
    for (size_t s = 0; s < slots.size(); ++s) {
      const SlotMeta& m = slots[s];
      const bool visual = m.modality != Modality::kText;
      const bool is_recent = visual && m.frame() >= recent.front();
      place[s] = !visual ? kNoPlace : is_recent ? kRecentPlace + m.row : static_cast<int32_t>(m.row);
    }
    backend_->FrameNovelty(args);
    views_[group].novelty = {out, slots.size()};
    out += slots.size();
  }
}

void Session::FillViews() {
  backend_->Synchronise();
  const PotShape& shape = pot_->shape();
  for (int32_t group = 0; group < shape.n_groups(); ++group) {
    SlotView& view = views_[group];
    view.group = group;
    view.layer = shape.granularity == Granularity::kGlobal     ? -1
                 : shape.granularity == Granularity::kPerLayer ? group
                                                               : group / shape.n_kv_heads;
    view.head = shape.granularity == Granularity::kPerHead ? group % shape.n_kv_heads : -1;
    view.n_layers = shape.n_layers;
    view.n_kv_heads = shape.n_kv_heads;
    view.slots = pot_->meta(group);
    view.scores = pot_->scores(group);
    view.nll = pot_->nll(group);
    view.n_rows = n_score_rows_;
    view.n_unscored = n_unscored_;
    view.n_seen_visual = n_seen_visual();
    view.n_seen = n_seen_;
  }
}

Status Session::TraceAttention() {
  backend_->Synchronise();
  const Status written = trace_->Attended(*pot_, n_seen_, watch_);
  if (!written.ok()) trace_ = nullptr;  // told once; the session goes on without it
  return written;
}

Status Session::KeepOnly(int32_t most, const char* reason) {
  // A keep-set that cannot be honoured leaves every group as it was; a trace that cannot be written changes nothing of
  // what stays.
  for (size_t group = 0; group < views_.size(); ++group) {
    WEIR_RETURN_IF_ERROR(pot_->CheckKeep(static_cast<int32_t>(group), keeps_[group]));
  }
  Status traced;
  for (size_t group = 0; group < views_.size() && trace_ != nullptr; ++group) {
    const SlotView& view = views_[group];
    traced = trace_->Selected({n_selections_, n_seen_, options_.policy.info->name, view.layer, view.head, view.slots,
                               view.scores, view.nll, &keeps_[group], reason});
    if (!traced.ok()) trace_ = nullptr;  // told once; the session goes on without it
  }
  for (size_t group = 0; group < views_.size(); ++group) {
    WEIR_RETURN_IF_ERROR(pot_->Compact(static_cast<int32_t>(group), keeps_[group]));
  }
  pot_->Rebalance();
  n_unscored_ = std::min(n_unscored_, most);
  reads_fresh_ = false;
  ForbidRewind();
  ++n_selections_;
  return traced;
}

Status Session::TrimPrompt() {
  FillViews();
  policy_->SelectAfterPrompt(views_, keeps_);
  bool all_stay = true;
  for (size_t group = 0; group < views_.size(); ++group) all_stay &= keeps_[group].size() == views_[group].slots.size();
  return all_stay ? Status() : KeepOnly(pot_->n_used(), "end of prompt");
}

bool Session::ReadsAll() {
  if (n_seen_visual() == 0 || n_since_full_ + 1 >= needs_.read_every) return true;
  if (!reads_fresh_) {
    FillViews();
    for (size_t group = 0; group < views_.size(); ++group) policy_->SelectRead(views_[group], &reads_[group]);
    reads_fresh_ = true;
  }
  // The token's own slot, in every group.
  for (size_t group = 0; group < reads_.size(); ++group) {
    reads_[group].push_back(static_cast<int32_t>(pot_->meta(static_cast<int32_t>(group)).size()));
  }
  return false;
}

Status Session::Shrink(int32_t n_keep, const char* reason) {
  const char* name = options_.policy.info->name;
  if (needs_.evidence.rows == EvidenceRows::kProbe) {
    WEIR_RETURN_IF_ERROR(ReadProbe(question_.empty() ? probe_ : question_));
  }
  if (needs_.evidence.vector != VectorScore::kNone) TakeVectorScores();
  if (needs_.evidence.recent_frames > 0) TakeNovelty();
  if (needs_.evidence.visual_vector != VectorScore::kNone) TakeVisualScores();
  const PotShape& shape = pot_->shape();
  const int32_t n_groups = shape.n_groups();
  int64_t n_before = 0, n_after = 0;
  FillViews();
  for (const SlotView& view : views_) n_before += std::ssize(view.slots);
  // All keep-sets first: a selection that cannot be honoured leaves every group as it was.
  policy_->SelectAll(views_, n_keep, keeps_);
  for (int32_t group = 0; group < n_groups; ++group) {
    const int64_t n = std::ssize(keeps_[group]);
    n_after += n;
    if (n > static_cast<int64_t>(shape.spread) * n_keep) {
      return Internal("policy %s kept %lld slots where at most %d may stay", name, static_cast<long long>(n), n_keep);
    }
  }
  if (n_after > std::min(n_before, static_cast<int64_t>(n_groups) * n_keep)) {
    return Internal("policy %s kept %lld slots in all where at most %lld may stay", name,
                    static_cast<long long>(n_after), static_cast<long long>(n_groups) * n_keep);
  }
  return KeepOnly(n_keep, reason);
}

Status Session::MakeRoom(int32_t n_coming) {
  if (n_free() >= n_coming) return Status();
  if (!needs_.evicts) {
    return OverBudget(
        "the pot of %d tokens is full after %lld, and policy %s never forgets; use a larger --pot or another "
        "--policy",
        n_slots(), static_cast<long long>(n_seen_), options_.policy.info->name);
  }
  if (options_.on_overflow == OnOverflow::kError) {
    return OverBudget("the pot of %d tokens is full after %lld, and --on-overflow error forbids forgetting", n_slots(),
                      static_cast<long long>(n_seen_));
  }
  const int32_t target = std::max(policy_->TargetSlots(n_slots(), n_coming), n_pinned_ + needs_.min_slots - 1);
  return Shrink(std::clamp(target, 0, n_slots() - n_coming), "pot full");
}

}  // namespace weir
