// weir-plugin: route
// SPDX-License-Identifier: Apache-2.0
// Metrics for Prometheus.
#include "serve/call_job.h"
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
  response.set_content(call.host.metrics().Text(gauges), "text/plain; version=0.0.4; charset=utf-8");
}

}  // namespace

extern const RouteInfo kMetrics;
const RouteInfo kMetrics = {
    .method = "GET",
    .path = "/metrics",
    .handle = Handle,
};

}  // namespace weir
