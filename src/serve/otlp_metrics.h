// SPDX-License-Identifier: Apache-2.0
// The server's metrics for a collector.
#pragma once

#include <vector>

#include "serve/host.h"
#include "serve/metric_family.h"

namespace weir {

// Those of /metrics, and the latencies again under OpenTelemetry's names for generative models. Waits for the engine's
// current step; empty if the engine stops. Any thread but the engine's.
std::vector<MetricFamily> OtlpMetrics(Host& host);

}  // namespace weir
