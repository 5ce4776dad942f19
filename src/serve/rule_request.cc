// SPDX-License-Identifier: Apache-2.0
#include "serve/rule_request.h"

#include <utility>

#include "engine/session/aside_room.h"

namespace weir {

Result<Rule> ParseRuleRequest(const Host& host, const Json& body) {
  WEIR_ASSIGN_OR_RETURN(Rule rule, RuleFromJson(body));
  if (rule.webhook.empty()) return rule;
  const WebhookSender* const webhooks = host.webhooks();
  const Status allowed = webhooks != nullptr ? webhooks->CheckTarget(rule.webhook)
                                             : InvalidArgument("this server was started without --webhook URL");
  if (!allowed.ok()) return InvalidArgument("'webhook' is not possible: {}", allowed.message());
  return rule;
}

Result<Json> AddRule(StreamSession& stream, Rule rule) {
  if (stream.rules == nullptr) {
    return InvalidArgument("this session was made without room for rules: make it with 'rule_tokens'");
  }
  if (stream.kept_frames != nullptr) WEIR_RETURN_IF_ERROR(CheckFramesForRules(*stream.kept_frames));
  WEIR_RETURN_IF_ERROR(
      stream.rules->set.Add(std::move(rule), stream.conversation, AsideRoom(stream.session->plan())).status());
  const RuleSet::Watched& watched = stream.rules->set.rules().back();
  stream.rules->Tell(stream.id, watched);
  return RuleJson(watched);
}

Status RemoveRule(const Host& host, StreamSession& stream, const std::string& rule) {
  const bool removed = stream.rules != nullptr && stream.rules->set.Remove(rule);
  if (!removed) return NotFound("the session has no rule '{}'", rule);
  if (host.mqtt() != nullptr) host.mqtt()->Forget(stream.id, rule);
  return Status();
}

}  // namespace weir
