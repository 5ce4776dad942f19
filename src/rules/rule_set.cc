// SPDX-License-Identifier: Apache-2.0
#include "rules/rule_set.h"

#include <fmt/core.h>

#include <algorithm>
#include <utility>

#include "base/clock.h"

namespace weir {

Json ToJson(const RuleEvent& event) {
  Json out = {{"type", "event"},
              {"id", event.id},
              {"rule", event.rule},
              {"when", event.when},
              {"state", event.began ? "began" : "ended"},
              {"t_ms", event.t_ms},
              {"since_ms", event.since_ms},
              {"score", event.score},
              {"log_odds", event.log_odds},
              {"peak", event.peak}};
  if (!event.began) out["began_id"] = event.began_id;
  out["evidence"] = ToJson(event.evidence);
  return out;
}

Status CheckFramesForRules(const FrameStore& frames) {
  if (!frames.remembers()) return Status();
  return Unsupported("rules need an encoder that reads frames one by one; this one reads them together");
}

Result<std::string> RuleSet::Add(Rule rule, const Conversation& conversation, int32_t room) {
  if (std::ssize(rules_) >= kMaxRules) {
    return InvalidArgument("{} rules are watched for already, the most that one stream can have", rules_.size());
  }
  const auto taken = [&](const std::string& id) {
    return std::ranges::any_of(rules_, [&](const Watched& other) { return other.rule.id == id; });
  };
  if (taken(rule.id)) return InvalidArgument("there is a rule '{}' already", rule.id);
  WEIR_ASSIGN_OR_RETURN(RuleAnswers answers, AnswersOf(rule, *tokenizer_, conversation));
  if (const int64_t most = MostTokens(rule, answers, conversation); most > room) {
    return InvalidArgument("a rule that takes {} tokens to ask, where {} are kept free; say it in fewer words", most,
                           room);
  }
  while (rule.id.empty() || taken(rule.id)) rule.id = fmt::format("r{}", ++n_named_);
  const RuleTracker tracker(rule.tuning);
  rules_.push_back({std::move(rule), std::move(answers), tracker});
  groups_at_.clear();
  return rules_.back().rule.id;
}

bool RuleSet::Remove(const std::string& id) {
  groups_at_.clear();
  return std::erase_if(rules_, [&](const Watched& watched) { return watched.rule.id == id; }) > 0;
}

std::vector<RuleSet::Group> RuleSet::GroupsOf(const Conversation& conversation) const {
  std::vector<Group> out;
  for (size_t i = 0; i < rules_.size(); ++i) {
    RuleQuestion question = QuestionOf(rules_[i].rule, rules_[i].answers, conversation);
    auto group = std::ranges::find(out, question.head, &Group::head);
    if (group == out.end()) group = out.insert(out.end(), Group{std::move(question.head), {}, {}});
    group->rules.push_back(i);
    group->tails.push_back(std::move(question.tail));
  }
  return out;
}

int64_t RuleSet::TokensOfACheck(const Conversation& conversation) const {
  int64_t n = 0;
  for (const Group& group : GroupsOf(conversation)) {
    n += std::ssize(group.head);
    for (const std::vector<int32_t>& tail : group.tails) n += std::ssize(tail);
  }
  return n;
}

Status RuleSet::Check(Session& session, const Conversation& conversation, int64_t t_ms, std::vector<RuleEvent>* events,
                      const std::atomic<bool>* stop) {
  Part whole;
  return CheckPart(session, conversation, t_ms, INT64_MAX, &whole, events, stop).status();
}

Result<bool> RuleSet::CheckPart(Session& session, const Conversation& conversation, int64_t t_ms, int64_t most_tokens,
                                Part* part, std::vector<RuleEvent>* events, const std::atomic<bool>* stop) {
  if (rules_.empty()) return true;
  const Clock::time_point start = Clock::now();
  if (part->odds.empty()) {
    Json place = conversation.Save();
    place.erase("system");  // the same for as long as the session is there, and of any length
    if (std::string here = JsonText(place); here != groups_at_) {
      groups_ = GroupsOf(conversation);
      groups_at_ = std::move(here);
    }
    part->odds.resize(rules_.size());
  }
  for (int64_t n_tokens = 0; part->group < groups_.size();) {
    const Group& group = groups_[part->group];
    const size_t first = part->tail;
    int64_t n_more = std::ssize(group.head);
    while (part->tail < group.tails.size()) {
      const int64_t n_tail = std::ssize(group.tails[part->tail]);
      const bool is_first = n_tokens == 0 && part->tail == first;
      if (!is_first && n_tokens + n_more > most_tokens - n_tail) break;
      n_more += n_tail;
      ++part->tail;
    }
    if (part->tail == first) break;
    const auto each = [&](size_t tail, std::span<const float> logits) {
      const size_t i = group.rules[first + tail];
      part->odds[i] = LogOdds(logits, rules_[i].answers);
    };
    WEIR_RETURN_IF_ERROR(
        session.AskAside(group.head, std::span(group.tails).subspan(first, part->tail - first), each, stop));
    n_tokens += n_more;
    part->n_tokens += n_more;
    if (part->tail < group.tails.size()) break;
    ++part->group;
    part->tail = 0;
  }
  part->seconds += SecondsSince(start);
  if (part->group < groups_.size()) return false;
  for (size_t i = 0; i < rules_.size(); ++i) Take(session, i, part->odds[i], t_ms, events);
  seen_before_ = session.n_seen();
  ++cost_.n_checks;
  cost_.n_asked += std::ssize(rules_);
  cost_.n_tokens += part->n_tokens;
  cost_.seconds += part->seconds;
  return true;
}

void RuleSet::Repeat(const Session& session, int64_t t_ms, std::vector<RuleEvent>* events) {
  for (size_t i = 0; i < rules_.size(); ++i) {
    if (rules_[i].asked) Take(session, i, rules_[i].log_odds, t_ms, events);
  }
}

void RuleSet::Take(const Session& session, size_t rule, double log_odds, int64_t t_ms, std::vector<RuleEvent>* events) {
  Watched& watched = rules_[rule];
  RuleTracker& tracker = watched.tracker;
  if (!tracker.holds() && !tracker.rising()) watched.from_token = seen_before_;
  const RuleTracker::Step step = tracker.Check(log_odds, t_ms);
  watched.asked = true;
  watched.log_odds = log_odds;
  watched.score = step.score;
  if (step.change == RuleTracker::Change::kNone) return;
  RuleEvent event;
  event.id = ++n_events_;
  event.began = step.change == RuleTracker::Change::kBegan;
  if (event.began) watched.began_id = event.id;
  event.began_id = watched.began_id;
  event.rule = watched.rule.id;
  event.when = watched.rule.when();
  event.t_ms = t_ms;
  event.since_ms = tracker.since_ms();
  event.score = step.score;
  event.log_odds = log_odds;
  event.peak = tracker.peak();
  event.evidence = FindEvidence(session, *tokenizer_, watched.from_token);
  events->push_back(std::move(event));
}

Json RuleSet::Save() const {
  Json rules = Json::array();
  for (const Watched& watched : rules_) {
    rules.push_back({{"rule", ToJson(watched.rule)},
                     {"state", watched.tracker.Save()},
                     {"from_token", watched.from_token},
                     {"began_id", watched.began_id}});
  }
  return {{"events", n_events_}, {"named", n_named_}, {"seen", seen_before_}, {"rules", std::move(rules)}};
}

Status RuleSet::Restore(const Json& saved, const Conversation& conversation, int32_t room) {
  constexpr int64_t kMost = int64_t{1} << 60;
  RuleSet out(*tokenizer_);
  if (!saved.is_object()) return InvalidArgument("the saved rules are no object");
  Fields fields(saved, "rules.");
  fields.Get("events", &out.n_events_, 0, kMost);
  fields.Get("named", &out.n_named_, 0, kMost);
  fields.Get("seen", &out.seen_before_, 0, kMost);
  const Json* const rules = fields.Get("rules");
  WEIR_RETURN_IF_ERROR(fields.Done());
  if (rules == nullptr || !rules->is_array() || rules->size() > kMaxRules) {
    return InvalidArgument("'rules.rules' is not a list of at most {} rules", kMaxRules);
  }
  for (const Json& item : *rules) {
    if (!item.is_object()) return InvalidArgument("'rules.rules' has something other than rules");
    Fields of_rule(item, "rules.rules.");
    int64_t from_token = 0, began_id = 0;
    const Json* const text = of_rule.Get("rule");
    const Json* const state = of_rule.Get("state");
    of_rule.Get("from_token", &from_token, 0, kMost);
    of_rule.Get("began_id", &began_id, 0, kMost);
    WEIR_RETURN_IF_ERROR(of_rule.Done());
    if (text == nullptr || state == nullptr || !state->is_object()) {
      return InvalidArgument("'rules.rules' has a rule without its text or state");
    }
    WEIR_ASSIGN_OR_RETURN(Rule rule, RuleFromJson(*text));
    WEIR_RETURN_IF_ERROR(CheckRuleId(rule.id));
    WEIR_RETURN_IF_ERROR(out.Add(std::move(rule), conversation, room).status());
    Watched& watched = out.rules_.back();
    watched.from_token = from_token;
    watched.began_id = began_id;
    WEIR_RETURN_IF_ERROR(watched.tracker.Restore(*state));
  }
  rules_ = std::move(out.rules_);
  n_events_ = out.n_events_;
  n_named_ = out.n_named_;
  seen_before_ = out.seen_before_;
  groups_at_.clear();
  return Status();
}

}  // namespace weir
