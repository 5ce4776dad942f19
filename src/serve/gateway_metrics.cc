// SPDX-License-Identifier: Apache-2.0
#include "serve/gateway_metrics.h"

#include <fmt/core.h>

namespace weir {
namespace {

// Schedulers count prefixes in blocks. A prompt is reused up to the token at which it differs, so the size is free.
constexpr int64_t kBlockTokens = 16;

}  // namespace

std::vector<MetricFamily> GatewayMetrics(const Gauges& gauges, const std::string& model_name) {
  const MetricLabels model = {{"model_name", model_name}};
  const double share = RoomShare(gauges);
  std::vector<MetricFamily> out;
  const auto add = [&](const char* name, const char* help, const MetricSample& sample) {
    out.push_back({name, MetricFamily::Type::kGauge, help, {sample}, std::nullopt});
  };
  add("vllm:num_requests_waiting", "Requests that wait to start: weir_jobs_waiting.",
      {model, gauges.jobs_waiting, std::nullopt});
  add("vllm:num_requests_running", "Requests that share the engine now: weir_jobs_running.",
      {model, gauges.jobs_running, std::nullopt});
  // The share of what can still be admitted, not of keys and values alone: a server that has no room for another
  // session is full, whatever its sessions hold.
  constexpr const char* kShare =
      "Share of the room for sessions and answers that is in use, from 0 to 1: weir_room_share.";
  add("vllm:kv_cache_usage_perc", kShare, {model, 0, share});
  add("vllm:gpu_cache_usage_perc", kShare, {model, 0, share});  // its earlier name
  MetricLabels cache = model;
  cache.emplace_back("block_size", fmt::format("{}", kBlockTokens));
  cache.emplace_back("num_gpu_blocks", fmt::format("{}", gauges.answer_pots * gauges.answer_pot_tokens / kBlockTokens));
  add("vllm:cache_config_info", "Tokens of prompts that the answer pots can hold for later requests, in blocks.",
      {cache, 1, std::nullopt});
  return out;
}

}  // namespace weir
