// SPDX-License-Identifier: Apache-2.0
// From a trace to pictures: what was kept over a stream's life, and where attention went in the pot.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "base/status.h"
#include "kv/trace_reader.h"
#include "trace_figure.h"
#include "trace_places.h"

namespace weir::app {

// Which part of a trace is used. -1: all.
struct TraceFilter {
  int layer = -1, head = -1;
  bool Takes(const TraceStep& step) const {
    return (layer < 0 || step.layer < 0 || step.layer == layer) && (head < 0 || step.head < 0 || step.head == head);
  }
  // Groups of a pot that pass, ascending; none where the pot has no such layer or head.
  std::vector<int32_t> Groups(const PotShape& pot) const;
};

// The result of a first pass: sizes for the second pass, and the figures of a summary.
struct TraceTotals {
  TraceHead head;
  int64_t n_restarts = 0, n_tokens = 0, n_selections = 0;
  std::vector<int64_t> n_selected, n_dropped;            // [n_groups], of the last stream in the file
  std::vector<std::vector<SeqRun>> held;                 // [n_groups], at the end
  std::vector<TraceToken> tokens;                        // of the stream, by seq
  TakenBack taken_back;                                  // excerpts of it
  std::vector<std::pair<std::string, int64_t>> reasons;  // selections of one group each
  std::optional<TraceCounters> counters;
  bool pattern = false;  // scores of every slot were written
};
Result<TraceTotals> ReadTotals(const std::string& path);

// Tokens read (across) against place in the stream (down): how many of the filter's layers and heads held it then, as
// the square root of their share.
Result<Panel> KeptMap(const std::string& path, const TraceTotals& totals, const TraceFilter& filter);

// Place in the pot (across) against selection (down), one panel per layer: the score of each slot, mean over the
// filter's heads. At most `n_panels` layers, evenly spaced. Empty for a trace without scores of every slot.
Result<std::vector<Panel>> Patterns(const std::string& path, const TraceTotals& totals, const TraceFilter& filter,
                                    int n_panels);

}  // namespace weir::app
