// SPDX-License-Identifier: Apache-2.0
// What schedulers of inference gateways read of a server, under the names that they look for.
//
// The model server protocol of the Gateway API Inference Extension asks for the requests that wait, those that run, and
// the share of the memory for keys and values that is in use; its endpoint picker, and llm-d's, look for vLLM's names
// unless they are told others. This file is the whole of the mapping.
#pragma once

#include <string>
#include <vector>

#include "serve/metric_family.h"
#include "serve/metrics.h"

namespace weir {

std::vector<MetricFamily> GatewayMetrics(const Gauges& gauges, const std::string& model_name);

}  // namespace weir
