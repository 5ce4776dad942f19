// SPDX-License-Identifier: Apache-2.0
// Coordinate search over a policy's options: each option in turn takes the value that measures best while the others
// are fixed, until a whole pass changes nothing. The winner is then compared with the start on held-out material.
//
// Every point is measured on the same trials (common random numbers), so that a difference between two points is the
// mean of differences within trials, and its standard error is theirs: far smaller than the error of either mean.
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <string_view>
#include <vector>

#include "base/status.h"
#include "eval/suite.h"
#include "policy/policy.h"
#include "policy/profile.h"

namespace weir {

// One option and the values to try, written as in a policy's text.
struct TuneAxis {
  std::string key;
  std::vector<std::string> values;
};

// `search` is "b=0.0001,0.001;recent=32,64", a value with a comma or semicolon in double quotes; empty: what the
// policy's options declare (PolicyOptionInfo::tune), in the policy's order, without those that start.given names.
// kInvalidArgument: unknown or repeated options, options that are also in start.given, values that are not allowed,
// nothing to search.
Result<std::vector<TuneAxis>> TuneAxes(const PolicySpec& start, std::string_view search);

// One figure of a point, trial by trial. Smaller is better.
struct TuneFigure {
  std::string name;
  std::vector<double> trials;
};
RunningMean MeanOf(const TuneFigure& figure);
// Mean and error of a - b, trial by trial. REQUIRES: the same trials.
RunningMean GainOf(const TuneFigure& a, const TuneFigure& b);

// The first figure is the objective, the rest are its parts. Never empty.
using TuneFigures = std::vector<TuneFigure>;

// Measures a policy on the trials of the search, or on the held-out ones; every call uses the same trials. On
// kInvalidArgument and kOverBudget the point is skipped (contradictory options, a pot too small for them); any other
// error ends the search.
using TuneMeasure = std::function<Result<TuneFigures>(const PolicySpec& policy, bool held_out)>;

// One tried point. `key` and `value` are empty for the start.
struct TunePoint {
  PolicySpec policy;
  std::string key, value;
  bool held_out = false;
  Status status;  // not ok: skipped, without figures
  TuneFigures figures;
  RunningMean gain;   // over the start: start - this
  bool best = false;  // of the search so far
};

struct TuneOptions {
  int32_t max_points = 200;                      // limit on measured points
  std::function<void(const TunePoint&)> report;  // called for every point; may be empty
};

struct TuneResult {
  PolicySpec start, found;
  TuneFigures start_figures, found_figures;  // held out
  bool kept_found = false;  // found is better than start by more than one standard error of the difference
  bool converged = false;   // the last pass changed nothing
  int32_t n_points = 0;     // measured, without the held-out ones
  const PolicySpec& kept() const { return kept_found ? found : start; }
};

// Points of one pass, including the start: roughly the minimum cost of a search.
int64_t PointsOfOnePass(const PolicySpec& start, const std::vector<TuneAxis>& axes);

// Returns an error if the start cannot be measured. For equal objectives the earlier point is kept.
Result<TuneResult> Tune(const PolicySpec& start, const std::vector<TuneAxis>& axes, const TuneMeasure& measure,
                        const TuneOptions& options);

// The profile for `--policy NAME:profile=FILE`: the options kept, with the held-out figures of both points.
Profile ToProfile(const TuneResult& result, const std::string& model, int32_t pot, uint64_t seed);

}  // namespace weir
