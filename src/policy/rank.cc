// SPDX-License-Identifier: Apache-2.0
#include "policy/rank.h"

#include <algorithm>
#include <cmath>

#include "policy/policy.h"

namespace weir {

std::vector<int64_t> BestVisual(std::span<const SlotMeta> slots, const RankKeys& keys, int32_t count) {
  std::vector<int32_t> order;
  for (size_t s = 0; s < slots.size(); ++s) {
    if (slots[s].modality != Modality::kText) order.push_back(static_cast<int32_t>(s));
  }
  std::sort(order.begin(), order.end(), [&keys](int32_t a, int32_t b) { return RanksBefore(keys, a, b); });
  order.resize(std::min(order.size(), static_cast<size_t>(std::max(count, 0))));
  std::vector<int64_t> seqs;
  for (const int32_t s : order) seqs.push_back(slots[s].seq);
  std::sort(seqs.begin(), seqs.end());
  return seqs;
}

void Pool(std::span<const float> scores, int32_t kernel, Pooling pooling, float* out) {
  const int64_t n = std::ssize(scores), half = kernel / 2;
  const bool max = pooling == Pooling::kMax;
  const auto beside_an_end = [&](int64_t i) {
    const int64_t begin = std::max<int64_t>(0, i - half), end = std::min(n, i + half + 1);
    // The padding takes part in a maximum.
    float largest = 0, sum = 0;
    for (int64_t j = begin; j < end; ++j) {
      largest = std::max(largest, scores[j]);
      sum += scores[j];
    }
    out[i] = max ? largest : sum / static_cast<float>(kernel);
  };
  const int64_t first = std::min(half, n), last = std::max(first, n - half);
  for (int64_t i = 0; i < first; ++i) beside_an_end(i);
  for (int64_t i = last; i < n; ++i) beside_an_end(i);
  // The windows that lie inside, all of them at once: every one in the order of its slots.
  for (int64_t i = first; i < last; ++i) out[i] = max ? scores[i - half] : 0 + scores[i - half];
  for (int64_t k = 1 - half; k <= half; ++k) {
    const float* const more = scores.data() + k;
    if (max) {
      for (int64_t i = first; i < last; ++i) out[i] = out[i] < more[i] ? more[i] : out[i];
    } else {
      for (int64_t i = first; i < last; ++i) out[i] += more[i];
    }
  }
  for (int64_t i = first; i < last && !max; ++i) out[i] /= static_cast<float>(kernel);
}

// A share is a decimal number: 0.29 of 50 is 14.5, and its product of two doubles is less. The factor is far above the
// error of such products and far below what a written share can mean.
int32_t RoundHalfUp(double x) { return static_cast<int32_t>(std::floor(x * (1 + 1e-14) + 0.5)); }

int32_t ProtectedRecent(int32_t recent, int32_t n_unscored, int32_t room) {
  return std::max(recent, std::min(n_unscored, room / 2));
}

void SlotPicker::Begin(std::span<const SlotMeta> slots, int32_t n_keep) {
  n_keep_ = n_keep;
  n_taken_ = 0;
  taken_.assign(slots.size(), 0);
  for (size_t s = 0; s < slots.size(); ++s) {
    if (slots[s].pinned) Take(static_cast<int32_t>(s));
  }
  n_keep_ = std::max(n_keep_, n_taken_);
}

void SlotPicker::Take(int32_t slot) {
  uint8_t& taken = taken_[static_cast<size_t>(slot)];
  n_taken_ += taken == 0;
  taken = 1;
}

void SlotPicker::TakeOldest(int32_t count) {
  const int32_t end = std::min(count, n_slots());
  for (int32_t s = 0; s < end && room() > 0; ++s) Take(s);
}

void SlotPicker::TakeNewest(int32_t count) {
  const int32_t begin = n_slots() - std::min(count, n_slots());
  for (int32_t s = n_slots() - 1; s >= begin && room() > 0; --s) Take(s);
}

void SlotPicker::TakeNewestText(std::span<const SlotMeta> slots, int32_t count) {
  for (int32_t s = n_slots() - 1; s >= 0 && count > 0 && room() > 0; --s) {
    if (slots[s].modality != Modality::kText) continue;
    Take(s);
    --count;
  }
}

void SlotPicker::TakeBest(const RankKeys& keys, int32_t end, int32_t count) {
  order_.clear();
  order_.reserve(taken_.size());  // no doubling: plans count these bytes
  for (int32_t s = 0; s < std::min(end, n_slots()); ++s) {
    if (!taken(s)) order_.push_back(s);
  }
  TakeBestOf(keys, count);
}

void SlotPicker::TakeTop(const RankKeys& keys, int32_t end, int32_t count) {
  order_.clear();
  order_.reserve(taken_.size());
  for (int32_t s = 0; s < std::min(end, n_slots()); ++s) order_.push_back(s);
  if (count < std::ssize(order_)) {
    const auto cut = order_.begin() + std::max(count, 0);
    std::nth_element(order_.begin(), cut, order_.end(),
                     [&keys](int32_t a, int32_t b) { return RanksBefore(keys, a, b); });
    order_.erase(cut, order_.end());
  }
  std::erase_if(order_, [this](int32_t s) { return taken(s); });
  TakeBestOf(keys, count);
}

void SlotPicker::TakeBestOf(const RankKeys& keys, int32_t count) {
  count = std::clamp(count, 0, room());
  if (count < std::ssize(order_)) {
    // The order is total, so which slots come first does not depend on the algorithm.
    std::nth_element(order_.begin(), order_.begin() + count, order_.end(),
                     [&keys](int32_t a, int32_t b) { return RanksBefore(keys, a, b); });
    order_.resize(static_cast<size_t>(count));
  }
  for (int32_t s : order_) Take(s);
}

void SlotPicker::Collect(KeepSet* keep) const {
  keep->clear();
  for (int32_t s = 0; s < n_slots(); ++s) {
    if (taken(s)) keep->push_back(s);
  }
}

void SlotPicker::Finish(KeepSet* keep) {
  TakeNewest(n_slots());
  Collect(keep);
}

void KeepHeadAndTail(std::span<const SlotMeta> slots, int32_t n_head, int32_t n_keep, KeepSet* keep) {
  SlotPicker picker;
  picker.Begin(slots, n_keep);
  picker.TakeNewest(n_head > 0 ? 1 : 0);
  picker.TakeOldest(n_head);
  picker.Finish(keep);
}

}  // namespace weir
