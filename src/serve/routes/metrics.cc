// weir-plugin: route
// SPDX-License-Identifier: Apache-2.0
// Metrics for Prometheus.
#include <utility>
#include <vector>

#include "serve/call_job.h"
#include "serve/gateway_metrics.h"
#include "serve/metrics_text.h"
#include "serve/reply.h"
#include "serve/routes/route.h"

namespace weir {
namespace {

void Handle(const Call& call, httplib::Response& response) {
  Gauges gauges;
  const Status status = CallEngine(call.host, [&] {
    gauges = call.host.ReadGauges();
    return Status();
  });
  if (!status.ok()) return SendError(status, response);
  std::vector<MetricFamily> all = call.host.metrics().Collect(gauges);
  for (MetricFamily& family : GatewayMetrics(gauges, call.host.options().model_name)) all.push_back(std::move(family));
  const MetricsFormat format = AcceptedFormat(call.http.get_header_value("Accept"));
  response.set_content(MetricsText(all, format), MetricsContentType(format));
}

}  // namespace

extern const RouteInfo kMetrics;
const RouteInfo kMetrics = {
    .method = "GET",
    .path = "/metrics",
    .handle = Handle,
    .when_draining = true,
};

}  // namespace weir
