// SPDX-License-Identifier: Apache-2.0
// Rules over a stream of a tiny model: they are asked as its conversation goes, and leave no trace in it.
#include "rules/rule_set.h"

#include <fmt/core.h>
#include <gtest/gtest.h>

#include <cmath>
#include <limits>

#include "rules/rule_room.h"
#include "support/heap.h"
#include "support/loaded.h"

namespace weir {
namespace {

constexpr int32_t kRoom = 160;

class RuleSetTest : public testing::TinyLlamaTest {
 protected:
  void SetUp() override {
    session_ = Make();
    conversation_.emplace(tokenizer(), &chat_);
    Read(conversation_->Begin("watch the sea"));
    Read(conversation_->TurnHead());
    conversation_->TurnOpened();
    conversation_->TextRead();
  }
  std::unique_ptr<Session> Make() {
    SessionOptions options;
    options.policy = std::move(ParsePolicySpec("streaming_llm")).value();
    options.pot_slots = 64;
    options.aside_slots = kRoom;
    return std::move(Session::Make(model_->model(), model_->backend(), options)).value();
  }
  void Read(const std::vector<int32_t>& tokens) { ASSERT_TRUE(session_->Append(tokens).ok()); }
  void Say(const std::string& text) { Read(tokenizer().Encode(text)); }
  // The tiny vocabulary has no words for yes and no.
  static Rule Asks(const std::string& when) { return std::move(ParseRule(when)).value(); }
  Status Add(Rule rule, RuleSet* rules) { return rules->Add(std::move(rule), *conversation_, kRoom).status(); }
  std::vector<uint8_t> Bytes() const {
    std::vector<uint8_t> out;
    EXPECT_TRUE(session_->Save(&out).ok());
    return out;
  }

  const ChatTemplate chat_ = std::move(ChatTemplate::FromName("chatml", "<s>", "</s>")).value();
  std::unique_ptr<Session> session_;
  std::optional<Conversation> conversation_;
  RuleSet rules_{tokenizer()};
};

TEST_F(RuleSetTest, ScoresAreThoseOfTheQuestionReadInItsPlace) {
  ASSERT_TRUE(Add(Asks("Who came? => the man"), &rules_).ok());
  ASSERT_TRUE(Add(Asks("What is near? => sea"), &rules_).ok());
  Say("the man and the sea and the man");
  const std::vector<uint8_t> before = Bytes();
  std::vector<RuleEvent> events;
  ASSERT_TRUE(rules_.Check(*session_, *conversation_, 1000, &events).ok());
  EXPECT_EQ(Bytes(), before);
  EXPECT_EQ(rules_.cost().n_asked, 2);
  EXPECT_EQ(rules_.cost().n_tokens, rules_.TokensOfACheck(*conversation_));
  for (const RuleSet::Watched& watched : rules_.rules()) {
    auto other = Make();
    ASSERT_TRUE(other->CopyFrom(*session_).ok());
    std::vector<int32_t> asked = conversation_->Ask(watched.rule.text).tokens;
    asked.insert(asked.end(), watched.answers.before.begin(), watched.answers.before.end());
    // Into the slots for questions, so that nothing is forgotten for it.
    ASSERT_LT(std::ssize(asked), kRoom);
    double expected = 0;
    const std::vector<std::vector<int32_t>> tails = {asked};
    ASSERT_TRUE(other
                    ->AskAside({}, tails,
                               [&](size_t, std::span<const float> logits) {
                                 double all = 0;
                                 for (const float logit : logits) all += std::exp(static_cast<double>(logit));
                                 const double p =
                                     std::exp(logits[static_cast<size_t>(watched.answers.for_it[0])]) / all;
                                 expected = std::log(p / (1 - p));
                               })
                    .ok());
    EXPECT_NEAR(watched.log_odds, expected, 1e-3) << watched.rule.when();
    // The first token of the answer as the conversation would tell it.
    Conversation told = *conversation_;
    told.Asked();
    EXPECT_EQ(told.Tell(watched.rule.answer)[watched.answers.before.size()], watched.answers.for_it[0]);
  }
}

TEST_F(RuleSetTest, ACheckInPartsIsTheSameCheck) {
  RuleSet whole(tokenizer());
  int64_t longest = 0;
  for (const char* when : {"Who came? => the man", "What is near the man, and what is not? => sea", "Where? => sea",
                           "Who came? => sea", "What? => the sea", "Is it near? => the man"}) {
    Rule rule = Asks(when);
    rule.tuning = {.on = 0.001, .off = 0, .least = -30, .n_begin = 1, .n_end = 1, .n_calibrate = 2};
    RuleSet alone(tokenizer());
    for (RuleSet* set : {&rules_, &whole, &alone}) ASSERT_TRUE(Add(rule, set).ok());
    longest = std::max(longest, alone.TokensOfACheck(*conversation_));
  }
  std::vector<RuleEvent> events, others;
  for (int i = 0; i < 12; ++i) {
    SCOPED_TRACE(i);
    Say(i % 3 == 0 ? " the sea" : " the man came");
    ASSERT_TRUE(whole.Check(*session_, *conversation_, i, &others).ok());
    // From one rule at a time to all at once.
    const int64_t most = i < 2 ? i : longest * (i - 1);
    RuleSet::Part part;
    size_t n_parts = 0;
    const size_t n_events = events.size();
    for (bool done = false; !done; ++n_parts) {
      EXPECT_EQ(events.size(), n_events) << "only at the end";
      const int64_t n_before = part.n_tokens;
      const auto more = rules_.CheckPart(*session_, *conversation_, i, most, &part, &events);
      ASSERT_TRUE(more.ok()) << more.status().message();
      ASSERT_GT(part.n_tokens, n_before);
      EXPECT_LE(part.n_tokens - n_before, std::max(most, longest));
      done = *more;
    }
    EXPECT_TRUE(n_parts == 6 || i >= 2) << n_parts;
    EXPECT_TRUE(n_parts == 1 || i < 11) << n_parts;
    for (size_t rule = 0; rule < 6; ++rule) EXPECT_EQ(rules_.rules()[rule].log_odds, whole.rules()[rule].log_odds);
  }
  EXPECT_EQ(rules_.cost().n_checks, 12);
  EXPECT_EQ(rules_.cost().n_asked, whole.cost().n_asked);
  ASSERT_FALSE(others.empty());
  ASSERT_EQ(events.size(), others.size());
  for (size_t i = 0; i < events.size(); ++i) EXPECT_EQ(JsonText(ToJson(events[i])), JsonText(ToJson(others[i])));
}

// As many rules as are possible, as long as their room allows, with events of all of them at every check.
TEST_F(RuleSetTest, MemoryStaysWithinItsRoom) {
  std::string words;
  while (std::ssize(tokenizer().Encode(words)) < kRoom / 2) words += " sea";
  const int64_t before = testing::HeapInUse();
  {
    RuleSet rules(tokenizer());
    for (int i = 0; i < kMaxRules; ++i) {
      Rule rule = Asks(words + std::to_string(i) + "? => the man");
      rule.id = std::string(60, 'r') + std::to_string(100 + i);
      rule.webhook = "http://" + std::string(kMaxWebhookBytes - 10, 'w');
      rule.tuning = {.on = 0.001, .off = 0, .least = -30, .n_begin = 1, .n_end = 1, .n_calibrate = 2};
      ASSERT_TRUE(Add(std::move(rule), &rules).ok());
    }
    int64_t n_events = 0;
    for (int i = 0; i < 100; ++i) {
      Say(i % 3 == 0 ? " the sea" : " the man came");
      std::vector<RuleEvent> events;
      ASSERT_TRUE(rules.Check(*session_, *conversation_, i, &events).ok());
      n_events += std::ssize(events);
      EXPECT_LE(testing::HeapInUse() - before, RuleRoom(kMaxRules, kRoom, true).bytes) << i;
      for (const RuleEvent& event : events) EXPECT_LE(std::ssize(JsonText(ToJson(event))), kMaxEventBytes);
    }
    EXPECT_GT(n_events, 100);
  }
}

TEST_F(RuleSetTest, EventsHaveIdsTimesAndWhatIsHeld) {
  Rule rule = Asks("Who came? => the man");
  rule.tuning = {.on = 1e-9, .off = -1000, .least = -30, .n_begin = 1, .n_end = 1, .n_calibrate = 1};
  ASSERT_TRUE(Add(rule, &rules_).ok());
  std::vector<RuleEvent> events;
  for (int i = 0; i < 12 && events.empty(); ++i) {
    Say(i % 2 == 0 ? " the sea" : " the man came");
    ASSERT_TRUE(rules_.Check(*session_, *conversation_, 1000 * i, &events).ok());
  }
  ASSERT_EQ(events.size(), 1u);
  const RuleEvent& event = events[0];
  EXPECT_EQ(event.id, 1);
  EXPECT_TRUE(event.began);
  EXPECT_EQ(event.rule, "r1");
  EXPECT_EQ(event.t_ms, event.since_ms);
  EXPECT_EQ(event.evidence.to_token, session_->n_seen());
  EXPECT_LT(event.evidence.from_token, event.evidence.to_token);
  EXPECT_NE(event.evidence.text.find("the"), std::string::npos) << event.evidence.text;
  const Json json = ToJson(event);
  EXPECT_EQ(json["state"], "began");
  EXPECT_EQ(json["when"], "Who came? => the man");
  // It goes on, so nothing comes again.
  for (int i = 0; i < 4; ++i) {
    Say(" the sea");
    ASSERT_TRUE(rules_.Check(*session_, *conversation_, 20000 + i, &events).ok());
  }
  EXPECT_EQ(events.size(), 1u);
}

TEST_F(RuleSetTest, AMomentLikeTheLastOneCountsWithoutBeingAsked) {
  Rule rule = Asks("Who came? => the man");
  rule.tuning = {.on = 1e-9, .off = -1000, .least = -30, .n_begin = 2, .n_end = 1, .n_calibrate = 1};
  ASSERT_TRUE(Add(rule, &rules_).ok());
  std::vector<RuleEvent> events;
  rules_.Repeat(*session_, 0, &events);
  EXPECT_FALSE(rules_.rules()[0].tracker.calibrated()) << "nothing was asked yet";
  for (int i = 0; i < 12 && !rules_.rules()[0].tracker.rising(); ++i) {
    Say(i % 2 == 0 ? " the sea" : " the man came");
    ASSERT_TRUE(rules_.Check(*session_, *conversation_, 1000 * i, &events).ok());
  }
  ASSERT_TRUE(rules_.rules()[0].tracker.rising());
  const int64_t n_asked = rules_.cost().n_asked;
  rules_.Repeat(*session_, 20000, &events);
  EXPECT_EQ(rules_.cost().n_asked, n_asked);
  ASSERT_EQ(events.size(), 1u);
  EXPECT_EQ(events[0].t_ms, 20000);
}

TEST_F(RuleSetTest, ARuleScoresTheSameWhateverTheOthersAre) {
  RuleSet alone(tokenizer());
  ASSERT_TRUE(Add(Asks("Who came? => the man"), &alone).ok());
  for (const char* when : {"What is it? => sea", "Who came? => the man", "Where? => sea"}) {
    ASSERT_TRUE(Add(Asks(when), &rules_).ok());
  }
  std::vector<RuleEvent> events;
  for (int i = 0; i < 6; ++i) {
    Say(" the man and the sea, the sea");
    ASSERT_TRUE(rules_.Check(*session_, *conversation_, i, &events).ok());
    ASSERT_TRUE(alone.Check(*session_, *conversation_, i, &events).ok());
    EXPECT_EQ(rules_.rules()[1].log_odds, alone.rules()[0].log_odds);
  }
}

TEST_F(RuleSetTest, BadRulesAreRefused) {
  EXPECT_EQ(Add(Asks("the man came"), &rules_).code(), StatusCode::kUnsupported);  // no yes in this vocabulary
  std::string many;
  for (int i = 0; i < 160; ++i) many += " sea";
  const Status too_long = Add(Asks(many + " => sea"), &rules_);
  EXPECT_NE(too_long.message().find("fewer words"), std::string::npos) << too_long.message();
  Rule named = Asks("Who? => man");
  named.id = "door";
  ASSERT_TRUE(Add(named, &rules_).ok());
  EXPECT_NE(Add(named, &rules_).message().find("'door' already"), std::string::npos);
  Rule own = Asks("Who? => man");
  own.id = "r1";
  ASSERT_TRUE(Add(own, &rules_).ok());
  EXPECT_EQ(*rules_.Add(Asks("Who? => man"), *conversation_, kRoom), "r2");
  EXPECT_TRUE(rules_.Remove("r2"));
  EXPECT_FALSE(rules_.Remove("r2"));
  while (std::ssize(rules_.rules()) < kMaxRules) ASSERT_TRUE(Add(Asks("Who? => man"), &rules_).ok());
  EXPECT_NE(Add(Asks("Who? => man"), &rules_).message().find("the most that one stream can have"), std::string::npos);
}

TEST_F(RuleSetTest, ARestoredSetGoesOnAlike) {
  Rule rule = Asks("Who came? => the man");
  rule.tuning = {.on = 0.001, .off = 0, .least = -30, .n_begin = 1, .n_end = 1, .n_calibrate = 2};
  ASSERT_TRUE(Add(rule, &rules_).ok());
  ASSERT_TRUE(Add(Asks("What? => sea"), &rules_).ok());
  std::vector<RuleEvent> events, others;
  RuleSet other(tokenizer());
  for (int i = 0; i < 20; ++i) {
    Say(i % 3 == 0 ? " the sea" : " the man came");
    if (i == 7) {
      const auto saved = ParseJsonObject(JsonText(rules_.Save()));
      ASSERT_TRUE(saved.ok());
      ASSERT_TRUE(other.Restore(*saved, *conversation_, kRoom).ok());
      events.clear();
    }
    ASSERT_TRUE(rules_.Check(*session_, *conversation_, i, &events).ok());
    if (i >= 7) {
      ASSERT_TRUE(other.Check(*session_, *conversation_, i, &others).ok());
    }
  }
  ASSERT_FALSE(events.empty());
  ASSERT_EQ(events.size(), others.size());
  for (size_t i = 0; i < events.size(); ++i) EXPECT_EQ(JsonText(ToJson(events[i])), JsonText(ToJson(others[i])));
}

TEST_F(RuleSetTest, ARuleThatFitsFitsAfterAnAnswerThatWasCut) {
  const Rule rule = Asks("Who came? => the man");
  int32_t room = 1;
  while (!RuleSet(tokenizer()).Add(rule, *conversation_, room).ok()) ASSERT_LT(++room, kRoom);
  ASSERT_TRUE(rules_.Add(rule, *conversation_, room).ok());
  for (const bool end_token_read : {true, false}) {
    Conversation later = *conversation_;
    later.Asked();
    later.Answered(end_token_read);
    EXPECT_LE(rules_.TokensOfACheck(later), room);
    RuleSet other(tokenizer());
    const Status status = other.Restore(rules_.Save(), later, room);
    EXPECT_TRUE(status.ok()) << end_token_read << ": " << status.message();
  }
}

TEST_F(RuleSetTest, ASystemMessageThatIsNotUtf8HoldsUpNothing) {
  Conversation odd(tokenizer(), &chat_);
  (void)odd.Begin("\xff");
  ASSERT_TRUE(rules_.Add(Asks("Who came? => the man"), odd, kRoom).ok());
  Say("the man");
  std::vector<RuleEvent> events;
  EXPECT_TRUE(rules_.Check(*session_, odd, 0, &events).ok());
}

TEST_F(RuleSetTest, BrokenSavedRulesAreRefused) {
  ASSERT_TRUE(Add(Asks("Who? => man"), &rules_).ok());
  const Json good = rules_.Save();
  RuleSet other(tokenizer());
  ASSERT_TRUE(other.Restore(good, *conversation_, kRoom).ok());
  for (const auto& [key, value] : std::vector<std::pair<std::string, Json>>{
           {"events", -1}, {"rules", 3}, {"rules", {1}}, {"rules", {Json::object()}}, {"other", 1}}) {
    Json bad = good;
    bad[key] = value;
    EXPECT_EQ(other.Restore(bad, *conversation_, kRoom).code(), StatusCode::kInvalidArgument) << key;
  }
  Json twice = good;
  twice["rules"].push_back(good["rules"][0]);
  EXPECT_EQ(other.Restore(twice, *conversation_, kRoom).code(), StatusCode::kInvalidArgument);
  EXPECT_EQ(other.Restore(good, *conversation_, 3).code(), StatusCode::kInvalidArgument);
  EXPECT_EQ(other.rules().size(), 1u);
}

TEST(RuleTest, TheTextSaysWhatIsAsked) {
  const Rule condition = std::move(ParseRule("  a parcel lies at the door \n")).value();
  EXPECT_EQ(condition.text, "a parcel lies at the door");
  EXPECT_EQ(condition.answer, "");
  const Rule question = std::move(ParseRule("Is a => b? => yes")).value();
  EXPECT_EQ(question.text, "Is a => b?");
  EXPECT_EQ(question.answer, "yes");
  EXPECT_EQ(question.when(), "Is a => b? => yes");
  for (const std::string& bad : {std::string(), std::string("  \n"), std::string("=> red"), std::string("what? =>"),
                                 std::string(kMaxRuleBytes + 1, 'x'), std::string("\xff\xfe")}) {
    EXPECT_EQ(ParseRule(bad).status().code(), StatusCode::kInvalidArgument) << bad;
  }
}

TEST(RuleTest, WhatIsAcceptedIsReadBackFromItsJson) {
  const std::string most(kMaxRuleBytes - 5, 'x');  // and " => a"
  for (const std::string& when :
       {most + "=>a", most + " => a", fmt::format("x=>{}", most), std::string(kMaxRuleBytes, 'x')}) {
    const auto rule = ParseRule(when);
    ASSERT_TRUE(rule.ok()) << rule.status().message();
    EXPECT_EQ(rule->when().size(), kMaxRuleBytes);
    const auto again = RuleFromJson({{"when", rule->when()}});
    ASSERT_TRUE(again.ok()) << again.status().message();
    EXPECT_EQ(again->when(), rule->when());
  }
  for (const std::string& when : {most + "x=>a", most + "xx=>a", fmt::format("x=>x{}", most)}) {
    EXPECT_EQ(ParseRule(when).status().code(), StatusCode::kInvalidArgument) << when.size();
  }
}

TEST(RuleTest, JsonIsReadFieldByField) {
  const Rule rule = std::move(RuleFromJson({{"id", "door"}, {"when", "it rains"}, {"on", 2.5}, {"begin", 4}})).value();
  EXPECT_EQ(rule.tuning.on, 2.5);
  EXPECT_EQ(rule.tuning.n_begin, 4);
  EXPECT_EQ(JsonText(ToJson(std::move(RuleFromJson(ToJson(rule))).value())), JsonText(ToJson(rule)));
  for (const Json& bad : {Json(3), Json{{"id", "door"}}, Json{{"when", ""}}, Json{{"when", "x"}, {"id", "a b"}},
                          Json{{"when", "x"}, {"begin", 0}}, Json{{"when", "x"}, {"on", 1}, {"off", 2}},
                          Json{{"when", "x"}, {"wehn", 1}}, Json{{"when", 1}}}) {
    EXPECT_EQ(RuleFromJson(bad).status().code(), StatusCode::kInvalidArgument) << bad;
  }
}

TEST(LogOddsTest, OfWordsAndOfOneAnswer) {
  const std::vector<float> logits = {0, 1, 2, -1};
  EXPECT_NEAR(LogOdds(logits, {{1}, {0}, {}}), 1, 1e-9);
  EXPECT_NEAR(LogOdds(logits, {{1, 2}, {0, 3}, {}}), std::log((std::exp(1.0) + std::exp(2.0)) / (1 + std::exp(-1.0))),
              1e-9);
  EXPECT_NEAR(LogOdds(logits, {{2}, {}, {}}), 2 - std::log(1 + std::exp(1.0) + std::exp(-1.0)), 1e-9);
  constexpr float kNever = -std::numeric_limits<float>::infinity();
  EXPECT_EQ(LogOdds(std::vector<float>{kNever, 1}, {{0}, {}, {}}), -std::numeric_limits<double>::infinity());
  EXPECT_EQ(LogOdds(std::vector<float>{1, kNever}, {{0}, {}, {}}), std::numeric_limits<double>::infinity());
  EXPECT_NEAR(LogOdds(std::vector<float>{kNever, 1, kNever, 3}, {{1}, {}, {}}), -2, 1e-9);
}

}  // namespace
}  // namespace weir
