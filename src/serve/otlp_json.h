// SPDX-License-Identifier: Apache-2.0
// Spans and metrics as the OpenTelemetry protocol's JSON: bodies of POST requests to /v1/traces and /v1/metrics.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "serve/metric_family.h"
#include "serve/span.h"

namespace weir {

// What the server is: service.name and the like.
using OtlpResource = std::vector<std::pair<std::string, std::string>>;

std::string SpansBody(const OtlpResource& resource, std::span<const Span> spans);
// Counters count since `since_ns`, Unix time.
std::string MetricsBody(const OtlpResource& resource, std::span<const MetricFamily> families, int64_t since_ns,
                        int64_t now_ns);

}  // namespace weir
