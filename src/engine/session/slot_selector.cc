// SPDX-License-Identifier: Apache-2.0
#include "engine/session/slot_selector.h"

#include <algorithm>
#include <numeric>

namespace weir {

void SlotSelector::LayOut(const PotShape& pot, const PolicyNeeds& needs, BufferSpace* space) {
  const int64_t keep_bytes = pot.max_head_slots() * static_cast<int64_t>(sizeof(int32_t)) + sizeof(KeepSet);
  space->Reserve(MemTag::kMeta, pot.max_head_slots() * needs.scratch_per_slot +
                                    pot.n_groups() * (keep_bytes + static_cast<int64_t>(sizeof(SlotView))));
}

void SlotSelector::Prepare() {
  const PotShape& shape = core_.pot->shape();
  views_.resize(static_cast<size_t>(shape.n_groups()));
  keeps_.resize(views_.size());
  for (KeepSet& keep : keeps_) keep.reserve(static_cast<size_t>(shape.max_head_slots()));
}

void SlotSelector::FillViews() {
  core_.backend->Synchronise();
  const PotShape& shape = core_.pot->shape();
  for (int32_t group = 0; group < shape.n_groups(); ++group) {
    SlotView& view = views_[static_cast<size_t>(group)];
    view = {};
    view.group = group;
    view.layer = shape.layer_of(group);
    view.head = shape.head_of(group);
    view.n_layers = shape.n_layers;
    view.n_kv_heads = view.layer < 0 ? shape.n_kv_heads : shape.n_kv_heads_of(view.layer);
    view.pool = view.layer < 0 ? 0 : shape.pool_of(view.layer);
    view.slots = core_.pot->meta(group);
    view.n_seen_visual = core_.stream.n_seen_visual();
    view.n_seen = core_.stream.n_seen;
    evidence_.Show(core_, &view);
  }
}

Status SlotSelector::KeepOnly(int32_t most, const char* reason) {
  // An invalid keep-set leaves every group unchanged; a trace that cannot be written does not affect the selection.
  for (size_t group = 0; group < views_.size(); ++group) {
    WEIR_RETURN_IF_ERROR(core_.pot->CheckKeep(static_cast<int32_t>(group), keeps_[group]));
  }
  const Status traced = trace_.Selected(core_, views_, keeps_, reason);
  for (size_t group = 0; group < views_.size(); ++group) {
    WEIR_RETURN_IF_ERROR(core_.pot->Compact(static_cast<int32_t>(group), keeps_[group]));
  }
  core_.pot->Rebalance();
  evidence_.Selected(core_, most);
  rewind_.Forbid();
  ++core_.stream.n_selections;
  return traced;
}

Status SlotSelector::TrimPrompt() {
  FillViews();
  core_.policy->SelectAfterPrompt(views_, keeps_);
  bool all_stay = true;
  for (size_t group = 0; group < views_.size(); ++group) all_stay &= keeps_[group].size() == views_[group].slots.size();
  return all_stay ? Status() : KeepOnly(core_.pot->n_used(), "end of prompt");
}

Status SlotSelector::DropRows(std::vector<int32_t>* rows) {
  FillViews();
  const auto n_layers = static_cast<size_t>(core_.needs.filter_layers);
  const SlotView& ranked = views_[n_layers - 1];
  KeepSet& best = keeps_[n_layers - 1];
  core_.policy->SelectRows(ranked, &best);
  WEIR_RETURN_IF_ERROR(core_.pot->CheckKeep(ranked.group, best));
  const size_t n_waiting = rows->size(), n_older = ranked.slots.size() - n_waiting;
  std::erase_if(*rows, [&](int32_t row) {
    const size_t slot = n_older + static_cast<size_t>(row);
    return ranked.slots[slot].modality != Modality::kText && slot + 1 < ranked.slots.size() &&
           !std::ranges::binary_search(best, static_cast<int32_t>(slot));
  });
  if (rows->size() == n_waiting) return Status();
  for (size_t group = 0; group < views_.size(); ++group) {
    KeepSet& keep = keeps_[group];
    const bool drops = group >= n_layers;
    const size_t n_slots = views_[group].slots.size(), n_stay = drops ? n_slots - n_waiting : n_slots;
    keep.resize(n_stay);
    std::iota(keep.begin(), keep.end(), 0);
    for (size_t i = 0; drops && i < rows->size(); ++i) keep.push_back(static_cast<int32_t>(n_stay) + (*rows)[i]);
  }
  return KeepOnly(core_.pot->n_used(), "rows that end");
}

void SlotSelector::SelectRead(std::span<KeepSet> reads) {
  FillViews();
  for (size_t group = 0; group < views_.size(); ++group) core_.policy->SelectRead(views_[group], &reads[group]);
}

Status SlotSelector::CheckCounts(int32_t n_keep) const {
  const char* const name = core_.options.policy.info->name;
  const int64_t most_of_one = int64_t{core_.pot->shape().spread} * n_keep;
  for (const KeepSet& keep : keeps_) {
    if (std::ssize(keep) > most_of_one) {
      return Internal("policy {} kept {} slots where at most {} may stay", name, keep.size(), n_keep);
    }
  }
  // Only layers of one shape can use each other's slots.
  for (const SlotView& first : views_) {
    if (first.head > 0 || std::max(first.layer, 0) != first.pool) continue;
    int64_t n_groups = 0, n_before = 0, n_after = 0;
    for (size_t group = 0; group < views_.size(); ++group) {
      if (views_[group].pool != first.pool) continue;
      ++n_groups;
      n_before += std::ssize(views_[group].slots);
      n_after += std::ssize(keeps_[group]);
    }
    if (n_after > std::min(n_before, n_groups * n_keep)) {
      return Internal("policy {} kept {} slots in all where at most {} may stay", name, n_after, n_groups * n_keep);
    }
  }
  return Status();
}

Status SlotSelector::Shrink(int32_t n_keep, const char* reason) {
  FillViews();
  WEIR_RETURN_IF_ERROR(evidence_.Take(core_, views_));
  // Compute all keep-sets first: an invalid selection then leaves every group unchanged.
  core_.policy->SelectAll(views_, n_keep, keeps_);
  WEIR_RETURN_IF_ERROR(CheckCounts(n_keep));
  if (core_.needs.merge != Merge::kNone) WEIR_RETURN_IF_ERROR(MergeDropped());
  return KeepOnly(n_keep, reason);
}

Status SlotSelector::MergeDropped() {
  for (size_t group = 0; group < views_.size(); ++group) {
    WEIR_RETURN_IF_ERROR(core_.pot->CheckKeep(static_cast<int32_t>(group), keeps_[group]));
  }
  const PotShape& shape = core_.pot->shape();
  for (int32_t layer = 0; layer < shape.n_layers; ++layer) {
    for (int32_t head = 0; head < shape.n_kv_heads_of(layer); ++head) {
      merger_->Run(*core_.pot, layer, head, keeps_[static_cast<size_t>(shape.group_of(layer, head))]);
    }
  }
  return Status();
}

Status SlotSelector::MakeRoom(int32_t n_coming) {
  if (core_.n_free() >= n_coming) return Status();
  const int32_t n_slots = core_.n_slots();
  if (!core_.needs.evicts) {
    return OverBudget(
        "the pot of {} tokens is full after {}, and policy {} never forgets; use a larger --pot or another "
        "--policy",
        n_slots, core_.stream.n_seen, core_.options.policy.info->name);
  }
  if (core_.options.on_overflow == OnOverflow::kError) {
    return OverBudget("the pot of {} tokens is full after {}, and --on-overflow error forbids forgetting", n_slots,
                      core_.stream.n_seen);
  }
  const int32_t least = core_.stream.n_pinned + core_.needs.min_slots - 1;
  const int32_t target = std::max(core_.policy->TargetSlots(n_slots, n_coming), least);
  return Shrink(std::clamp(target, 0, n_slots - n_coming), "pot full");
}

Status SlotSelector::TakeBack(SeqRange excerpt) {
  const auto is_excerpt = [&](const SlotMeta& slot) { return slot.seq >= excerpt.begin && slot.seq < excerpt.end; };
  FillViews();
  for (size_t group = 0; group < views_.size(); ++group) {
    const std::span<const SlotMeta> slots = views_[group].slots;
    KeepSet& keep = keeps_[group];
    keep.clear();
    for (size_t slot = 0; slot < slots.size(); ++slot) {
      if (!is_excerpt(slots[slot])) keep.push_back(static_cast<int32_t>(slot));
    }
  }
  const std::span<const SlotMeta> slots = views_[0].slots;
  const size_t n_newest = std::min(static_cast<size_t>(core_.memo.n_unscored), slots.size());
  core_.memo.n_unscored -= static_cast<int32_t>(std::ranges::count_if(slots.last(n_newest), is_excerpt));
  core_.pot->Unpin(excerpt);
  return KeepOnly(core_.pot->n_used(), "excerpt taken back");
}

Status SlotSelector::EndPrompt() {
  if (!core_.needs.evicts || core_.options.on_overflow != OnOverflow::kEvict) return Status();
  const int32_t target = core_.policy->TargetAfterPrompt(core_.n_slots());
  const int32_t n_keep = std::max(target, core_.stream.n_pinned + core_.needs.min_slots - 1);
  if (target >= 0 && core_.pot->n_used() > n_keep) WEIR_RETURN_IF_ERROR(Shrink(n_keep, "end of prompt"));
  return core_.needs.trims_prompt ? TrimPrompt() : Status();
}

}  // namespace weir
