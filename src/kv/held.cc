// SPDX-License-Identifier: Apache-2.0
#include "kv/held.h"

#include <algorithm>
#include <bit>
#include <limits>
#include <numeric>
#include <vector>

namespace weir {
namespace {

constexpr int64_t kWindow = 1 << 16;  // seqs processed together

}  // namespace

// Groups are sorted by seq, so one window of the stream at a time, marked by all groups, is their union without
// sorting. Windows that no group has tokens of are skipped.
void ForEachHeldWindow(const Pot& pot, const std::function<void(int64_t begin, const HeldMarks& marks)>& each) {
  constexpr int64_t kNone = std::numeric_limits<int64_t>::max();
  const int32_t n_groups = pot.shape().n_groups();
  int64_t first = kNone;
  for (int32_t group = 0; group < n_groups; ++group) {
    const std::span<const SlotMeta> slots = pot.meta(group);
    if (!slots.empty()) first = std::min(first, slots.front().seq);
  }
  HeldMarks marks;
  for (std::vector<uint64_t>& of_one : marks) of_one.resize(kWindow / 64);
  std::vector<size_t> cursors(static_cast<size_t>(n_groups), 0);
  while (first != kNone) {
    const int64_t begin = first, end = first + kWindow;
    first = kNone;
    for (std::vector<uint64_t>& of_one : marks) std::fill(of_one.begin(), of_one.end(), 0);
    for (int32_t group = 0; group < n_groups; ++group) {
      const std::span<const SlotMeta> slots = pot.meta(group);
      size_t& at = cursors[static_cast<size_t>(group)];
      for (; at < slots.size() && slots[at].seq < end; ++at) {
        const uint64_t bit = static_cast<uint64_t>(slots[at].seq - begin);
        marks[static_cast<size_t>(slots[at].modality)][bit / 64] |= uint64_t{1} << (bit % 64);
      }
      if (at < slots.size()) first = std::min(first, slots[at].seq);
    }
    each(begin, marks);
  }
}

Held SummarizeHeld(const Pot& pot, int64_t n_seen, std::span<const SeqRange> gaps) {
  const int32_t n_groups = pot.shape().n_groups();
  Held out;
  int64_t oldest = std::numeric_limits<int64_t>::max();
  for (int32_t group = 0; group < n_groups; ++group) {
    const std::span<const SlotMeta> slots = pot.meta(group);
    int64_t from = n_seen;  // walks back from the newest token until one is missing
    size_t gap = gaps.size();
    for (size_t slot = slots.size();;) {
      if (slot > 0 && slots[slot - 1].seq == from - 1) {
        --slot;
        --from;
      } else if (gap > 0 && gaps[gap - 1].end >= from) {
        from = std::min(from, gaps[--gap].begin);
      } else {
        break;
      }
    }
    out.unbroken_from = std::max(out.unbroken_from, from);
    const auto unpinned = std::find_if(slots.begin(), slots.end(), [](const SlotMeta& m) { return !m.pinned; });
    if (unpinned != slots.end()) oldest = std::min(oldest, unpinned->seq);
  }
  // Pinned tokens are in every group.
  const std::span<const SlotMeta> any = pot.meta(0);
  out.n_pinned = std::count_if(any.begin(), any.end(), [](const SlotMeta& m) { return m.pinned; });
  if (oldest != std::numeric_limits<int64_t>::max()) out.oldest_unpinned = oldest;
  ForEachHeldWindow(pot, [&](int64_t, const HeldMarks& marks) {
    for (size_t modality = 0; modality < marks.size(); ++modality) {
      for (const uint64_t word : marks[modality]) out.n_kept_by[modality] += std::popcount(word);
    }
  });
  out.n_kept = std::accumulate(out.n_kept_by.begin(), out.n_kept_by.end(), int64_t{0});
  return out;
}

}  // namespace weir
