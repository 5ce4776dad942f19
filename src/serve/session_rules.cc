// SPDX-License-Identifier: Apache-2.0
#include "serve/session_rules.h"

#include <fmt/core.h>

#include <algorithm>
#include <utility>
#include <vector>

#include "serve/png.h"

namespace weir {

bool SessionRules::Check(const std::string& id, Session& session, const Conversation& conversation, int64_t t_ms,
                         const std::string& trace, RuleSet::Part* part) {
  if (set.empty()) return true;
  std::vector<RuleEvent> found;
  const auto done = set.CheckPart(session, conversation, t_ms, session.plan().chunk_rows, part, &found);
  trouble = done.status().message();
  for (const RuleEvent& event : found) {
    Json json = ToJson(event);
    json["session"] = id;
    if (pictures != nullptr && pictures->Keep(event.id)) {
      json["picture"] = fmt::format("/v1/sessions/{}/events/{}/picture", id, event.id);
    }
    const std::string text = JsonText(json);
    events->Push(event.id, event.began ? "began" : "ended", text);
    if (mqtt != nullptr) mqtt->Post(id, event.rule, event.began, text);
    if (mqtt != nullptr && mqtt->shows() && json.contains("picture")) Show(id, event);
    const auto watched =
        std::ranges::find_if(set.rules(), [&](const RuleSet::Watched& other) { return other.rule.id == event.rule; });
    if (watched == set.rules().end() || watched->rule.webhook.empty()) continue;
    // A rule may have come from a server that had another address.
    const Status sent = webhooks == nullptr ? InvalidArgument("this server sends no webhooks")
                                            : webhooks->Post(id, event.id, watched->rule.webhook, text, trace);
    if (!sent.ok()) trouble = sent.message();
  }
  return !done.ok() || *done;
}

int64_t SessionRules::BytesBeside(const SessionOptions& options, const EncoderConfig* encoder) {
  if (options.aside_slots == 0) return 0;
  return EventRing::Bytes() + (encoder == nullptr ? 0 : EventPictures::Bytes(encoder->transform));
}

void SessionRules::Tell(const std::string& id, const RuleSet::Watched& watched) const {
  if (mqtt != nullptr) mqtt->Watch(id, watched.rule.id, watched.rule.when(), watched.tracker.holds());
}

void SessionRules::Show(const std::string& id, const RuleEvent& event) {
  const auto copy = pictures->Get(event.id);
  if (!copy) return;
  auto png = EncodePng(copy->view());
  if (!png.ok()) {
    trouble = png.status().message();
    return;
  }
  mqtt->Show(id, event.rule, *std::move(png));
}

Json SessionRules::Save(const std::vector<WebhookQueue::Event>& leaving) const {
  Json out = {{"set", set.Save()}, {"ring", events->Save()}};
  for (const WebhookQueue::Event& event : leaving) out["webhooks"].push_back(WebhookQueue::ToJson(event));
  return out;
}

Status SessionRules::Restore(const Json& saved, const Conversation& conversation, int32_t room,
                             std::vector<WebhookQueue::Event>* came) {
  if (!saved.is_object()) return InvalidArgument("the snapshot's rules are no object");
  Fields fields(saved, "rules.");
  const Json* const rules = fields.Get("set");
  const Json* const ring = fields.Get("ring");
  const Json* const waiting = fields.Get("webhooks");
  WEIR_RETURN_IF_ERROR(fields.Done());
  if (rules == nullptr || ring == nullptr) return InvalidArgument("the snapshot's rules lack fields");
  if (waiting != nullptr && !waiting->is_array()) return InvalidArgument("'rules.webhooks' is no list");
  for (size_t i = 0; waiting != nullptr && i < waiting->size(); ++i) {
    WEIR_ASSIGN_OR_RETURN(WebhookQueue::Event event, WebhookQueue::FromJson((*waiting)[i]));
    came->push_back(std::move(event));
  }
  WEIR_RETURN_IF_ERROR(set.Restore(*rules, conversation, room));
  return events->Restore(*ring) ? Status() : InvalidArgument("the snapshot's events are not those of rules");
}

Json RuleJson(const RuleSet::Watched& watched) {
  Json out = {{"object", "rule"}};
  out.update(ToJson(watched.rule));
  out["state"] = watched.tracker.holds() ? "holds" : watched.tracker.calibrated() ? "watches" : "learns";
  if (watched.asked) {
    out["log_odds"] = watched.log_odds;
    out["score"] = watched.score;
  }
  return out;
}

}  // namespace weir
