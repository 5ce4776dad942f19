// SPDX-License-Identifier: Apache-2.0
#include "rule_watch.h"

#include <cstdio>
#include <optional>
#include <span>
#include <utility>

#include "duration.h"
#include "engine/session/aside_room.h"
#include "print.h"
#include "rules/rule_room.h"
#include "text/chat_template.h"

namespace weir::app {

CLI::Option* AddWhenFlag(CLI::App& app, RuleFlags* flags) {
  return app
      .add_option("--when", flags->when,
                  "tell when this is true, such as \"a parcel lies at the door\", or when a question has an answer: "
                  "\"What colour is the light? => red\"; may be repeated")
      ->type_name("TEXT")
      ->expected(1)
      ->allow_extra_args(false)
      ->multi_option_policy(CLI::MultiOptionPolicy::TakeAll);
}

void AddRuleFlags(CLI::App& app, RuleFlags* flags) {
  CLI::Option* const when = AddWhenFlag(app, flags);
  app.add_option(
         "--then", flags->then,
         "shell command to run for every event: JSON on its standard input, WEIR_EVENT_ID, _RULE, _STATE, _T_MS, "
         "_SCORE, _WHEN and _PICTURE in its environment")
      ->needs(when)
      ->check(NotEmpty())
      ->type_name("COMMAND");
  app.add_option("--then-limit", flags->then_limit, "a command that takes longer is ended")
      ->needs(when)
      ->type_name("TIME")
      ->capture_default_str();
  app.add_option("--pictures", flags->pictures,
                 "write what the video showed at an event to a PNG file in this folder; the newest 1,000 of a run stay")
      ->needs(when)
      ->check(NotEmpty())
      ->type_name("FOLDER");
  app.add_option("--check", flags->check,
                 "check the rules at every N-th frame (1), or after every N tokens of text (64)")
      ->needs(when)
      ->check(Between(1, 1 << 20))
      ->type_name("N");
  app.add_option("--hold", flags->tuning.n_begin, "checks in a row that an event takes to begin, and to end")
      ->needs(when)
      ->check(Between(1, 1 << 20))
      ->capture_default_str();
  app.add_option("--cooldown", flags->cooldown, "after an event, a rule rests for this long")
      ->needs(when)
      ->type_name("TIME");
  app.add_option(
         "--score", flags->tuning.on,
         "score at which an event begins: how far the log-odds are above the rule's usual ones; it ends below half "
         "of that")
      ->needs(when)
      ->check(Between(0.01, 1000.0))
      ->capture_default_str();
  app.add_flag("--scores", flags->scores, "print every rule's score, and its log-odds, at every check")->needs(when);
  app.add_option("--odds", flags->tuning.least, "log-odds below which no event begins")
      ->needs(when)
      ->check(Between(-30.0, 30.0))
      ->capture_default_str();
  AddMqttFlags(app, &flags->mqtt)->needs(when);
  app.add_option("--mqtt-name", flags->mqtt_name, "what stands between TOPIC and a rule's name: one for every program")
      ->needs("--mqtt")
      ->capture_default_str()
      ->type_name("NAME");
}

Result<std::vector<Rule>> ParseRules(const RuleFlags& flags) {
  if (flags.when.size() > kMaxRules) {
    return InvalidArgument("--when was given {} times; {} rules are possible", flags.when.size(), kMaxRules);
  }
  RuleTuning tuning = flags.tuning;
  tuning.n_end = tuning.n_begin;
  tuning.off = tuning.on / 2;
  if (!flags.cooldown.empty()) {
    WEIR_ASSIGN_OR_RETURN(tuning.cooldown_ms, ParseDuration("--cooldown", flags.cooldown));
  }
  WEIR_RETURN_IF_ERROR(CheckTuning(tuning));
  WEIR_RETURN_IF_ERROR(ParseDuration("--then-limit", flags.then_limit).status());
  if (!CheckRuleId(flags.mqtt_name).ok()) {
    return InvalidArgument("--mqtt-name {}: 1 to 64 letters, digits, - and _ are possible", flags.mqtt_name);
  }
  std::vector<Rule> out;
  for (const std::string& when : flags.when) {
    auto rule = ParseRule(when);
    if (!rule.ok()) return InvalidArgument("--when: {}", rule.status().message());
    rule->tuning = tuning;
    out.push_back(*std::move(rule));
  }
  if (flags.mqtt.pictures && flags.pictures.empty()) {
    return InvalidArgument("--mqtt-pictures needs --pictures FOLDER, where the same pictures are written");
  }
  return out;
}

namespace {

Result<std::vector<PlanItem>> RoomBeside(const RuleFlags& flags) {
  std::vector<PlanItem> out = {RuleRoom(std::ssize(flags.when), kRuleTokens)};
  if (!flags.then.empty()) out.push_back({MemTag::kOther, "rules: events that wait for --then", EventCommand::kBytes});
  if (!flags.pictures.empty()) out.push_back({MemTag::kVision, "rules: the picture of an event", EventFiles::Bytes()});
  if (flags.mqtt.address.empty()) return out;
  WEIR_ASSIGN_OR_RETURN(const MqttOptions mqtt, ToMqtt(flags.mqtt));
  out.push_back({MemTag::kOther, "rules: what waits for the MQTT broker", MqttPublisher::MemoryBytes(mqtt)});
  return out;
}

}  // namespace

Status AddRuleRoom(const RuleFlags& flags, PotFlags* pot) {
  pot->aside = kRuleTokens;
  WEIR_ASSIGN_OR_RETURN(pot->beside, RoomBeside(flags));
  return Status();
}

Result<int64_t> TokensOfACheck(const std::vector<Rule>& rules, const LoadedModel& model, const ModelFlags& flags,
                               int32_t room) {
  WEIR_ASSIGN_OR_RETURN(const ChatTemplate chat, ChatTemplate::ForFile(model.file(), model.tokenizer(),
                                                                       flags.chat_template, flags.chat_arguments));
  Conversation talk(model.tokenizer(), &chat);
  (void)talk.Begin(std::nullopt);
  talk.TurnOpened();
  RuleSet set(model.tokenizer());
  for (const Rule& rule : rules) {
    const auto id = set.Add(rule, talk, room);
    if (!id.ok())
      return Status(id.status().code(), fmt::format("--when \"{}\": {}", rule.when(), id.status().message()));
  }
  return set.TokensOfACheck(talk);
}

Result<std::unique_ptr<RuleWatch>> RuleWatch::Make(const RuleFlags& flags, std::vector<Rule> rules, Session& session,
                                                   const Tokenizer& tokenizer, const Conversation& conversation,
                                                   bool json) {
  std::unique_ptr<RuleWatch> out(new RuleWatch(session, tokenizer, json, flags.scores));
  WEIR_ASSIGN_OR_RETURN(const std::vector<PlanItem> beside, RoomBeside(flags));
  // Those of pictures and of the publisher are taken by what needs them.
  const size_t n_taken = (flags.pictures.empty() ? 0 : 1) + (flags.mqtt.address.empty() ? 0 : 1);
  for (const PlanItem& item : std::span(beside).first(beside.size() - n_taken)) {
    WEIR_ASSIGN_OR_RETURN(Reservation reserved, session.ledger().Reserve(item.tag, item.bytes));
    out->room_.push_back(std::move(reserved));
  }
  for (Rule& rule : rules) {
    const std::string when = rule.when();
    const auto id = out->rules_.Add(std::move(rule), conversation, AsideRoom(session.plan()));
    if (!id.ok()) return Status(id.status().code(), fmt::format("--when \"{}\": {}", when, id.status().message()));
  }
  if (!flags.then.empty()) {
    WEIR_ASSIGN_OR_RETURN(const int64_t limit_ms, ParseDuration("--then-limit", flags.then_limit));
    out->command_ = std::make_unique<EventCommand>(flags.then, limit_ms);
  }
  if (!flags.pictures.empty()) {
    WEIR_ASSIGN_OR_RETURN(out->files_, EventFiles::Make(flags.pictures, session.ledger()));
  }
  if (!flags.mqtt.address.empty()) {
    WEIR_ASSIGN_OR_RETURN(const MqttOptions mqtt, ToMqtt(flags.mqtt));
    WEIR_ASSIGN_OR_RETURN(out->mqtt_, MqttPublisher::Make(mqtt, session.ledger()));
    out->mqtt_name_ = flags.mqtt_name;
    for (const RuleSet::Watched& watched : out->rules_.rules()) {
      out->mqtt_->Watch(out->mqtt_name_, watched.rule.id, watched.rule.when(), false);
    }
  }
  Print(stderr, "rules    {}, {} tokens read aside at every check\n", out->rules_.rules().size(),
        out->rules_.TokensOfACheck(conversation));
  return out;
}

Status RuleWatch::Check(const Conversation& conversation, int64_t t_ms, const nlohmann::ordered_json& more) {
  std::vector<RuleEvent> events;
  WEIR_RETURN_IF_ERROR(rules_.Check(session_, conversation, t_ms, &events, &StopFlag()));
  if (scores_) TellScores(t_ms, more);
  return Tell(events, more);
}

void RuleWatch::TellScores(int64_t t_ms, const nlohmann::ordered_json& more) const {
  Json line = {{"type", "scores"}, {"t_ms", t_ms}};
  if (more.is_object()) line.update(more);
  std::string text;
  for (const RuleSet::Watched& watched : rules_.rules()) {
    line["rules"].push_back({{"rule", watched.rule.id}, {"log_odds", watched.log_odds}, {"score", watched.score}});
    text += fmt::format(" {} {:.1f} ({:.1f})", watched.rule.id, watched.score, watched.log_odds);
  }
  if (json_) {
    Print(stdout, "{}\n", JsonText(line));
  } else {
    Print(stdout, "[{}]{}\n", TimeText(t_ms), text);
  }
}

Status RuleWatch::Repeat(int64_t n, int64_t t_ms, const nlohmann::ordered_json& more) {
  std::vector<RuleEvent> events;
  for (; n > 0; --n) rules_.Repeat(session_, t_ms, &events);
  return Tell(events, more);
}

Status RuleWatch::Tell(const std::vector<RuleEvent>& events, const nlohmann::ordered_json& more) {
  for (const RuleEvent& event : events) {
    ++n_events_;
    Json line = ToJson(event);
    if (more.is_object()) line.update(more);
    EventFiles::File file = WritePicture(event.id);
    const std::string picture = std::move(file.path);
    if (!picture.empty()) line["picture"] = picture;
    const std::string text = JsonText(line) + "\n";
    const char* const state = event.began ? "began" : "ended";
    if (json_) {
      Print(stdout, "{}", text);
    } else {
      Print(stdout, "[{}] {} {}: {} (score {:.1f}, since {})\n", TimeText(event.t_ms), event.rule, state,
            Printable(event.when), event.score, TimeText(event.since_ms));
    }
    if (mqtt_ != nullptr) {
      mqtt_->Post(mqtt_name_, event.rule, event.began, JsonText(line));
      if (!file.png.empty()) mqtt_->Show(mqtt_name_, event.rule, std::move(file.png));
    }
    if (command_ == nullptr) continue;
    command_->Post({.name = fmt::format("event {}", event.id),
                    .environment = {{"WEIR_EVENT_ID", fmt::format("{}", event.id)},
                                    {"WEIR_EVENT_RULE", event.rule},
                                    {"WEIR_EVENT_STATE", state},
                                    {"WEIR_EVENT_T_MS", fmt::format("{}", event.t_ms)},
                                    {"WEIR_EVENT_SCORE", fmt::format("{:.3f}", event.score)},
                                    {"WEIR_EVENT_WHEN", event.when},
                                    {"WEIR_EVENT_PICTURE", picture}},
                    .input = text});
  }
  return events.empty() ? Status() : FlushOutput();
}

EventFiles::File RuleWatch::WritePicture(int64_t event) {
  if (files_ == nullptr) return {};
  auto file = files_->Write(event);
  if (file.ok()) {
    n_pictures_failed_ = 0;
    return *std::move(file);
  }
  // An event is told all the same; one line for the first of a row is enough.
  if (n_pictures_failed_++ == 0) {
    Print(stderr, "weir: warning: no picture of event {}: {}\n", event, Printable(file.status().message()));
  }
  return {};
}

void RuleWatch::End() {
  if (command_ != nullptr) command_->End();
  if (mqtt_ == nullptr) return;
  const std::string trouble = mqtt_->trouble();
  mqtt_.reset();
  if (!trouble.empty()) Print(stderr, "weir: warning: MQTT: {}\n", Printable(trouble));
}

nlohmann::ordered_json RuleWatch::Figures() const {
  const RuleSet::Cost& cost = rules_.cost();
  nlohmann::ordered_json out = {{"rules", rules_.rules().size()},
                                {"events", n_events_},
                                {"checks", cost.n_checks},
                                {"tokens", cost.n_tokens},
                                {"ms_per_check", cost.n_checks > 0 ? 1e3 * cost.seconds / cost.n_checks : 0},
                                {"ms_per_rule", cost.n_asked > 0 ? 1e3 * cost.seconds / cost.n_asked : 0}};
  if (command_ != nullptr) {
    const EventCommand::Counters commands = command_->counters();
    out["commands"] = {{"run", commands.run}, {"failed", commands.failed}, {"dropped", commands.dropped}};
  }
  if (mqtt_ != nullptr) {
    const MqttPublisher::Counters messages = mqtt_->counters();
    out["mqtt"] = {{"published", messages.published}, {"waiting", messages.waiting}, {"dropped", messages.dropped}};
  }
  return out;
}

std::string RuleWatch::FiguresText() const {
  const RuleSet::Cost& cost = rules_.cost();
  std::string out = fmt::format("rules    {} events; {} checks, {:.1f} ms each, {:.1f} ms a rule", CountText(n_events_),
                                CountText(cost.n_checks), cost.n_checks > 0 ? 1e3 * cost.seconds / cost.n_checks : 0,
                                cost.n_asked > 0 ? 1e3 * cost.seconds / cost.n_asked : 0);
  if (command_ != nullptr) {
    const EventCommand::Counters commands = command_->counters();
    out += fmt::format("; commands {} run, {} failed, {} dropped", commands.run, commands.failed, commands.dropped);
  }
  return out;
}

}  // namespace weir::app
