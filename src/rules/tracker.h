// SPDX-License-Identifier: Apache-2.0
// When a rule holds: a state machine over the log-odds of its condition, one number a check.
//
// Models answer "yes" more readily to some questions than to others. So a rule is measured against itself: its score is
// how far the log-odds are above their median, in units of their usual spread, but of no less than kLeastSpread and no
// more than kMostSpread nats. Median and spread are of the latest kUsual checks at which the rule did not hold.
//
//   score = (log_odds - median) / clamp(1.4826 * median absolute deviation, kLeastSpread, kMostSpread)
//
// The odds of a "no" vary without meaning anything: where a spread of four nats and more was taken for what it is, no
// certain "yes" was far enough above it.
//
// It begins to hold at n_begin checks in a row with score >= on and log_odds >= least, and ceases at n_end checks in a
// row with score < off, or with log-odds of kFall below `least`: a "no" that is likelier than usual is one. After that
// it rests for cooldown_ms. The first n_calibrate checks only teach it what is usual. If the condition was true
// meanwhile, the median is that of the exception: a fall as deep as the rise of an event, within the first kUsual
// checks, makes it learn anew.
#pragma once

#include <cstdint>
#include <deque>

#include "base/status.h"
#include "io/json.h"

namespace weir {

struct RuleTuning {
  double on = 3, off = 1.5;
  double least = 1.5;
  int32_t n_begin = 2, n_end = 2;
  int32_t n_calibrate = 8;
  int64_t cooldown_ms = 0;
};
// kInvalidArgument names what is out of range.
Status CheckTuning(const RuleTuning& tuning);

class RuleTracker {
 public:
  static constexpr int kUsual = 64;
  static constexpr double kLeastSpread = 1, kMostSpread = 3, kFall = 3;

  // REQUIRES: CheckTuning(tuning).ok().
  explicit RuleTracker(const RuleTuning& tuning) : tuning_(tuning) {}

  enum class Change { kNone, kBegan, kEnded };
  struct Step {
    Change change = Change::kNone;
    double score = 0;  // 0 while it learns what is usual
  };
  // REQUIRES: t_ms is not before that of the last check. Log-odds are taken as within +-kMostOdds; NaN as the least.
  static constexpr double kMostOdds = 30;
  Step Check(double log_odds, int64_t t_ms);

  bool holds() const { return holds_; }
  bool calibrated() const { return calibrated_; }
  // The first check of the event that began last, or of one that may begin.
  bool rising() const { return !holds_ && n_above_ > 0; }
  int64_t since_ms() const { return since_ms_; }
  double peak() const { return peak_; }  // largest score of the event that began last

  // All of it but the tuning; exactly. Errors of Fields; kInvalidArgument for a state that no checks lead to.
  Json Save() const;
  Status Restore(const Json& saved);

 private:
  double Score(double log_odds) const;
  void Learn(double log_odds);

  RuleTuning tuning_;
  std::deque<double> usual_;  // oldest first, at most kUsual
  bool calibrated_ = false, holds_ = false;
  int32_t n_learned_ = 0;  // since it learned anew; at most kUsual
  int32_t n_above_ = 0, n_below_ = 0;
  int64_t since_ms_ = 0, rests_until_ms_ = INT64_MIN;
  double peak_ = 0;
};

}  // namespace weir
