// SPDX-License-Identifier: Apache-2.0
// The contents of a pot, relative to the stream: the figures that an answer reports.
#pragma once

#include <array>
#include <cstdint>
#include <functional>
#include <span>
#include <vector>

#include "kv/store.h"

namespace weir {

struct Held {
  int64_t n_kept = 0;                               // tokens held by at least one layer and head
  std::array<int64_t, kNumModalities> n_kept_by{};  // the same by modality
  int64_t n_pinned = 0;                             // of them, pinned
  int64_t oldest_unpinned = -1;  // seq of the oldest unpinned token that is held by any layer and head; -1: none
  // Every token from this seq on is held by every layer and head: the unbroken recent past. Equals the number of tokens
  // seen when the newest one is missing anywhere.
  int64_t unbroken_from = 0;
};

// Which seqs of a window of the stream any layer and head holds: bit seq - begin of its modality's words.
using HeldMarks = std::array<std::vector<uint64_t>, kNumModalities>;
// Calls `each` for every window of the stream that holds any, in order.
void ForEachHeldWindow(const Pot& pot, const std::function<void(int64_t begin, const HeldMarks& marks)>& each);

// One pass over the slots of all groups; needs 24 KiB and a cursor per group, whatever the length of the stream.
// `n_seen` is the number of tokens of the stream; `gaps`, oldest first, are seqs that no token of the stream has: they
// do not break the recent past.
Held SummarizeHeld(const Pot& pot, int64_t n_seen, std::span<const SeqRange> gaps = {});

}  // namespace weir
