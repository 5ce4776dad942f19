// SPDX-License-Identifier: Apache-2.0
#include "rules/tracker.h"

#include <algorithm>
#include <cmath>
#include <vector>

namespace weir {
namespace {

constexpr int32_t kMostChecks = 1 << 20;
constexpr int64_t kMostMs = int64_t{1} << 50;

// REQUIRES: at least one value.
double Median(std::vector<double> values) {
  const auto middle = values.begin() + static_cast<std::ptrdiff_t>(values.size() / 2);
  std::nth_element(values.begin(), middle, values.end());
  if (values.size() % 2 == 1) return *middle;
  return (*middle + *std::max_element(values.begin(), middle)) / 2;
}

struct Usual {
  double median = 0, spread = 1;
};

Usual UsualOf(const std::deque<double>& values) {
  Usual out;
  if (values.empty()) return out;
  out.median = Median({values.begin(), values.end()});
  std::vector<double> distance;
  for (const double value : values) distance.push_back(std::abs(value - out.median));
  out.spread = std::clamp(1.4826 * Median(std::move(distance)), RuleTracker::kLeastSpread, RuleTracker::kMostSpread);
  return out;
}

}  // namespace

Status CheckTuning(const RuleTuning& t) {
  if (!(t.on > 0 && t.on <= 1e3))
    return InvalidArgument("a rule that begins at a score of {}: above 0, at most 1000", t.on);
  if (!(t.off <= t.on && t.off >= -1e3)) {
    return InvalidArgument("a rule that ends below a score of {}: at most the {} at which it begins", t.off, t.on);
  }
  if (!(std::abs(t.least) <= RuleTracker::kMostOdds)) {
    return InvalidArgument("log-odds of at least {}: expected -{} to {}", t.least, RuleTracker::kMostOdds,
                           RuleTracker::kMostOdds);
  }
  if (t.n_begin < 1 || t.n_end < 1 || t.n_begin > kMostChecks || t.n_end > kMostChecks) {
    return InvalidArgument("a rule begins and ends after 1 to {} checks in a row, not {} and {}", kMostChecks,
                           t.n_begin, t.n_end);
  }
  if (t.n_calibrate < 1 || t.n_calibrate > RuleTracker::kUsual) {
    return InvalidArgument("a rule learns what is usual from 1 to {} checks, not {}", RuleTracker::kUsual,
                           t.n_calibrate);
  }
  if (t.cooldown_ms < 0 || t.cooldown_ms > kMostMs)
    return InvalidArgument("a rule that rests for {} ms", t.cooldown_ms);
  return Status();
}

double RuleTracker::Score(double log_odds) const {
  if (!calibrated_) return 0;
  const Usual usual = UsualOf(usual_);
  return (log_odds - usual.median) / usual.spread;
}

void RuleTracker::Learn(double log_odds) {
  if (calibrated_ && n_learned_ < kUsual && Score(log_odds) <= -tuning_.on) {
    usual_.clear();
    n_learned_ = 0;
  }
  usual_.push_back(log_odds);
  if (std::ssize(usual_) > kUsual) usual_.pop_front();
  n_learned_ = std::min(n_learned_ + 1, kUsual);
  if (n_learned_ >= tuning_.n_calibrate) calibrated_ = true;
}

RuleTracker::Step RuleTracker::Check(double log_odds, int64_t t_ms) {
  const double odds = std::isnan(log_odds) ? -kMostOdds : std::clamp(log_odds, -kMostOdds, kMostOdds);
  Step out;
  out.score = Score(odds);
  if (holds_) {
    peak_ = std::max(peak_, out.score);
    const bool below = out.score < tuning_.off || odds < tuning_.least - kFall;
    n_below_ = below ? n_below_ + 1 : 0;
    if (n_below_ < tuning_.n_end) return out;
    holds_ = false;
    n_above_ = n_below_ = 0;
    rests_until_ms_ = t_ms > kMostMs ? t_ms : t_ms + tuning_.cooldown_ms;
    out.change = Change::kEnded;
    return out;
  }
  const bool above = calibrated_ && t_ms >= rests_until_ms_ && out.score >= tuning_.on && odds >= tuning_.least;
  if (!above) {
    n_above_ = 0;
    Learn(odds);
    return out;
  }
  if (n_above_ == 0) {
    since_ms_ = t_ms;
    peak_ = out.score;
  }
  peak_ = std::max(peak_, out.score);
  if (++n_above_ < tuning_.n_begin) {
    if (n_above_ == 1) Learn(odds);  // a single one may be usual; a row of them must not become it
    return out;
  }
  holds_ = true;
  n_above_ = 0;
  out.change = Change::kBegan;
  return out;
}

Json RuleTracker::Save() const {
  return {
      {"usual", usual_},   {"calibrated", calibrated_}, {"holds", holds_},       {"learned", n_learned_},
      {"above", n_above_}, {"below", n_below_},         {"since_ms", since_ms_}, {"rests_until_ms", rests_until_ms_},
      {"peak", peak_}};
}

Status RuleTracker::Restore(const Json& saved) {
  RuleTracker out(tuning_);
  Fields fields(saved, "rule.");
  int64_t learned = 0, above = 0, below = 0;
  const Json* const usual = fields.Get("usual");
  fields.Get("calibrated", &out.calibrated_);
  fields.Get("holds", &out.holds_);
  fields.Get("learned", &learned, 0, kUsual);
  fields.Get("above", &above, 0, tuning_.n_begin - 1);
  fields.Get("below", &below, 0, tuning_.n_end - 1);
  fields.Get("since_ms", &out.since_ms_, -kMostMs, kMostMs);
  fields.Get("rests_until_ms", &out.rests_until_ms_, INT64_MIN, 2 * kMostMs);
  const Json* const peak = fields.Get("peak");
  WEIR_RETURN_IF_ERROR(fields.Done());
  if (usual == nullptr || !usual->is_array() || std::ssize(*usual) > kUsual) {
    return InvalidArgument("'rule.usual' is not a list of at most {} numbers", kUsual);
  }
  for (const Json& value : *usual) {
    if (!value.is_number() || !(std::abs(value.get<double>()) <= kMostOdds)) {
      return InvalidArgument("'rule.usual' has something other than log-odds");
    }
    out.usual_.push_back(value.get<double>());
  }
  if (peak == nullptr || !peak->is_number() || !(std::abs(peak->get<double>()) <= 1e6)) {
    return InvalidArgument("'rule.peak' is no score");
  }
  const bool possible = learned == std::ssize(out.usual_) && (out.calibrated_ || learned < tuning_.n_calibrate) &&
                        !(out.calibrated_ && out.usual_.empty()) && (!out.holds_ || out.calibrated_) &&
                        (above == 0 || (out.calibrated_ && !out.holds_)) && (below == 0 || out.holds_);
  if (!possible) return InvalidArgument("'rule' is a state that no checks lead to");
  out.n_learned_ = static_cast<int32_t>(learned);
  out.n_above_ = static_cast<int32_t>(above);
  out.n_below_ = static_cast<int32_t>(below);
  out.peak_ = peak->get<double>();
  *this = std::move(out);
  return Status();
}

}  // namespace weir
