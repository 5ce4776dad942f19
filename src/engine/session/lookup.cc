// SPDX-License-Identifier: Apache-2.0
#include "engine/session/lookup.h"

#include <algorithm>
#include <array>

namespace weir {

void Lookup::Push(std::span<const int32_t> tokens) {
  if (std::ssize(tokens) > kHistory / 2) tokens = tokens.last(static_cast<size_t>(kHistory / 2));
  if (std::ssize(history_) + std::ssize(tokens) > kHistory) {
    const int64_t n_keep = kHistory / 2;
    history_.erase(history_.begin(), history_.end() - std::min(n_keep, std::ssize(history_)));
  }
  history_.insert(history_.end(), tokens.begin(), tokens.end());
}

Lookup::Guess Lookup::Find(int64_t most) const {
  constexpr int kMostTried = 256;  // places that end with the newest token, so that a monotonous text costs no more
  constexpr size_t kMostVoting = 32;
  const int64_t n = std::ssize(history_);
  Guess best;
  if (n < 2 || most <= 0 || history_.back() < 0) return best;
  std::array<int64_t, kMostVoting> follows;  // what follows the longest runs, from the latest
  size_t n_voting = 0;
  int n_tried = 0;
  for (int64_t at = n - 2; at >= 0 && n_tried < kMostTried; --at) {
    if (history_[at] != history_[n - 1]) continue;
    ++n_tried;
    int n_same = 1;
    while (n_same < kMostSame && n_same <= at && history_[at - n_same] == history_[n - 1 - n_same] &&
           history_[at - n_same] >= 0) {
      ++n_same;
    }
    if (n_same < best.n_same || history_[at + 1] < 0) continue;
    if (n_same > best.n_same) n_voting = 0;
    best.n_same = n_same;
    if (n_voting < kMostVoting) follows[n_voting++] = at + 1;
  }
  if (n_voting == 0) return best;
  const auto voting = std::span(follows).first(n_voting);
  const auto votes = [&](int64_t place) {
    return std::ranges::count_if(voting, [&](int64_t other) { return history_[other] == history_[place]; });
  };
  const int64_t place = *std::ranges::max_element(voting, {}, votes);  // the first, so the latest, of equal ones
  if (n_voting > 1) best.votes = votes(place) == std::ssize(voting) ? Votes::kAgree : Votes::kMixed;
  best.next = std::span(history_).subspan(static_cast<size_t>(place), static_cast<size_t>(std::min(most, n - place)));
  const auto no_token = std::ranges::find_if(best.next, [](int32_t id) { return id < 0; });
  best.next = best.next.first(static_cast<size_t>(no_token - best.next.begin()));
  return best;
}

}  // namespace weir
