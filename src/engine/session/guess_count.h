// SPDX-License-Identifier: Apache-2.0
// How many guesses of the next tokens to read in one pass: as many as are expected to save time, by what they cost and
// how often they were right, measured as the stream goes. A text that does not repeat itself, or a draft that guesses
// badly, loses at most a few steps, and then 1 % of the time. What a draft takes to read a prompt is not part of that.
#pragma once

#include <algorithm>
#include <cstdint>

#include "engine/session/lookup.h"

namespace weir {

class GuessCount {
 public:
  // For guesses from the text after n_same equal tokens, at most `most`.
  int64_t Best(int n_same, Lookup::Votes votes, int64_t most) const;
  // For those of a draft, before it makes them.
  int64_t BestDraft(int64_t most);

  // A step that began with a pass of 1 + n_guessed rows and delivered 1 + n_right tokens.
  struct Step {
    double seconds = 0;        // all of it
    double draft_seconds = 0;  // of these, the draft's
    int n_same = 0;            // equal tokens before the guesses; kDraft: they are a draft's
    Lookup::Votes votes = Lookup::Votes::kOne;
    int64_t n_guessed = 0, n_right = 0;
  };
  static constexpr int kDraft = Lookup::kMostSame + 1;
  void Took(Step step);

 private:
  static constexpr double kNew = 0.1, kNewCost = 0.2;  // weight of a new measurement
  bool may_lose() const { return one_ > 0 && lost_ <= 0.01 * total_ + 4 * one_; }
  // Where right_ has the probability of guess i if those before it are right: each of them is one more equal token, and
  // what follows it is at one place.
  struct Place {
    int64_t n_same;
    size_t votes;
  };
  static Place PlaceOf(int n_same, Lookup::Votes votes, int64_t i);
  // What n guesses cost more than none, as a share of a step of one row.
  double Cost(int64_t n) const { return std::max(0.0, first_) + std::max(0.0, each_) * static_cast<double>(n - 1); }
  // The best number, where each one costs `more` beside its row.
  int64_t BestOf(int n_same, Lookup::Votes votes, double more, int64_t most) const;

  double one_ = 0;  // seconds of a step of one row; 0: not known yet
  // A second row may cost far more than each after it (a processor multiplies them together) or nearly nothing (it
  // waits for the weights), so the first has a cost of its own. Both as shares of a step of one row.
  double first_ = 0.2, each_ = 0.12;
  double draft_ = 0.15;          // what the draft takes for a guess, as well
  double draft_gain_ = 0.5;      // steps of one row that an attempt of the draft saves
  double total_ = 0, lost_ = 0;  // seconds of all steps; of them, in vain
  // By n_same and votes: the next token is right. At first as it was in extracts, summaries and answers without a text.
  double right_[kDraft + 1][3] = {{0, 0, 0},         {0.25, 0.4, 0.2}, {0.5, 0.7, 0.3},  {0.65, 0.85, 0.35},
                                  {0.65, 0.85, 0.4}, {0.75, 0.9, 0.4}, {0.85, 0.9, 0.5}, {0.85, 0.95, 0.5},
                                  {0.85, 0.95, 0.6}, {0.8, 0.8, 0.8}};
};

}  // namespace weir
