// SPDX-License-Identifier: Apache-2.0
// The rules of one stream, and the events that they bring.
//
//   RuleSet rules(tokenizer);
//   rules.Add(*ParseRule("a parcel lies at the door"), conversation, session.plan().aside_slots);
//   after every frame:  rules.Check(session, conversation, t_ms, &events);
//
// A check asks every rule aside (Session::AskAside()): the words that rules share are read once, each rule's own in one
// pass after another, because passes over a shared pot cannot be one without changing the positions that a question
// sees, and with them its score. A rule's score therefore does not depend on the other rules. The stream has no trace
// of any of it.
//
// Not thread-safe; one object per session.
#pragma once

#include <atomic>
#include <cstdint>
#include <string>
#include <vector>

#include "base/status.h"
#include "chat/conversation.h"
#include "engine/frame_store.h"
#include "engine/session.h"
#include "io/json.h"
#include "rules/evidence.h"
#include "rules/rule.h"
#include "rules/rule_words.h"
#include "text/tokenizer.h"

namespace weir {

// A rule began to hold, or ceased.
struct RuleEvent {
  int64_t id = 0;        // 1, 2, ... within the stream; never given twice
  int64_t began_id = 0;  // of the event that this one ends; its own id if it begins
  std::string rule, when;
  bool began = true;
  int64_t t_ms = 0, since_ms = 0;  // of this check; of the first check of the event
  double score = 0, log_odds = 0, peak = 0;
  RuleEvidence evidence;
};
Json ToJson(const RuleEvent& event);

// Rules are about the pictures that a stream holds at a moment. kUnsupported for a store that keeps frames until a
// question. One that waits for the next is read before a check: FrameStore::Interrupt().
Status CheckFramesForRules(const FrameStore& frames);

class RuleSet {
 public:
  // `tokenizer` must outlive the object.
  explicit RuleSet(const Tokenizer& tokenizer) : tokenizer_(&tokenizer) {}

  // Returns its id: its own or, where that is empty, "r1", "r2" ... kInvalidArgument for an id that is taken, for more
  // than kMaxRules, and for a question that may need more tokens than `room`; errors of AnswersOf().
  Result<std::string> Add(Rule rule, const Conversation& conversation, int32_t room);
  bool Remove(const std::string& id);

  struct Watched {
    Rule rule;
    RuleAnswers answers;
    RuleTracker tracker;
    int64_t from_token = 0;  // where the evidence of the next event begins
    int64_t began_id = 0;
    bool asked = false;              // at least once
    double log_odds = 0, score = 0;  // at the last check
  };
  const std::vector<Watched>& rules() const { return rules_; }
  bool empty() const { return rules_.empty(); }

  // Asks all rules about the present moment of the stream, t_ms, and appends what happened to *events, in the order of
  // the rules. `conversation` is the one that the session reads. Nothing of the rules changes when it fails: errors of
  // Session::AskAside().
  Status Check(Session& session, const Conversation& conversation, int64_t t_ms, std::vector<RuleEvent>* events,
               const std::atomic<bool>* stop = nullptr);

  // The same in parts, for a caller with other work between them: asks rules until one more would make it more than
  // `most_tokens`, at least one, and returns false; at last true, and what happened is appended. Nothing may be read
  // between the parts, and no rule added or removed. Rules of the same words share these within a part only. After a
  // failure the check is over.
  struct Part {
    std::vector<double> odds;  // empty: nothing was asked yet
    size_t group = 0, tail = 0;
    int64_t n_tokens = 0;
    double seconds = 0;
  };
  Result<bool> CheckPart(Session& session, const Conversation& conversation, int64_t t_ms, int64_t most_tokens,
                         Part* part, std::vector<RuleEvent>* events, const std::atomic<bool>* stop = nullptr);

  // The moment t_ms is as it was at the last check: the rules are not asked again, and have the same log-odds. Nothing
  // happens before the first check of all rules.
  void Repeat(const Session& session, int64_t t_ms, std::vector<RuleEvent>* events);

  // What checks cost so far.
  struct Cost {
    int64_t n_checks = 0;  // of the set
    int64_t n_asked = 0;   // rules asked, of all checks
    int64_t n_tokens = 0;  // read for them
    double seconds = 0;
  };
  const Cost& cost() const { return cost_; }
  // Tokens that one check of all rules reads at this place in the conversation.
  int64_t TokensOfACheck(const Conversation& conversation) const;

  // All rules with their states, and the number of events, as JSON; no more than a few KiB for each rule. Restore()
  // replaces the set: errors of RuleFromJson() and RuleTracker::Restore(), and those of Add().
  Json Save() const;
  Status Restore(const Json& saved, const Conversation& conversation, int32_t room);

 private:
  // Rules that begin with the same tokens.
  struct Group {
    std::vector<int32_t> head;
    std::vector<size_t> rules;
    std::vector<std::vector<int32_t>> tails;
  };
  std::vector<Group> GroupsOf(const Conversation& conversation) const;
  void Take(const Session& session, size_t rule, double log_odds, int64_t t_ms, std::vector<RuleEvent>* events);

  const Tokenizer* tokenizer_;
  std::vector<Watched> rules_;
  int64_t n_events_ = 0, n_named_ = 0;
  int64_t seen_before_ = 0;  // tokens of the stream at the last check
  Cost cost_;
  // The questions at a place in the conversation are the same until the conversation changes.
  std::string groups_at_;
  std::vector<Group> groups_;
};

}  // namespace weir
