// SPDX-License-Identifier: Apache-2.0
// `weir watch --when`: rules over a stream, their events as lines of output, and the command that they start.
#pragma once

#include <CLI/CLI.hpp>
#include <memory>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "chat/conversation.h"
#include "common.h"
#include "event_command.h"
#include "event_files.h"
#include "mqtt_flags.h"
#include "rules/rule_set.h"

namespace weir::app {

// Slots that are kept free for a rule.
inline constexpr int kRuleTokens = 192;

struct RuleFlags {
  std::vector<std::string> when;
  std::string then, cooldown, pictures, then_limit = "30s";
  int check = 0;        // 0: a default of the kind of stream
  bool scores = false;  // a line for every check
  MqttFlags mqtt = {.retained_bytes = 1 << 20, .picture_bytes = EventFiles::MostPngBytes()};  // kMaxRules are less
  std::string mqtt_name = "watch";  // in the place of a session
  RuleTuning tuning;
};
// --when; and all flags.
CLI::Option* AddWhenFlag(CLI::App& app, RuleFlags* flags);
void AddRuleFlags(CLI::App& app, RuleFlags* flags);

// The rules as they were given, before a model is loaded. kInvalidArgument names the flag.
Result<std::vector<Rule>> ParseRules(const RuleFlags& flags);

// Room in the session for these rules: slots, and memory of events and of what waits for --then and --mqtt.
Status AddRuleRoom(const RuleFlags& flags, PotFlags* pot);

// Tokens that are read aside for a check of these rules, after frames or a text. Errors of RuleSet::Add().
Result<int64_t> TokensOfACheck(const std::vector<Rule>& rules, const LoadedModel& model, const ModelFlags& flags,
                               int32_t room);

class RuleWatch {
 public:
  // Session and tokenizer must outlive it, and the session has the room of AddRuleRoom(). `conversation` is that of the
  // session, after its beginning was read. Prints a line about the rules to stderr. kInvalidArgument for a rule that
  // takes more tokens than the session has room for, or cannot be asked.
  static Result<std::unique_ptr<RuleWatch>> Make(const RuleFlags& flags, std::vector<Rule> rules, Session& session,
                                                 const Tokenizer& tokenizer, const Conversation& conversation,
                                                 bool json);

  // A frame was read: an input of this transform, made of a picture of size `source`.
  void See(const float* input, const ImageTransform& transform, PictureSize source) {
    if (files_ != nullptr) files_->See(input, transform, source);
  }
  // Asks the rules about the present moment and prints what happened; `more` is added to the JSON of every event.
  Status Check(const Conversation& conversation, int64_t t_ms, const nlohmann::ordered_json& more = {});
  // The same as at the last check, n times: nothing was read since.
  Status Repeat(int64_t n, int64_t t_ms, const nlohmann::ordered_json& more = {});
  // Waits for commands that still run, and for what is not published yet.
  void End();

  // For reports: checks, tokens read aside, milliseconds, commands.
  nlohmann::ordered_json Figures() const;
  std::string FiguresText() const;

 private:
  RuleWatch(Session& session, const Tokenizer& tokenizer, bool json, bool scores)
      : session_(session), rules_(tokenizer), json_(json), scores_(scores) {}
  void TellScores(int64_t t_ms, const nlohmann::ordered_json& more) const;
  Status Tell(const std::vector<RuleEvent>& events, const nlohmann::ordered_json& more);
  // The path of the event's picture; empty: there is none.
  EventFiles::File WritePicture(int64_t event);

  Session& session_;
  std::vector<Reservation> room_;
  RuleSet rules_;
  const bool json_, scores_;
  int64_t n_events_ = 0;
  std::unique_ptr<EventFiles> files_;  // nullptr: without --pictures
  int64_t n_pictures_failed_ = 0;
  std::string mqtt_name_;
  std::unique_ptr<MqttPublisher> mqtt_;    // nullptr: no broker
  std::unique_ptr<EventCommand> command_;  // nullptr: none
};

}  // namespace weir::app
