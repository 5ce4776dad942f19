// weir-plugin: route
// SPDX-License-Identifier: Apache-2.0
// Adds a rule to a session: something to watch its stream for.
#include <string>
#include <utility>

#include "engine/session/aside_room.h"
#include "serve/call_job.h"
#include "serve/reply.h"
#include "serve/routes/common.h"
#include "serve/routes/route.h"

namespace weir {
namespace {

void Handle(const Call& call, httplib::Response& response) {
  const auto body = ParseJsonObject(call.body);
  if (!body.ok()) return SendError(body.status(), response);
  auto rule = RuleFromJson(*body);
  if (!rule.ok()) return SendError(rule.status(), response);
  if (!rule->webhook.empty()) {
    const WebhookSender* const webhooks = call.host.webhooks();
    const Status allowed = webhooks != nullptr ? webhooks->CheckTarget(rule->webhook)
                                               : InvalidArgument("this server was started without --webhook URL");
    if (!allowed.ok()) return SendError(InvalidArgument("'webhook' is not possible: {}", allowed.message()), response);
  }
  Json out;
  const Status status = CallWithSession(
      call.host, call.arguments[0],
      [&](StreamSession& stream) -> Status {
        if (stream.rules == nullptr) {
          return InvalidArgument("this session was made without room for rules: make it with 'rule_tokens'");
        }
        if (stream.kept_frames != nullptr) WEIR_RETURN_IF_ERROR(CheckFramesForRules(*stream.kept_frames));
        WEIR_RETURN_IF_ERROR(
            stream.rules->set.Add(*std::move(rule), stream.conversation, AsideRoom(stream.session->plan())).status());
        const RuleSet::Watched& watched = stream.rules->set.rules().back();
        stream.rules->Tell(stream.id, watched);
        out = RuleJson(watched);
        return Status();
      },
      ClientWaits);
  if (status.code() == StatusCode::kUnsupported) return SendError({400, "", status.message()}, response);
  if (!status.ok()) return SendError(status, response);
  SendJson(out, response, 201);
}

}  // namespace

extern const RouteInfo kAddRule;
const RouteInfo kAddRule = {
    .method = "POST",
    .path = "/v1/sessions/{id}/rules",
    .handle = Handle,
};

}  // namespace weir
