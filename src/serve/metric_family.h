// SPDX-License-Identifier: Apache-2.0
// Metrics as values, before they are written in a format (serve/metrics_text.h, serve/otlp_json.h).
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <utility>
#include <vector>

namespace weir {

using MetricLabels = std::vector<std::pair<std::string, std::string>>;

struct MetricSample {
  MetricLabels labels;
  int64_t count = 0;
  std::optional<double> ratio;  // in place of `count`, where the value is no whole number
};

// One of the requests that a bucket counts.
struct Exemplar {
  std::string trace_id, span_id;  // in hexadecimal digits
  double value = 0;
  int64_t unix_ns = 0;
};

struct MetricHistogram {
  MetricLabels labels;
  std::span<const double> bounds;  // upper ones, in ascending order; static
  std::vector<int64_t> counts;     // one for each bound, and one above all of them; not cumulative
  double sum = 0;
  std::vector<std::optional<Exemplar>> exemplars;  // as many as counts
};

struct MetricFamily {
  enum class Type { kGauge, kCounter, kHistogram };
  std::string name;  // that of a counter ends with _total
  Type type = Type::kGauge;
  std::string help;
  std::vector<MetricSample> samples;
  std::optional<MetricHistogram> histogram;  // in place of samples
};

}  // namespace weir
