// weir-plugin: route
// SPDX-License-Identifier: Apache-2.0
// Returns what a session still holds of its stream, over time and layers.
#include <fmt/core.h>
#include <charconv>
#include <cstdint>
#include <string>
#include <system_error>

#include "serve/call_job.h"
#include "serve/held_map.h"
#include "serve/reply.h"
#include "serve/routes/route.h"

namespace weir {
namespace {

constexpr int64_t kDefaultBins = 128, kMaxBins = 4096;

void Handle(const Call& call, httplib::Response& response) {
  int64_t n_bins = kDefaultBins;
  if (call.http.has_param("bins")) {
    const std::string text = call.http.get_param_value("bins");
    const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), n_bins);
    if (error != std::errc() || end != text.data() + text.size() || n_bins < 1 || n_bins > kMaxBins) {
      return SendError({400, "", fmt::format("'bins' must be a whole number from 1 to {}", kMaxBins)}, response);
    }
  }
  Json held;
  const Status status =
      LookAtSession(call.host, call.arguments[0], [&](const StreamSession& stream) { held = HeldMap(stream, n_bins); });
  if (!status.ok()) return SendError(status, response);
  SendJson(held, response);
}

}  // namespace

extern const RouteInfo kGetHeld;
const RouteInfo kGetHeld = {
    .method = "GET",
    .path = "/v1/sessions/{id}/held",
    .handle = Handle,
};

}  // namespace weir
