// SPDX-License-Identifier: Apache-2.0
// Metrics as texts that a scraper reads.
#pragma once

#include <span>
#include <string>
#include <string_view>

#include "serve/metric_family.h"

namespace weir {

enum class MetricsFormat {
  kPrometheus,   // the Prometheus text format 0.0.4
  kOpenMetrics,  // OpenMetrics 1.0.0, with exemplars
};

// What a request's header Accept asks for. Prometheus' own format where it asks for neither.
MetricsFormat AcceptedFormat(std::string_view accept);
const char* MetricsContentType(MetricsFormat format);
std::string MetricsText(std::span<const MetricFamily> families, MetricsFormat format);

}  // namespace weir
