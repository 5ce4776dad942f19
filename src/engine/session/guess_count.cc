// SPDX-License-Identifier: Apache-2.0
#include "engine/session/guess_count.h"

namespace weir {

GuessCount::Place GuessCount::PlaceOf(int n_same, Lookup::Votes votes, int64_t i) {
  if (n_same == kDraft) return {kDraft, 0};
  if (i == 0) return {n_same, static_cast<size_t>(votes)};
  return {std::min<int64_t>(n_same + i, Lookup::kMostSame), static_cast<size_t>(Lookup::Votes::kOne)};
}

int64_t GuessCount::BestOf(int n_same, Lookup::Votes votes, double more, int64_t most) const {
  double tokens = 1, next = 1, best_rate = 1.02;  // not for a gain within the error of the estimates
  int64_t best = 0;
  for (int64_t n = 1; n <= most; ++n) {
    const Place place = PlaceOf(n_same, votes, n - 1);
    tokens += next *= right_[place.n_same][place.votes];
    const double rate = tokens / (1 + Cost(n) + more * static_cast<double>(n));
    if (rate > best_rate) best_rate = rate, best = n;
  }
  return best;
}

int64_t GuessCount::Best(int n_same, Lookup::Votes votes, int64_t most) const {
  // Losses are bounded whatever the estimates say.
  return may_lose() ? BestOf(n_same, votes, 0, most) : 0;
}

int64_t GuessCount::BestDraft(int64_t most) {
  if (!may_lose()) return 0;
  if (draft_gain_ > 0) {
    if (const int64_t best = BestOf(kDraft, Lookup::Votes::kOne, draft_, most); best > 0) return best;
  }
  // Another part of the text may be easier: tried again after some tens of tokens.
  draft_gain_ += 0.02 * (0.5 - draft_gain_);
  right_[kDraft][0] += 0.02 * (0.8 - right_[kDraft][0]);
  return 0;
}

void GuessCount::Took(Step step) {
  // Somebody else's pause.
  if (one_ > 0) step.seconds = std::min(step.seconds, step.draft_seconds + 8 * one_);
  total_ += step.seconds;
  const double own = step.seconds - step.draft_seconds;
  if (step.n_guessed == 0) one_ = one_ == 0 ? own : one_ + kNew * (own - one_);
  const double saved = one_ * static_cast<double>(1 + step.n_right) - step.seconds;
  if (step.draft_seconds > 0) {
    draft_gain_ += kNew * (saved / one_ - draft_gain_);
    draft_ += kNew * (step.draft_seconds / one_ / static_cast<double>(std::max<int64_t>(step.n_guessed, 1)) - draft_);
  }
  if (step.n_guessed > 0 || step.draft_seconds > 0) lost_ -= saved;
  if (step.n_guessed == 0) return;
  // Both costs move towards what was measured, by normalised least mean squares.
  const double n_further = static_cast<double>(step.n_guessed - 1);
  const double error = own / one_ - 1 - (first_ + each_ * n_further);
  const double move = kNewCost * error / (1 + n_further * n_further);
  first_ += move;
  each_ += move * n_further;
  // Guesses after the first wrong one say nothing.
  for (int64_t i = 0; i < std::min(step.n_right + 1, step.n_guessed); ++i) {
    const Place place = PlaceOf(step.n_same, step.votes, i);
    double& right = right_[place.n_same][place.votes];
    right += kNew * ((i < step.n_right ? 1.0 : 0.0) - right);
  }
}

}  // namespace weir
