// SPDX-License-Identifier: Apache-2.0
#include "serve/session_rules.h"

#include <utility>
#include <vector>

namespace weir {

bool SessionRules::Check(const std::string& id, Session& session, const Conversation& conversation, int64_t t_ms,
                         RuleSet::Part* part) {
  if (set.empty()) return true;
  std::vector<RuleEvent> found;
  const auto done = set.CheckPart(session, conversation, t_ms, session.plan().chunk_rows, part, &found);
  trouble = done.status().message();
  for (const RuleEvent& event : found) {
    Json json = ToJson(event);
    json["session"] = id;
    events->Push(event.id, event.began ? "began" : "ended", JsonText(json));
  }
  return !done.ok() || *done;
}

Json SessionRules::Save() const { return {{"set", set.Save()}, {"ring", events->Save()}}; }

Status SessionRules::Restore(const Json& saved, const Conversation& conversation, int32_t room) {
  if (!saved.is_object()) return InvalidArgument("the snapshot's rules are no object");
  Fields fields(saved, "rules.");
  const Json* const rules = fields.Get("set");
  const Json* const ring = fields.Get("ring");
  WEIR_RETURN_IF_ERROR(fields.Done());
  if (rules == nullptr || ring == nullptr) return InvalidArgument("the snapshot's rules lack fields");
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
