// SPDX-License-Identifier: Apache-2.0
// Rules through the C API: who is told of what, that the stream does not know of them, and that their room is planned.
#include <gtest/gtest.h>

#include <cstring>
#include <string>
#include <vector>

#include "support/build_paths.h"
#include "weir/weir.h"
#include "weir/weir.hpp"

namespace {

struct Told {
  int64_t id, began_id;
  std::string rule, when, text;
  bool began;
  int64_t t_ms, since_ms;
  double score;
  std::vector<int64_t> frames_ms;
  bool operator==(const Told&) const = default;
};

class CapiRulesTest : public ::testing::Test {
 protected:
  static void SetUpTestSuite() {
    model_ = new weir::ModelHandle(weir::SourceDir() + "/tests/golden/models/llama.gguf");
  }
  static void TearDownTestSuite() { delete model_; }
  static weir_session_options Options(int32_t rule_tokens = 128) {
    weir_session_options options = WEIR_SESSION_OPTIONS_INIT;
    options.pot_tokens = 96;
    options.picture_side = 64;
    options.rule_tokens = rule_tokens;
    return options;
  }
  // Begins at the slightest rise.
  static weir_rule_options Jumpy() {
    weir_rule_options options = WEIR_RULE_OPTIONS_INIT;
    options.on = 1e-6;
    options.off = options.on;
    options.least = -30;
    options.n_begin = options.n_end = 1;
    options.n_calibrate = 9;
    return options;
  }
  static weir_status Add(const weir::SessionHandle& session, const std::string& when,
                         const weir_rule_options* options = nullptr) {
    return weir_session_add_rule(session.get(), when.data(), when.size(), options);
  }
  static int Take(const weir_event* event, void* user) {
    EXPECT_EQ(event->struct_bytes, sizeof(weir_event));
    static_cast<std::vector<Told>*>(user)->push_back(
        {event->id, event->began_id, event->rule, event->when, std::string(event->text, event->n_bytes),
         event->began != 0, event->t_ms, event->since_ms, event->score,
         std::vector<int64_t>(event->frames_ms, event->frames_ms + event->n_frames)});
    return 0;
  }
  static void Listen(const weir::SessionHandle& session, std::vector<Told>* told) {
    ASSERT_EQ(weir_session_on_event(session.get(), &Take, told), WEIR_OK);
  }
  static std::string Line(int i) {
    static const char* const kLines[] = {" the sea", " the man came", " and a boat, the river", " of the man"};
    return kLines[i * i % 7 % 4];
  }
  static void Say(weir::SessionHandle& session, int from, int to) {
    for (int i = from; i < to; ++i) {
      ASSERT_EQ(weir_session_set_time(session.get(), 1000 * i), WEIR_OK);
      session.Say(Line(i));
    }
  }
  static weir_rule At(const weir::SessionHandle& session, size_t i) {
    weir_rule out = WEIR_RULE_INIT;
    EXPECT_EQ(weir_session_rule(session.get(), i, &out), WEIR_OK) << weir_last_error();
    return out;
  }
  static weir::ModelHandle* model_;
};
weir::ModelHandle* CapiRulesTest::model_ = nullptr;

TEST_F(CapiRulesTest, EventsAreToldAndTheStreamDoesNotKnow) {
  weir::SessionHandle with(*model_, Options()), without(*model_, Options());
  std::vector<Told> told;
  Listen(with, &told);
  const weir_rule_options jumpy = Jumpy();
  ASSERT_EQ(Add(with, "Who came?=>the man", &jumpy), WEIR_OK) << weir_last_error();
  ASSERT_EQ(Add(with, "What is near? => sea"), WEIR_OK);
  EXPECT_EQ(At(with, 0).asked, 0);
  EXPECT_EQ(At(with, 0).state, WEIR_LEARNS);
  Say(with, 0, 40);
  Say(without, 0, 40);
  ASSERT_GE(told.size(), 3u);
  for (size_t i = 0; i < told.size(); ++i) {
    EXPECT_EQ(told[i].id, static_cast<int64_t>(i) + 1);
    EXPECT_EQ(told[i].began, i % 2 == 0);
    EXPECT_EQ(told[i].began_id, told[i - i % 2].id);
    EXPECT_EQ(told[i].rule, "r1");
    EXPECT_EQ(told[i].when, "Who came? => the man");
    EXPECT_LE(told[i].since_ms, told[i].t_ms);
    EXPECT_EQ(told[i].t_ms % 1000, 0);
    EXPECT_NE(told[i].text.find("the"), std::string::npos);
  }
  const weir_rule second = At(with, 1);
  EXPECT_STREQ(second.id, "r2");
  EXPECT_EQ(second.state, WEIR_WATCHES);
  EXPECT_NE(second.asked, 0);
  EXPECT_LT(second.log_odds, 0);
  weir_rule none = WEIR_RULE_INIT;
  EXPECT_EQ(weir_session_rule(with.get(), 2, &none), WEIR_NOT_FOUND);
  weir_rule_cost cost = WEIR_RULE_COST_INIT;
  ASSERT_EQ(weir_session_rule_cost(with.get(), &cost), WEIR_OK);
  EXPECT_EQ(cost.n_checks, 40);
  EXPECT_GT(cost.n_tokens, 2 * 40 * 10);
  // The pot is full by now; nothing of it was forgotten for a question.
  EXPECT_GT(without.counters().dropped, 0);
  EXPECT_EQ(with.counters().seen, without.counters().seen);
  weir_generate_options writing = WEIR_GENERATE_OPTIONS_INIT;
  writing.temperature = 0;
  writing.max_tokens = 12;
  EXPECT_EQ(with.Ask("who?", writing), without.Ask("who?", writing));
  ASSERT_EQ(weir_session_remove_rule(with.get(), "r1"), WEIR_OK);
  ASSERT_EQ(weir_session_remove_rule(with.get(), "r2"), WEIR_OK);
  EXPECT_EQ(with.Save(), without.Save());
}

TEST_F(CapiRulesTest, RoomForRulesIsPlanned) {
  const int64_t plain = weir::SessionHandle(*model_, Options(0)).counters().bytes;
  weir::SessionHandle one(*model_, Options(64)), two(*model_, Options(128));
  const int64_t bytes = two.counters().bytes;
  EXPECT_GT(one.counters().bytes, plain);
  EXPECT_GT(bytes, one.counters().bytes);
  ASSERT_EQ(Add(two, "Who came? => the man"), WEIR_OK);
  Say(two, 0, 30);
  EXPECT_EQ(two.counters().bytes, bytes);
  // A budget counts it.
  weir_session_options tight = Options(128);
  tight.budget_bytes = one.counters().bytes;
  EXPECT_THROW(weir::SessionHandle(*model_, tight), weir::Error);
  tight.budget_bytes = bytes;
  EXPECT_NO_THROW(weir::SessionHandle(*model_, tight));
}

TEST_F(CapiRulesTest, WhatIsRefused) {
  weir::SessionHandle none(*model_, Options(0)), small(*model_, Options(8)), session(*model_, Options());
  const std::string when = "Who came? => the man";
  EXPECT_EQ(Add(none, when), WEIR_INVALID_ARGUMENT);
  EXPECT_NE(std::string(weir_last_error()).find("rule_tokens"), std::string::npos);
  weir_rule rule = WEIR_RULE_INIT;
  weir_rule_cost cost = WEIR_RULE_COST_INIT;
  EXPECT_EQ(weir_session_rule(none.get(), 0, &rule), WEIR_INVALID_ARGUMENT);
  EXPECT_EQ(weir_session_rule_cost(none.get(), &cost), WEIR_INVALID_ARGUMENT);
  EXPECT_EQ(weir_session_remove_rule(none.get(), "r1"), WEIR_INVALID_ARGUMENT);
  EXPECT_EQ(Add(small, when), WEIR_INVALID_ARGUMENT);
  EXPECT_NE(std::string(weir_last_error()).find("fewer words"), std::string::npos);
  weir_session_options negative = Options(-1);
  EXPECT_THROW(weir::SessionHandle(*model_, negative), weir::Error);

  EXPECT_EQ(Add(session, "a parcel lies there"), WEIR_UNSUPPORTED);  // this vocabulary has no yes
  for (const char* bad : {"", "  ", "=> the man", "Who? =>", "\xff => a"}) {
    EXPECT_EQ(Add(session, bad), WEIR_INVALID_ARGUMENT) << bad;
  }
  EXPECT_EQ(Add(session, std::string(1001, 'a') + " => b"), WEIR_INVALID_ARGUMENT);
  EXPECT_EQ(weir_session_add_rule(session.get(), nullptr, 1, nullptr), WEIR_INVALID_ARGUMENT);
  weir_rule_options options = WEIR_RULE_OPTIONS_INIT;
  options.id = "a b";
  EXPECT_EQ(Add(session, when, &options), WEIR_INVALID_ARGUMENT);
  options.id = "door";
  options.on = 0;
  EXPECT_EQ(Add(session, when, &options), WEIR_INVALID_ARGUMENT);
  options.on = 3;
  options.struct_bytes = 4;
  EXPECT_EQ(Add(session, when, &options), WEIR_INVALID_ARGUMENT);
  options.struct_bytes = sizeof(options);
  EXPECT_EQ(Add(session, when, &options), WEIR_OK);
  EXPECT_EQ(Add(session, when, &options), WEIR_INVALID_ARGUMENT) << "the id is taken";
  for (int i = 1; i < 64; ++i) ASSERT_EQ(Add(session, when), WEIR_OK) << weir_last_error();
  EXPECT_EQ(Add(session, when), WEIR_INVALID_ARGUMENT);
  EXPECT_EQ(weir_session_remove_rule(session.get(), "nobody"), WEIR_NOT_FOUND);
  EXPECT_EQ(weir_session_remove_rule(session.get(), "door"), WEIR_OK);
  EXPECT_EQ(Add(session, when), WEIR_OK);

  weir_model_options together = WEIR_MODEL_OPTIONS_INIT;
  const std::string encoder = weir::SourceDir() + "/tests/golden/vision/flash_vstream.gguf";
  together.mmproj = encoder.c_str();
  const weir::ModelHandle keeping(weir::SourceDir() + "/tests/golden/vision/llava.gguf", together);
  weir::SessionHandle keeper(keeping, Options());
  EXPECT_EQ(Add(keeper, when), WEIR_UNSUPPORTED) << weir_last_error();
}

TEST_F(CapiRulesTest, ForksAndRestoredSessionsGoOnWithTheRules) {
  weir::SessionHandle one(*model_, Options()), two(*model_, Options());
  const weir_rule_options jumpy = Jumpy();
  ASSERT_EQ(Add(one, "Who came? => the man", &jumpy), WEIR_OK);
  Say(one, 0, 10);
  const std::vector<std::uint8_t> saved = one.Save();
  two.Restore(saved);
  EXPECT_EQ(two.Save(), saved);
  weir_session* made = nullptr;
  ASSERT_EQ(weir_session_fork(one.get(), nullptr, &made), WEIR_OK);
  std::vector<Told> first, second, third;
  Listen(one, &first);
  Listen(two, &second);
  Say(one, 10, 30);
  Say(two, 10, 30);
  ASSERT_FALSE(first.empty());
  EXPECT_EQ(first, second);
  ASSERT_EQ(weir_session_on_event(made, &Take, &third), WEIR_OK);
  for (int i = 10; i < 30; ++i) {
    ASSERT_EQ(weir_session_set_time(made, 1000 * i), WEIR_OK);
    const std::string text = Line(i);
    ASSERT_EQ(weir_session_say(made, text.data(), text.size(), 0), WEIR_OK);
  }
  EXPECT_EQ(first, third);
  weir_session_close(made);

  // Not where there is no room, and not anything else; the session is then as it was.
  weir::SessionHandle none(*model_, Options(0)), other(*model_, Options());
  EXPECT_EQ(weir_session_restore(none.get(), saved.data(), saved.size()), WEIR_INVALID_ARGUMENT);
  Say(other, 0, 3);
  const std::vector<std::uint8_t> before = other.Save();
  const auto begin = std::string(saved.begin(), saved.end()).find("\"rules\"");
  ASSERT_NE(begin, std::string::npos);
  std::vector<std::uint8_t> broken = saved;
  broken[begin + 1] = 'x';
  EXPECT_EQ(weir_session_restore(other.get(), broken.data(), broken.size()), WEIR_INVALID_ARGUMENT);
  EXPECT_EQ(other.Save(), before);
  // A state without rules, and a new beginning.
  two.Restore(before);
  weir_rule rule = WEIR_RULE_INIT;
  EXPECT_EQ(weir_session_rule(two.get(), 0, &rule), WEIR_NOT_FOUND);
  one.Reset();
  EXPECT_EQ(weir_session_rule(one.get(), 0, &rule), WEIR_NOT_FOUND);
  EXPECT_EQ(one.counters().seen, 0);
}

TEST_F(CapiRulesTest, CallbacksEndACallAndWhatWasReadStaysRead) {
  weir::SessionHandle session(*model_, Options());
  const weir_rule_options jumpy = Jumpy();
  ASSERT_EQ(Add(session, "Who came? => the man", &jumpy), WEIR_OK);
  struct Caller {
    weir_session* session;
    int n = 0;
    weir_status inside = WEIR_OK;
  } caller{session.get()};
  const auto refuse = [](const weir_event*, void* user) {
    auto& to = *static_cast<Caller*>(user);
    ++to.n;
    to.inside = weir_session_say(to.session, "a", 1, 0);
    return 1;
  };
  ASSERT_EQ(weir_session_on_event(session.get(), refuse, &caller), WEIR_OK);
  weir_status status = WEIR_OK;
  for (int i = 0; i < 30 && status == WEIR_OK; ++i) {
    const int64_t seen = session.counters().seen;
    const std::string text = Line(i);
    status = weir_session_say(session.get(), text.data(), text.size(), 0);
    EXPECT_GT(session.counters().seen, seen);
  }
  EXPECT_EQ(status, WEIR_CANCELLED);
  EXPECT_EQ(caller.n, 1);
  EXPECT_EQ(caller.inside, WEIR_INVALID_ARGUMENT);
  ASSERT_EQ(weir_session_on_event(session.get(), nullptr, nullptr), WEIR_OK);

  // A check of many rules goes in parts, between which it can be stopped.
  for (int i = 0; i < 40; ++i) ASSERT_EQ(Add(session, "What is near? => sea"), WEIR_OK);
  struct Progress {
    int n_calls = 0, most = 0;
  } progress;
  const auto look = [](int64_t, void* user) {
    auto& to = *static_cast<Progress*>(user);
    return ++to.n_calls > to.most ? 1 : 0;
  };
  ASSERT_EQ(weir_session_on_progress(session.get(), look, &progress), WEIR_OK);
  progress.most = 1000;
  ASSERT_EQ(weir_session_say(session.get(), " the sea", 8, 0), WEIR_OK);
  EXPECT_GT(progress.n_calls, 5);
  weir_rule_cost before = WEIR_RULE_COST_INIT, after = WEIR_RULE_COST_INIT;
  ASSERT_EQ(weir_session_rule_cost(session.get(), &before), WEIR_OK);
  progress = {0, 3};
  const int64_t seen = session.counters().seen;
  EXPECT_EQ(weir_session_say(session.get(), " the sea", 8, 0), WEIR_CANCELLED);
  EXPECT_GT(session.counters().seen, seen);
  ASSERT_EQ(weir_session_rule_cost(session.get(), &after), WEIR_OK);
  EXPECT_EQ(after.n_checks, before.n_checks);
  progress.most = 1000;
  EXPECT_EQ(weir_session_say(session.get(), " the sea", 8, 0), WEIR_OK);
}

TEST_F(CapiRulesTest, FramesAreChecked) {
  weir_model_options seeing = WEIR_MODEL_OPTIONS_INIT;
  const std::string encoder = weir::SourceDir() + "/tests/golden/vision/clip.gguf";
  seeing.mmproj = encoder.c_str();
  const weir::ModelHandle model(weir::SourceDir() + "/tests/golden/vision/llava.gguf", seeing);
  weir::SessionHandle session(model, Options());
  std::vector<Told> told;
  Listen(session, &told);
  const weir_rule_options jumpy = Jumpy();
  ASSERT_EQ(Add(session, "What is it? => the sea", &jumpy), WEIR_OK) << weir_last_error();
  std::vector<std::uint8_t> rgb(48 * 48 * 3);
  for (int i = 0; i < 24; ++i) {
    std::memset(rgb.data(), i % 4 == 0 ? 250 : 10 * i, rgb.size());
    session.SeePixels(rgb.data(), 48, 48, 1000 * i);
  }
  ASSERT_FALSE(told.empty());
  EXPECT_FALSE(told[0].frames_ms.empty());
  EXPECT_EQ(told[0].frames_ms.back(), told[0].t_ms);
  weir_rule_cost cost = WEIR_RULE_COST_INIT;
  ASSERT_EQ(weir_session_rule_cost(session.get(), &cost), WEIR_OK);
  EXPECT_EQ(cost.n_checks, 24);
}

}  // namespace
