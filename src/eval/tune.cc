// SPDX-License-Identifier: Apache-2.0
#include "eval/tune.h"

#include <algorithm>
#include <set>
#include <utility>

namespace weir {
namespace {

// The front of `rest` up to a character of `ends` outside of double quotes, which is left there.
std::string_view TakeUntil(std::string_view ends, std::string_view* rest) {
  bool quoted = false;
  size_t end = 0;
  for (; end < rest->size(); ++end) {
    const char c = (*rest)[end];
    if (quoted && c == '\\' && end + 1 < rest->size()) {
      ++end;
    } else if (c == '"') {
      quoted = !quoted;
    } else if (!quoted && ends.find(c) != std::string_view::npos) {
      break;
    }
  }
  const std::string_view out = rest->substr(0, end);
  rest->remove_prefix(end);
  return out;
}

// Adds a value in its normal form, so that 1e-3 and 0.001 are one; a value twice counts once.
Status AddValue(const PolicySpec& start, const PolicyOptionInfo& option, std::string_view value, TuneAxis* axis) {
  WEIR_ASSIGN_OR_RETURN(const PolicySpec changed, WithOption(start, option.key, value));
  std::string text = OptionText(changed, option);
  if (std::find(axis->values.begin(), axis->values.end(), text) == axis->values.end()) {
    axis->values.push_back(std::move(text));
  }
  return Status();
}

const PolicyOptionInfo* FindOption(const PolicyInfo& info, std::string_view key) {
  for (const PolicyOptionInfo& option : info.options) {
    if (key == option.key) return &option;
  }
  return nullptr;
}

Result<std::vector<TuneAxis>> DeclaredAxes(const PolicySpec& start) {
  std::vector<TuneAxis> out;
  for (const PolicyOptionInfo& option : start.info->options) {
    if (option.tune == nullptr || start.given.count(option.key) != 0) continue;
    TuneAxis axis{option.key, {}};
    for (std::string_view rest = option.tune; !rest.empty();) {
      const size_t bar = std::min(rest.find('|'), rest.size());
      WEIR_RETURN_IF_ERROR(AddValue(start, option, rest.substr(0, bar), &axis));
      rest.remove_prefix(std::min(bar + 1, rest.size()));
    }
    out.push_back(std::move(axis));
  }
  if (!out.empty()) return out;
  return InvalidArgument("policy {} declares no values to search{}; name some: --search \"key=value,value;key=...\"",
                         start.info->name, start.given.empty() ? "" : " beside the options that are given");
}

bool IsRefusal(const Status& status) {
  return status.code() == StatusCode::kInvalidArgument || status.code() == StatusCode::kOverBudget;
}

class Search {
 public:
  Search(const PolicySpec& start, const TuneMeasure& measure, const TuneOptions& options)
      : measure_(measure), options_(options), best_(start) {}

  Status Begin() {
    WEIR_ASSIGN_OR_RETURN(start_figures_, measure_(best_, /*held_out=*/false));
    tried_.insert(best_.text);
    ++n_points_;
    best_objective_ = MeanOf(start_figures_.front()).mean();
    TunePoint point;
    point.policy = best_;
    point.figures = start_figures_;
    point.gain = GainOf(start_figures_.front(), start_figures_.front());
    point.best = true;
    Report(point);
    return Status();
  }

  // Tries every value of one option; true if the best point moved. No point is measured twice: `best_` is already the
  // best of those measured.
  Result<bool> Along(const TuneAxis& axis) {
    const PolicySpec base = best_;
    bool moved = false;
    for (const std::string& value : axis.values) {
      WEIR_ASSIGN_OR_RETURN(PolicySpec policy, WithOption(base, axis.key, value));
      if (full() || !tried_.insert(policy.text).second) continue;
      ++n_points_;
      TunePoint point;
      point.key = axis.key;
      point.value = value;
      Result<TuneFigures> figures = measure_(policy, /*held_out=*/false);
      if (!figures.ok()) {
        if (!IsRefusal(figures.status())) return figures.status();
        point.status = figures.status();
      } else {
        point.figures = *std::move(figures);
        point.gain = GainOf(start_figures_.front(), point.figures.front());
        const double objective = MeanOf(point.figures.front()).mean();
        point.best = objective < best_objective_;
        if (point.best) {
          best_objective_ = objective;
          best_ = policy;
          moved = true;
        }
      }
      point.policy = std::move(policy);
      Report(point);
    }
    return moved;
  }

  bool full() const { return n_points_ >= options_.max_points; }
  void Report(const TunePoint& point) const {
    if (options_.report) options_.report(point);
  }
  const PolicySpec& best() const { return best_; }
  int32_t n_points() const { return n_points_; }

 private:
  const TuneMeasure& measure_;
  const TuneOptions& options_;
  PolicySpec best_;
  TuneFigures start_figures_;
  double best_objective_ = 0;
  std::set<std::string> tried_;  // PolicySpec::text
  int32_t n_points_ = 0;
};

// Measures start and winner on held-out trials and decides.
Status Confirm(const TuneMeasure& measure, const Search& search, TuneResult* result) {
  const auto add = [&](const PolicySpec& policy, bool best, TuneFigures* figures) -> Status {
    WEIR_ASSIGN_OR_RETURN(*figures, measure(policy, /*held_out=*/true));
    TunePoint point;
    point.policy = policy;
    point.held_out = true;
    point.figures = *figures;
    point.gain = GainOf(result->start_figures.front(), figures->front());
    point.best = best;
    search.Report(point);
    return Status();
  };
  const bool same = result->found.text == result->start.text;
  WEIR_RETURN_IF_ERROR(add(result->start, same, &result->start_figures));
  result->found_figures = result->start_figures;
  if (same) return Status();
  WEIR_RETURN_IF_ERROR(add(result->found, true, &result->found_figures));
  const RunningMean gain = GainOf(result->start_figures.front(), result->found_figures.front());
  result->kept_found = gain.n() > 1 && gain.mean() > gain.std_error();
  return Status();
}

}  // namespace

RunningMean MeanOf(const TuneFigure& figure) {
  RunningMean out;
  for (const double x : figure.trials) out.Add(x);
  return out;
}

RunningMean GainOf(const TuneFigure& a, const TuneFigure& b) {
  RunningMean out;
  for (size_t i = 0; i < std::min(a.trials.size(), b.trials.size()); ++i) out.Add(a.trials[i] - b.trials[i]);
  return out;
}

Result<std::vector<TuneAxis>> TuneAxes(const PolicySpec& start, std::string_view search) {
  if (search.empty()) return DeclaredAxes(start);
  std::vector<TuneAxis> out;
  std::set<std::string> keys;
  while (!search.empty()) {
    std::string_view one = TakeUntil(";", &search);
    search.remove_prefix(std::min<size_t>(1, search.size()));
    const size_t equals = one.find('=');
    if (equals == std::string_view::npos) {
      return InvalidArgument("--search '{}' is not of the form key=value,value", one);
    }
    TuneAxis axis{std::string(one.substr(0, equals)), {}};
    one.remove_prefix(equals + 1);
    if (start.given.count(axis.key) != 0) {
      return InvalidArgument("option {} is both given and searched", axis.key);
    }
    if (!keys.insert(axis.key).second) return InvalidArgument("option {} is searched twice", axis.key);
    const PolicyOptionInfo* option = FindOption(*start.info, axis.key);
    // WithOption() reports which options exist.
    if (option == nullptr) return WithOption(start, axis.key, "0").status();
    for (bool more = true; more;) {
      WEIR_RETURN_IF_ERROR(AddValue(start, *option, TakeUntil(",", &one), &axis));
      more = !one.empty();
      one.remove_prefix(std::min<size_t>(1, one.size()));
    }
    out.push_back(std::move(axis));
  }
  return out;
}

int64_t PointsOfOnePass(const PolicySpec& start, const std::vector<TuneAxis>& axes) {
  int64_t n = 1;
  for (const TuneAxis& axis : axes) {
    const PolicyOptionInfo* option = FindOption(*start.info, axis.key);
    const std::string now = option != nullptr ? OptionText(start, *option) : "";
    for (const std::string& value : axis.values) n += value != now ? 1 : 0;
  }
  return n;
}

Result<TuneResult> Tune(const PolicySpec& start, const std::vector<TuneAxis>& axes, const TuneMeasure& measure,
                        const TuneOptions& options) {
  if (axes.empty()) return InvalidArgument("nothing to search");
  Search search(start, measure, options);
  WEIR_RETURN_IF_ERROR(search.Begin());
  TuneResult out;
  while (!out.converged && !search.full()) {
    bool any = false;
    for (const TuneAxis& axis : axes) {
      WEIR_ASSIGN_OR_RETURN(const bool moved, search.Along(axis));
      any = any || moved;
    }
    out.converged = !any && !search.full();
  }
  out.start = start;
  out.found = search.best();
  out.n_points = search.n_points();
  WEIR_RETURN_IF_ERROR(Confirm(measure, search, &out));
  return out;
}

Profile ToProfile(const TuneResult& result, const std::string& model, int32_t pot, uint64_t seed) {
  Profile out;
  out.policy = result.start.info->name;
  out.model = model;
  out.pot = pot;
  out.seed = seed;
  out.kept_found = result.kept_found;
  const PolicyOptions& options = result.kept().options;
  for (const PolicyOptionInfo& option : result.start.info->options) {
    if (option.text != nullptr) {
      out.options[option.key] = options.Text(option.key);
    } else {
      out.options[option.key] = options.Number(option.key);
    }
  }
  for (size_t i = 0; i < result.start_figures.size(); ++i) {
    const RunningMean start = MeanOf(result.start_figures[i]), found = MeanOf(result.found_figures[i]),
                      gain = GainOf(result.start_figures[i], result.found_figures[i]);
    out.tasks.push_back({result.start_figures[i].name, start.mean(), start.std_error(), found.mean(), found.std_error(),
                         gain.mean(), gain.std_error()});
  }
  return out;
}

}  // namespace weir
