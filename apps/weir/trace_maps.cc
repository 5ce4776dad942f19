// SPDX-License-Identifier: Apache-2.0
#include "trace_maps.h"

#include <fmt/core.h>
#include <algorithm>
#include <cmath>

namespace weir::app {
namespace {

constexpr int kMostColumns = 720, kMostRows = 360;
constexpr int kPatternColumns = 512, kPatternRows = 200;

// A group as it is between two selections.
struct GroupState {
  std::vector<SeqRun> kept;
  int64_t next = 0;
};

// Calls visit(reader, step) for every selection of the last stream in the file.
template <typename Visit>
Status ForLastStream(const std::string& path, int64_t n_restarts, const Visit& visit) {
  WEIR_ASSIGN_OR_RETURN(const std::unique_ptr<TraceReader> reader, TraceReader::Open(path));
  TraceStep step;
  for (;;) {
    WEIR_ASSIGN_OR_RETURN(const bool more, reader->Next(&step));
    if (!more) return Status();
    if (reader->n_restarts() == n_restarts) visit(*reader, step);
  }
}

// Adds the part of [first, end) in each row to counts; rows are `per_row` tokens high.
void AddToRows(int64_t first, int64_t end, double per_row, std::vector<double>* counts) {
  const int64_t n_rows = static_cast<int64_t>(counts->size());
  while (first < end) {
    const int64_t row = std::min(n_rows - 1, static_cast<int64_t>(static_cast<double>(first) / per_row));
    const int64_t row_end =
        row == n_rows - 1
            ? end
            : std::max(first + 1, static_cast<int64_t>(std::ceil(static_cast<double>(row + 1) * per_row)));
    const int64_t stop = std::min(end, row_end);
    (*counts)[static_cast<size_t>(row)] += static_cast<double>(stop - first);
    first = stop;
  }
}

}  // namespace

std::vector<int32_t> TraceFilter::Groups(const PotShape& pot) const {
  std::vector<int32_t> out;
  if (layer >= pot.n_layers || head >= pot.n_kv_heads) return out;
  for (int32_t group = 0; group < pot.n_groups(); ++group) {
    TraceStep step;
    step.layer = pot.layer_of(group);
    step.head = pot.head_of(group);
    if (Takes(step)) out.push_back(group);
  }
  return out;
}

Result<TraceTotals> ReadTotals(const std::string& path) {
  WEIR_ASSIGN_OR_RETURN(const std::unique_ptr<TraceReader> reader, TraceReader::Open(path));
  TraceTotals out;
  out.head = reader->head();
  const size_t n_groups = static_cast<size_t>(out.head.pot.n_groups());
  out.n_selected.assign(n_groups, 0);
  out.n_dropped.assign(n_groups, 0);
  const auto restart = [&] {
    std::fill(out.n_selected.begin(), out.n_selected.end(), 0);
    std::fill(out.n_dropped.begin(), out.n_dropped.end(), 0);
    out.n_selections = 0;
    out.pattern = false;
    out.reasons.clear();
    out.taken_back.Restart();
    out.n_restarts = reader->n_restarts();
  };
  TraceStep step;
  for (;;) {
    WEIR_ASSIGN_OR_RETURN(const bool more, reader->Next(&step));
    if (reader->n_restarts() != out.n_restarts) restart();
    if (!more) break;
    out.n_selections = std::max(out.n_selections, step.step + 1);
    out.taken_back.Note(step);
    ++out.n_selected[static_cast<size_t>(step.group)];
    out.n_dropped[static_cast<size_t>(step.group)] += step.n_slots - step.n_keep;
    out.pattern = out.pattern || (out.head.all_scores && !step.scores.empty());
    const auto at =
        std::find_if(out.reasons.begin(), out.reasons.end(), [&](const auto& r) { return r.first == step.reason; });
    if (at != out.reasons.end()) {
      ++at->second;
    } else {
      out.reasons.push_back({step.reason, 1});
    }
  }
  out.n_tokens = reader->n_tokens();
  out.counters = reader->counters();
  out.tokens = reader->tokens();
  for (size_t group = 0; group < n_groups; ++group) out.held.push_back(reader->held(static_cast<int32_t>(group)));
  return out;
}

Result<Panel> KeptMap(const std::string& path, const TraceTotals& totals, const TraceFilter& filter) {
  const PotShape& pot = totals.head.pot;
  const std::vector<int32_t> groups = filter.Groups(pot);
  if (groups.empty()) return InvalidArgument("{} has no such layer or head", path);
  if (totals.n_tokens == 0) return InvalidArgument("{} contains no tokens, so there is nothing to draw", path);
  const int64_t n = totals.n_tokens;
  Panel out;
  out.title = "What was kept while the stream was read: share of layers and heads, square root";
  out.x_label = "tokens read";
  out.y_label = "place in the stream (token)";
  out.x_last = out.y_last = static_cast<double>(n);
  const int columns = static_cast<int>(std::min<int64_t>(kMostColumns, n)),
            rows = static_cast<int>(std::min<int64_t>(kMostRows, n));
  out.map = HeatMap(columns, rows);
  const double per_row = static_cast<double>(n) / rows, per_column = static_cast<double>(n) / columns;

  std::vector<GroupState> states(static_cast<size_t>(pot.n_groups()));
  int column = 0;
  std::vector<double> counts(static_cast<size_t>(rows)), read(static_cast<size_t>(rows));
  // Columns that end before n_seen show what the groups held since their latest selections.
  const auto draw_until = [&](int64_t n_seen, bool last) {
    for (; column < columns; ++column) {
      const int64_t edge = std::llround((column + 1) * per_column);
      if (edge >= n_seen && !last) return;
      std::fill(counts.begin(), counts.end(), 0);
      std::fill(read.begin(), read.end(), 0);
      for (const int32_t group : groups) {
        const GroupState& state = states[static_cast<size_t>(group)];
        for (const SeqRun& run : state.kept) AddToRows(run.first, run.first + run.count, per_row, &counts);
        AddToRows(state.next, edge, per_row, &counts);
      }
      AddToRows(0, edge, per_row, &read);
      for (int row = 0; row < rows; ++row) {
        const double all = read[static_cast<size_t>(row)] * static_cast<double>(groups.size());
        // The square root makes one head of many visible.
        if (all > 0) out.map.at(column, row) = static_cast<float>(std::sqrt(counts[static_cast<size_t>(row)] / all));
      }
    }
  };
  WEIR_RETURN_IF_ERROR(ForLastStream(path, totals.n_restarts, [&](const TraceReader& reader, const TraceStep& step) {
    draw_until(std::min(step.n_seen, n), false);
    states[static_cast<size_t>(step.group)] = {reader.held(step.group), reader.n_tokens()};
  }));
  draw_until(n, true);
  return out;
}

Result<std::vector<Panel>> Patterns(const std::string& path, const TraceTotals& totals, const TraceFilter& filter,
                                    int n_panels) {
  std::vector<Panel> out;
  const PotShape& pot = totals.head.pot;
  if (!totals.pattern || totals.n_selections == 0) return out;
  std::vector<int> layers;
  if (filter.layer >= 0 || pot.granularity == Granularity::kGlobal) {
    layers.push_back(filter.layer);
  } else {
    const int n = std::min(n_panels, pot.n_layers);
    for (int i = 0; i < n; ++i) layers.push_back(n == 1 ? 0 : i * (pot.n_layers - 1) / (n - 1));
  }
  int64_t widest = 1;
  WEIR_RETURN_IF_ERROR(ForLastStream(path, totals.n_restarts, [&](const TraceReader&, const TraceStep& step) {
    widest = std::max(widest, step.n_slots);
  }));
  const int columns = static_cast<int>(std::min<int64_t>(kPatternColumns, widest));
  const int rows = static_cast<int>(std::min<int64_t>(kPatternRows, totals.n_selections));
  for (const int layer : layers) {
    Panel panel;
    panel.title = layer < 0 ? "Scores in the pot before each selection"
                            : fmt::format("Scores in the pot before each selection, layer {}", layer);
    panel.x_label = "place in the pot (slot), oldest first";
    panel.y_label = "selection";
    panel.x_last = static_cast<double>(widest);
    panel.y_last = static_cast<double>(totals.n_selections);
    panel.map = HeatMap(columns, rows);
    std::vector<double> sums(panel.map.cells.size(), 0), counts(panel.map.cells.size(), 0);
    TraceFilter here = filter;
    here.layer = layer;
    WEIR_RETURN_IF_ERROR(ForLastStream(path, totals.n_restarts, [&](const TraceReader&, const TraceStep& step) {
      if (!here.Takes(step)) return;
      const size_t row = static_cast<size_t>(step.step * rows / totals.n_selections);
      for (size_t slot = 0; slot < step.scores.size(); ++slot) {
        const size_t cell =
            row * static_cast<size_t>(columns) + slot * static_cast<size_t>(columns) / static_cast<size_t>(widest);
        if (cell >= sums.size() || std::isnan(step.scores[slot])) continue;
        sums[cell] += step.scores[slot];
        ++counts[cell];
      }
    }));
    // Attention is heavy-tailed: the square root of the share of what nearly all cells stay below shows more than
    // sinks.
    std::vector<float> values;
    for (size_t i = 0; i < sums.size(); ++i) {
      if (counts[i] == 0) continue;
      panel.map.cells[i] = static_cast<float>(sums[i] / counts[i]);
      values.push_back(panel.map.cells[i]);
    }
    if (values.empty()) continue;
    const auto [low_at, high_at] = std::minmax_element(values.begin(), values.end());
    const float low = std::min(0.0f, *low_at);
    float high = *high_at;
    const auto most = values.begin() + static_cast<std::ptrdiff_t>(values.size() * 99 / 100);
    std::nth_element(values.begin(), most, values.end());
    if (most != values.end() && *most > low) high = *most;
    for (float& cell : panel.map.cells) {
      if (!std::isnan(cell)) cell = high > low ? std::sqrt(std::clamp((cell - low) / (high - low), 0.0f, 1.0f)) : 0.0f;
    }
    out.push_back(std::move(panel));
  }
  return out;
}

}  // namespace weir::app
