// SPDX-License-Identifier: Apache-2.0
#include "serve/otlp_metrics.h"

#include <string_view>
#include <utility>

#include "serve/call_job.h"

namespace weir {

std::vector<MetricFamily> OtlpMetrics(Host& host) {
  constexpr std::pair<std::string_view, const char*> kTheirNames[] = {
      {"weir_ttft_seconds", "gen_ai.server.time_to_first_token"},
      {"weir_token_seconds", "gen_ai.server.time_per_output_token"}};
  Gauges gauges;
  const Status status = CallEngine(host, [&] {
    gauges = host.ReadGauges();
    return Status();
  });
  if (!status.ok()) return {};
  std::vector<MetricFamily> out = host.metrics().Collect(gauges);
  for (size_t i = 0, n = out.size(); i < n; ++i) {
    for (const auto& [ours, theirs] : kTheirNames) {
      if (out[i].name != ours) continue;
      MetricFamily again = out[i];
      again.name = theirs;
      again.histogram->labels = {{"gen_ai.operation.name", "chat"},
                                 {"gen_ai.provider.name", "weir"},
                                 {"gen_ai.request.model", host.options().model_name}};
      out.push_back(std::move(again));
    }
  }
  return out;
}

}  // namespace weir
