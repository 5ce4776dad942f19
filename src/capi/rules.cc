// SPDX-License-Identifier: Apache-2.0
// The C API: rules of a session, and who is told of their events.
#include "rules/rule_set.h"

#include <string>
#include <utility>
#include <vector>

#include "capi/handles.h"
#include "engine/session/aside_room.h"

namespace weir {
namespace {

const Status kNoRules = InvalidArgument("the session was opened without weir_session_options.rule_tokens");

// Whether the caller takes it that the call goes on.
bool Tell(const weir_session& session, const RuleEvent& event) {
  if (session.on_event == nullptr) return true;
  const RuleEvidence& evidence = event.evidence;
  const weir_event out = {sizeof(weir_event),
                          event.id,
                          event.began_id,
                          event.rule.c_str(),
                          event.when.c_str(),
                          event.began ? 1 : 0,
                          event.t_ms,
                          event.since_ms,
                          event.score,
                          event.log_odds,
                          event.peak,
                          evidence.from_token,
                          evidence.to_token,
                          evidence.frames_ms.data(),
                          evidence.frames_ms.size(),
                          evidence.text.data(),
                          evidence.text.size()};
  return session.on_event(&out, session.event_user) == 0;
}

Result<Rule> RuleFor(std::string_view when, const weir_rule_options& given) {
  WEIR_ASSIGN_OR_RETURN(Rule out, ParseRule(when));
  if (given.id != nullptr) {
    out.id = given.id;
    WEIR_RETURN_IF_ERROR(CheckRuleId(out.id));
  }
  out.tuning = {.on = given.on,
                .off = given.off,
                .least = given.least,
                .n_begin = given.n_begin,
                .n_end = given.n_end,
                .n_calibrate = given.n_calibrate,
                .cooldown_ms = given.cooldown_ms};
  WEIR_RETURN_IF_ERROR(CheckTuning(out.tuning));
  return out;
}

}  // namespace

Status CheckRules(weir_session* session) {
  if (!session->rules || session->rules->empty()) return Status();
  WEIR_RETURN_IF_ERROR(EndFrames(session));  // rules are about what was seen until now
  Session& stream = *session->session;
  std::vector<RuleEvent> events;
  const int64_t t_ms = std::max<int64_t>(stream.t_newest_ms(), 0);
  RuleSet::Part part;
  for (;;) {
    const auto done = session->rules->CheckPart(stream, *session->talk, t_ms, stream.plan().chunk_rows, &part, &events,
                                                &session->stop);
    if (!done.ok()) return Status(done.status().code(), "rules were not asked: " + done.status().message());
    if (*done) break;
    TellProgress(session, session->n_progress);
  }
  bool goes_on = true;
  for (const RuleEvent& event : events) goes_on = Tell(*session, event) && goes_on;
  return goes_on ? Status() : Cancelled("the function that is told of events asked to stop");
}

}  // namespace weir

using weir::Guarded;
using weir::kNull;
using weir::Status;

extern "C" {

weir_status weir_session_add_rule(weir_session* session, const char* when, size_t n_bytes,
                                  const weir_rule_options* options) {
  return weir::Reading(session, [&]() -> Status {
    if (when == nullptr && n_bytes > 0) return kNull;
    if (!session->rules) return weir::kNoRules;
    weir_rule_options given = WEIR_RULE_OPTIONS_INIT;
    WEIR_RETURN_IF_ERROR(weir::Read(options, &given));
    WEIR_ASSIGN_OR_RETURN(weir::Rule rule, weir::RuleFor({when, n_bytes}, given));
    if (session->pictures != nullptr) WEIR_RETURN_IF_ERROR(weir::CheckFramesForRules(session->pictures->frames()));
    WEIR_RETURN_IF_ERROR(weir::EnsureChat(session, std::nullopt, false));
    return session->rules->Add(std::move(rule), *session->talk, weir::AsideRoom(session->session->plan())).status();
  });
}

weir_status weir_session_remove_rule(weir_session* session, const char* id) {
  return weir::Changing(session, [&]() -> Status {
    if (id == nullptr) return kNull;
    if (!session->rules) return weir::kNoRules;
    return session->rules->Remove(id) ? Status() : weir::NotFound("there is no rule '{}'", id);
  });
}

weir_status weir_session_rule(const weir_session* session, size_t i, weir_rule* rule) {
  return Guarded([&]() -> Status {
    if (session == nullptr || rule == nullptr) return kNull;
    if (!session->rules) return weir::kNoRules;
    if (i >= session->rules->rules().size()) {
      return weir::NotFound("rule {} of {}", i, session->rules->rules().size());
    }
    const weir::RuleSet::Watched& of = session->rules->rules()[i];
    const weir_rule_state state = of.tracker.holds()        ? WEIR_HOLDS
                                  : of.tracker.calibrated() ? WEIR_WATCHES
                                                            : WEIR_LEARNS;
    // Words that are put together for this answer live as long as it does.
    session->rule_words = of.rule.when();
    return weir::Write<weir_rule>({sizeof(weir_rule), of.rule.id.c_str(), session->rule_words.c_str(), state,
                                   of.asked ? 1 : 0, of.score, of.log_odds},
                                  rule);
  });
}

weir_status weir_session_on_event(weir_session* session, weir_event_callback on_event, void* user) {
  return Guarded([&]() -> Status {
    if (session == nullptr) return kNull;
    session->on_event = on_event;
    session->event_user = user;
    return Status();
  });
}

weir_status weir_session_rule_cost(const weir_session* session, weir_rule_cost* cost) {
  return Guarded([&]() -> Status {
    if (session == nullptr || cost == nullptr) return kNull;
    if (!session->rules) return weir::kNoRules;
    const weir::RuleSet::Cost& of = session->rules->cost();
    return weir::Write<weir_rule_cost>({sizeof(weir_rule_cost), of.n_checks, of.n_tokens, of.seconds}, cost);
  });
}

}  // extern "C"
