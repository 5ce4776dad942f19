// weir-plugin: route
// SPDX-License-Identifier: Apache-2.0
// The rules of a session, with their scores and what they cost.
#include "serve/call_job.h"
#include "serve/reply.h"
#include "serve/routes/route.h"

namespace weir {
namespace {

void Handle(const Call& call, httplib::Response& response) {
  Json out = {{"object", "list"}, {"data", Json::array()}};
  const Status status = LookAtSession(call.host, call.arguments[0], [&](const StreamSession& stream) {
    if (stream.rules == nullptr) return;
    const RuleSet& set = stream.rules->set;
    for (const RuleSet::Watched& watched : set.rules()) out["data"].push_back(RuleJson(watched));
    const RuleSet::Cost& cost = set.cost();
    out["last_event_id"] = stream.rules->events->newest();
    out["checks"] = cost.n_checks;
    out["tokens"] = cost.n_tokens;
    out["ms_per_rule"] = cost.n_asked > 0 ? 1e3 * cost.seconds / static_cast<double>(cost.n_asked) : 0;
    if (!stream.rules->trouble.empty()) out["trouble"] = stream.rules->trouble;
  });
  if (!status.ok()) return SendError(status, response);
  SendJson(out, response);
}

}  // namespace

extern const RouteInfo kListRules;
const RouteInfo kListRules = {
    .method = "GET",
    .path = "/v1/sessions/{id}/rules",
    .handle = Handle,
};

}  // namespace weir
