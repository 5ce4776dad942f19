// SPDX-License-Identifier: Apache-2.0
// A pot's layers that hold the newest rows of the stream, in slots of their own.
#include <algorithm>
#include <limits>

#include "kv/store.h"

namespace weir {

int64_t Pot::WindowBytes(const PotShape& shape) {
  return shape.windows.n_slots == 0 ? 0 : (1 + shape.windows.n_marks) * KvBytes(shape.window_pot());
}

Status Pot::MakeWindows(Ledger& ledger) {
  const PotShape shape = shape_.window_pot();
  WEIR_ASSIGN_OR_RETURN(windows_, Make(shape, *backend_, ledger));
  windows_->is_windows_ = true;
  for (int32_t copy = 0; copy < shape_.windows.n_marks; ++copy) {
    WEIR_ASSIGN_OR_RETURN(auto made, Make(shape, *backend_, ledger));
    window_copies_.push_back(std::move(made));
  }
  window_marks_ = Marks(shape_.windows.n_marks);
  return Status();
}

void Pot::ClearWindows() {
  excerpt_ = {};
  if (windows_ == nullptr) return;
  windows_->Clear();
  window_marks_.Clear();
}

int64_t Pot::n_window_free() const {
  if (windows_ == nullptr) return std::numeric_limits<int64_t>::max();
  // When room is made does not depend on how many slots there are for an excerpt or a probe: a stream without them has
  // the same bytes.
  const std::span<const SlotMeta> rows = windows_->meta(0);
  const auto is_excerpt = [&](const SlotMeta& row) { return row.seq >= excerpt_.begin && row.seq < excerpt_.end; };
  const int64_t n_stream = std::ssize(rows) - std::ranges::count_if(rows, is_excerpt);
  return std::min<int64_t>(shape_.windows.n_rows - n_stream, windows_->n_free());
}

Status Pot::MakeWindowRoom(int64_t n) {
  if (n <= n_window_free()) return Status();
  const std::span<const SlotMeta> rows = windows_->meta(0);
  const auto is_excerpt = [&](const SlotMeta& row) { return row.seq >= excerpt_.begin && row.seq < excerpt_.end; };
  // Of all rows the coming one sees the newest, and of those that are not taken back it would.
  int32_t n_left = shape_.windows.window - 1, n_others_left = n_left;
  KeepSet keep;
  for (int32_t slot = static_cast<int32_t>(rows.size()); slot-- > 0;) {
    const bool returns = is_excerpt(rows[slot]);
    if (n_left <= 0 && (returns || n_others_left <= 0)) continue;
    --n_left;
    n_others_left -= !returns;
    keep.push_back(slot);
  }
  std::ranges::reverse(keep);
  return windows_->Compact(0, keep);
}

Status Pot::AppendToWindows(std::span<const SlotMeta> tokens) {
  WEIR_RETURN_IF_ERROR(MakeWindowRoom(std::ssize(tokens)));
  WEIR_RETURN_IF_ERROR(windows_->BeginAppend(tokens));
  windows_->Unpin({tokens.front().seq, tokens.back().seq + 1});
  return Status();
}

Status Pot::DropFromWindows(SeqRange rows) {
  if (windows_ == nullptr) return Status();
  const std::span<const SlotMeta> held = windows_->meta(0);
  KeepSet keep;
  for (size_t slot = 0; slot < held.size(); ++slot) {
    if (held[slot].seq < rows.begin || held[slot].seq >= rows.end) keep.push_back(static_cast<int32_t>(slot));
  }
  return keep.size() == held.size() ? Status() : windows_->Compact(0, keep);
}

void Pot::Mark(int64_t n, bool keep) {
  state_.Mark(n, keep);
  const int32_t copy = windows_ == nullptr ? -1 : window_marks_.Take(n, keep);
  if (copy >= 0 && !window_copies_[static_cast<size_t>(copy)]->CopyFrom(*windows_).ok()) window_marks_.Clear();
}

int64_t Pot::PlaceBefore(int64_t n) const {
  if (!state_.empty()) n = state_.MarkBefore(n);
  if (windows_ == nullptr || n <= 0) return n;
  // Room was made before row `oldest` + window - 1 was read, and the last time that it was made: what had been read
  // then, and later, is what the slots held.
  const std::span<const SlotMeta> rows = windows_->meta(0);
  const int64_t oldest = rows.empty() ? 0 : rows.front().seq;
  if (oldest == 0 || n - oldest > shape_.windows.window - 1) return n;
  return window_marks_.Before(n);
}

void Pot::Return(int64_t n) {
  if (!state_.empty()) state_.Return(n);
  if (windows_ == nullptr) return;
  const int32_t copy = window_marks_.CopyOf(n);
  window_marks_.ForgetAfter(n);
  if (copy >= 0 && !windows_->CopyFrom(*window_copies_[static_cast<size_t>(copy)]).ok()) windows_->Clear();
}

}  // namespace weir
