// SPDX-License-Identifier: Apache-2.0
// Answers token by token, their forms, and what else a caller needs to run sessions from a language with its own loop.
#include <gtest/gtest.h>

#include <unistd.h>

#include <cmath>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <sstream>
#include <string>
#include <vector>

#include "support/build_paths.h"
#include "weir/weir.h"
#include "weir/weir.hpp"

namespace {

class AnswersTest : public ::testing::Test {
 protected:
  static void SetUpTestSuite() {
    model_ = new weir::ModelHandle(weir::SourceDir() + "/tests/golden/models/llama.gguf");
  }
  static void TearDownTestSuite() { delete model_; }
  static weir_session_options Options() {
    weir_session_options options = WEIR_SESSION_OPTIONS_INIT;
    options.pot_tokens = 96;
    return options;
  }
  static weir_generate_options Writing(int64_t max_tokens) {
    weir_generate_options writing = WEIR_GENERATE_OPTIONS_INIT;
    writing.temperature = 0;
    writing.max_tokens = max_tokens;
    writing.ignore_end = 1;
    return writing;
  }
  // Everything that comes until nothing more does.
  static std::string Rest(const weir::SessionHandle& session) {
    std::string out;
    const char* text = nullptr;
    size_t n = 0;
    for (int more = 1; more != 0;) {
      weir::Check(weir_session_next(session.get(), &text, &n, &more));
      out.append(text, n);
    }
    return out;
  }
  static weir::ModelHandle* model_;
};
weir::ModelHandle* AnswersTest::model_ = nullptr;

TEST_F(AnswersTest, TokenByTokenIsTheSameAnswer) {
  weir::SessionHandle whole(*model_, Options()), steps(*model_, Options());
  const weir_generate_options writing = Writing(20);
  for (int round = 0; round < 3; ++round) {
    whole.Say("the man and the sea");
    steps.Say("the man and the sea");
    size_t n_tokens = 0;
    weir_end end = WEIR_STOPPED;
    std::string wanted;
    const auto take = [](const char* text, size_t n, void* to) {
      static_cast<std::string*>(to)->append(text, n);
      return 0;
    };
    ASSERT_EQ(weir_session_ask(whole.get(), "what?", 5, &writing, take, &wanted, &n_tokens, &end), WEIR_OK);
    EXPECT_EQ(n_tokens, 20u);
    EXPECT_EQ(end, WEIR_MAX_TOKENS);
    ASSERT_EQ(weir_session_begin_ask(steps.get(), "what?", 5, &writing), WEIR_OK) << weir_last_error();
    EXPECT_EQ(Rest(steps), wanted);
    ASSERT_EQ(weir_session_end_answer(steps.get(), &n_tokens, &end), WEIR_OK);
    EXPECT_EQ(n_tokens, 20u);
    EXPECT_EQ(end, WEIR_MAX_TOKENS);
    EXPECT_EQ(whole.counters().seen, steps.counters().seen);
    EXPECT_EQ(whole.Save(), steps.Save());
  }
}

// The second model maps what the first one left when it was closed, and answers alike.
TEST_F(AnswersTest, PackedWeightsAreMappedByTheNextModel) {
  const std::string folder = testing::TempDir() + "capi-packed";
  std::filesystem::remove_all(folder);
  const std::string path = weir::SourceDir() + "/tests/golden/models/llama.gguf";
  weir_model_options with = WEIR_MODEL_OPTIONS_INIT;
  with.packed = folder.c_str();
  const auto ask = [&](const weir::ModelHandle& model) {
    weir::SessionHandle session(model, Options());
    session.Say("the man and the sea");
    const weir_generate_options writing = Writing(20);
    EXPECT_EQ(weir_session_begin_ask(session.get(), "what?", 5, &writing), WEIR_OK) << weir_last_error();
    return Rest(session);
  };
  const std::string want = ask(*model_);
  for (const int mapped : {0, 1}) {
    const weir::ModelHandle model(path, with);
    weir_model_info info = WEIR_MODEL_INFO_INIT;
    ASSERT_EQ(weir_model_describe(model.get(), &info), WEIR_OK);
    EXPECT_EQ(info.weights_mapped, mapped);
    EXPECT_EQ(ask(model), want);
  }
  std::filesystem::remove_all(folder);
}

// A model that drafts for itself: the same answers, with guesses from both sources.
TEST_F(AnswersTest, GuessesChangeNoAnswer) {
  const std::string folder = weir::SourceDir() + "/tests/golden/models/", path = folder + "llama.gguf";
  weir_model_options with = WEIR_MODEL_OPTIONS_INIT;
  with.draft = path.c_str();
  const weir::ModelHandle model(path, with);
  weir_session_options options = Options();
  options.lookup = 3;
  weir::SessionHandle plain(*model_, Options()), guessing(model, options);
  EXPECT_GT(guessing.counters().bytes, plain.counters().bytes);
  const weir_generate_options writing = Writing(60);
  const auto write = [&](weir::SessionHandle& session) {
    session.Say("the man and the sea");
    EXPECT_EQ(weir_session_begin_ask(session.get(), "what?", 5, &writing), WEIR_OK) << weir_last_error();
    const std::string text = Rest(session);
    EXPECT_EQ(weir_session_end_answer(session.get(), nullptr, nullptr), WEIR_OK);
    return text;
  };
  for (int round = 0; round < 2; ++round) EXPECT_EQ(write(guessing), write(plain));
  EXPECT_EQ(guessing.Save(), plain.Save());
  EXPECT_GE(guessing.counters().guessed, guessing.counters().guessed_right);

  options.draft_most = -1;
  EXPECT_LT(weir::SessionHandle(model, options).counters().bytes, guessing.counters().bytes);
  options.draft_most = 5;
  weir_session* none = nullptr;
  EXPECT_EQ(weir_session_open(model_->get(), &options, &none), WEIR_INVALID_ARGUMENT);
  EXPECT_NE(std::string(weir_last_error()).find("weir_model_options.draft"), std::string::npos);
  weir_model* refused = nullptr;
  const std::string gone = folder + "nobody.gguf";
  with.draft = gone.c_str();
  EXPECT_NE(weir_model_open(path.c_str(), &with, &refused), WEIR_OK);
  EXPECT_NE(std::string(weir_last_error()).find("nobody.gguf"), std::string::npos);
}

TEST_F(AnswersTest, SeveralTokensACallAreTheSameAnswer) {
  weir::SessionHandle whole(*model_, Options()), steps(*model_, Options());
  const weir_generate_options writing = Writing(20);
  whole.Append(std::string("the man and the sea"));
  steps.Append(std::string("the man and the sea"));
  ASSERT_EQ(weir_session_begin_answer(whole.get(), &writing), WEIR_OK);
  ASSERT_EQ(weir_session_begin_answer(steps.get(), &writing), WEIR_OK);
  const std::string expected = Rest(whole);
  std::string out;
  const char* text = nullptr;
  size_t n = 0;
  int more = 1;
  int calls = 0;
  for (const int32_t none : {0, -1, 1025}) {
    EXPECT_EQ(weir_session_next_tokens(steps.get(), none, &text, &n, &more), WEIR_INVALID_ARGUMENT);
  }
  for (more = 1; more != 0; ++calls) {
    ASSERT_EQ(weir_session_next_tokens(steps.get(), 7, &text, &n, &more), WEIR_OK);
    out.append(text, n);
  }
  EXPECT_EQ(out, expected);
  EXPECT_EQ(calls, 3);  // 7 and 7 tokens, then 6 and the end
  ASSERT_EQ(weir_session_end_answer(steps.get(), &n, nullptr), WEIR_OK);
  EXPECT_EQ(n, 20u);
  // Left after five tokens: these were written and are read.
  const int64_t before = steps.counters().seen;
  ASSERT_EQ(weir_session_begin_answer(steps.get(), &writing), WEIR_OK);
  ASSERT_EQ(weir_session_next_tokens(steps.get(), 5, &text, &n, &more), WEIR_OK);
  EXPECT_NE(more, 0);
  ASSERT_EQ(weir_session_end_answer(steps.get(), &n, nullptr), WEIR_OK);
  EXPECT_EQ(n, 5u);
  EXPECT_EQ(steps.counters().seen, before + 5);
}

TEST_F(AnswersTest, AnAnswerThatIsLeftEarlyIsRead) {
  weir::SessionHandle session(*model_, Options());
  session.Append(std::string("the man"));
  const weir_generate_options writing = Writing(20);
  EXPECT_EQ(weir_session_end_answer(session.get(), nullptr, nullptr), WEIR_INVALID_ARGUMENT);
  const char* text = nullptr;
  size_t n = 0;
  int more = 0;
  EXPECT_EQ(weir_session_next(session.get(), &text, &n, &more), WEIR_INVALID_ARGUMENT);
  ASSERT_EQ(weir_session_begin_answer(session.get(), &writing), WEIR_OK);
  const int64_t before = session.counters().seen;
  for (int i = 0; i < 3; ++i) ASSERT_EQ(weir_session_next(session.get(), &text, &n, &more), WEIR_OK);
  EXPECT_NE(more, 0);
  // Nothing else may come between.
  EXPECT_EQ(weir_session_append_text(session.get(), "a", 1, 0), WEIR_INVALID_ARGUMENT);
  EXPECT_EQ(weir_session_say(session.get(), "a", 1, 0), WEIR_INVALID_ARGUMENT);
  EXPECT_EQ(weir_session_ask(session.get(), "a", 1, nullptr, nullptr, nullptr, nullptr, nullptr),
            WEIR_INVALID_ARGUMENT);
  EXPECT_EQ(weir_session_begin_answer(session.get(), nullptr), WEIR_INVALID_ARGUMENT);
  weir_session* fork = nullptr;
  EXPECT_EQ(weir_session_fork(session.get(), nullptr, &fork), WEIR_INVALID_ARGUMENT);
  EXPECT_EQ(weir_session_save(session.get(), nullptr, 0, &n), WEIR_INVALID_ARGUMENT);
  weir_end end = WEIR_ENDED;
  ASSERT_EQ(weir_session_end_answer(session.get(), &n, &end), WEIR_OK);
  EXPECT_EQ(n, 3u);
  EXPECT_EQ(end, WEIR_STOPPED);
  EXPECT_EQ(session.counters().seen, before + 3);
  EXPECT_EQ(weir_session_append_text(session.get(), "a", 1, 0), WEIR_OK);
  // A new start ends an answer, too.
  ASSERT_EQ(weir_session_begin_answer(session.get(), &writing), WEIR_OK);
  EXPECT_EQ(weir_session_reset(session.get()), WEIR_OK);
  EXPECT_EQ(weir_session_end_answer(session.get(), nullptr, nullptr), WEIR_INVALID_ARGUMENT);
}

// What a form may take is part of the session's bytes, and no answer takes more.
TEST_F(AnswersTest, MemoryForFormsIsTheSessions) {
  weir_session_options options = Options();
  weir_generate_options writing = Writing(30);
  writing.regex = "[a-z ]+";
  weir::SessionHandle none(*model_, options);
  EXPECT_EQ(weir_session_begin_ask(none.get(), "a", 1, &writing), WEIR_INVALID_ARGUMENT);
  EXPECT_NE(std::string(weir_last_error()).find("weir_session_options.form_bytes"), std::string::npos);

  const auto least_budget = [&] {  // as the error names it
    options.budget_bytes = 1;
    weir_session* session = nullptr;
    EXPECT_EQ(weir_session_open(model_->get(), &options, &session), WEIR_OVER_BUDGET);
    const std::string error = weir_last_error();
    return std::stoll(error.substr(error.rfind(' ')));
  };
  const int64_t without = least_budget();
  options.form_bytes = 1 << 20;
  EXPECT_EQ(least_budget(), without + (1 << 20));
  options.budget_bytes = 0;
  weir::SessionHandle session(*model_, options);
  EXPECT_EQ(session.Ask("what?", writing).find_first_not_of("abcdefghijklmnopqrstuvwxyz "), std::string::npos);
  const std::string large(5000, 'a');
  writing.regex = large.c_str();
  EXPECT_EQ(weir_session_begin_ask(session.get(), "a", 1, &writing), WEIR_INVALID_ARGUMENT);
  EXPECT_EQ(std::string(weir_last_error()),
            "the form has 5000 bytes; at most 2730 are read with 1048576 kept for forms");
  options.form_bytes = 1000;
  weir_session* refused = nullptr;
  EXPECT_EQ(weir_session_open(model_->get(), &options, &refused), WEIR_INVALID_ARGUMENT);
}

TEST_F(AnswersTest, AnAnswerKeepsToItsForm) {
  weir_session_options with_forms = Options();
  with_forms.form_bytes = 16 << 20;
  weir::SessionHandle session(*model_, with_forms);
  const char* const choices[] = {"the man", "the sea"};
  weir_generate_options writing = Writing(30);
  writing.ignore_end = 0;
  writing.choices = choices;
  writing.n_choices = 2;
  const std::string answer = session.Ask("what?", writing);
  EXPECT_TRUE(answer == choices[0] || answer == choices[1]) << answer;
  writing.regex = "[a-z]+";
  EXPECT_EQ(weir_session_begin_ask(session.get(), "a", 1, &writing), WEIR_INVALID_ARGUMENT);
  writing.choices = nullptr;
  writing.n_choices = 0;
  writing.regex = "t[eh]{2}";
  EXPECT_EQ(session.Ask("what?", writing).size(), 3u);
  writing.regex = "t[eh";
  EXPECT_EQ(weir_session_begin_ask(session.get(), "a", 1, &writing), WEIR_INVALID_ARGUMENT);
  EXPECT_EQ(std::string(weir_last_error()).find('\n'), std::string::npos);
  writing.regex = nullptr;
  writing.json_schema = "{\"enum\": [\"man\"]}";
  EXPECT_EQ(session.Ask("what?", writing), "\"man\"");
  writing.json_schema = nullptr;
  writing.grammar = "root ::= \"sea\"";
  EXPECT_EQ(session.Ask("what?", writing), "sea");
}

TEST_F(AnswersTest, AStopTextEndsTheAnswerBeforeIt) {
  weir::SessionHandle one(*model_, Options()), two(*model_, Options());
  weir_generate_options writing = Writing(40);
  const std::string whole = one.Ask("the man", writing);
  ASSERT_GT(whole.size(), 8u);
  const std::string stop = whole.substr(4, 3);
  const char* const stops[] = {"no such text", stop.c_str()};
  writing.stop_texts = stops;
  writing.n_stop_texts = 2;
  ASSERT_EQ(weir_session_begin_ask(two.get(), "the man", 7, &writing), WEIR_OK);
  EXPECT_EQ(Rest(two), whole.substr(0, whole.find(stop)));
  weir_end end = WEIR_ENDED;
  ASSERT_EQ(weir_session_end_answer(two.get(), nullptr, &end), WEIR_OK);
  EXPECT_EQ(end, WEIR_STOP_TEXT);
}

TEST_F(AnswersTest, ProgressIsToldAndMayStopACall) {
  weir::SessionHandle session(*model_, Options());
  struct Seen {
    std::vector<int64_t> n;
    int64_t stop_at = 1 << 30;
  } seen;
  const auto progress = [](int64_t n, void* user) {
    Seen& to = *static_cast<Seen*>(user);
    to.n.push_back(n);
    return n >= to.stop_at ? 1 : 0;
  };
  ASSERT_EQ(weir_session_on_progress(session.get(), progress, &seen), WEIR_OK);
  const std::vector<std::int32_t> ids(100, 7);
  ASSERT_EQ(weir_session_append_tokens(session.get(), ids.data(), ids.size(), 0), WEIR_OK);
  ASSERT_GT(seen.n.size(), 3u);  // a quarter of the pot at a time
  EXPECT_EQ(seen.n.back(), 100);
  seen = {{}, 1};
  const int64_t before = session.counters().seen;
  EXPECT_EQ(weir_session_append_tokens(session.get(), ids.data(), ids.size(), 0), WEIR_CANCELLED);
  ASSERT_EQ(seen.n.size(), 1u);
  EXPECT_EQ(session.counters().seen, before + seen.n[0]);
  ASSERT_EQ(weir_session_on_progress(session.get(), nullptr, nullptr), WEIR_OK);
  EXPECT_EQ(weir_session_append_tokens(session.get(), ids.data(), ids.size(), 0), WEIR_OK);
  EXPECT_EQ(seen.n.size(), 1u);
}

TEST_F(AnswersTest, AForkGoesItsOwnWay) {
  weir::SessionHandle session(*model_, Options());
  session.BeginChat("the man");
  for (int i = 0; i < 20; ++i) session.Say("the sea and the river, ");
  weir_session* fork = nullptr;
  EXPECT_EQ(weir_session_fork(session.get(), "/tmp/x", &fork), WEIR_INVALID_ARGUMENT);  // there is no archive
  ASSERT_EQ(fork, nullptr);
  ASSERT_EQ(weir_session_fork(session.get(), nullptr, &fork), WEIR_OK) << weir_last_error();
  const auto answer = [](weir_session* of) {
    const weir_generate_options writing = Writing(12);
    std::string out;
    const auto take = [](const char* text, size_t n, void* to) {
      static_cast<std::string*>(to)->append(text, n);
      return 0;
    };
    EXPECT_EQ(weir_session_ask(of, "who?", 4, &writing, take, &out, nullptr, nullptr), WEIR_OK) << weir_last_error();
    return out;
  };
  EXPECT_EQ(answer(fork), answer(session.get()));
  ASSERT_EQ(weir_session_say(fork, "a boat", 6, 0), WEIR_OK);
  weir_counters counters = WEIR_COUNTERS_INIT;
  ASSERT_EQ(weir_session_counters(fork, &counters), WEIR_OK);
  EXPECT_GT(counters.seen, session.counters().seen);
  weir_session_close(fork);
}

TEST_F(AnswersTest, LikelihoodsSlotsAndTime) {
  weir_session_options options = Options();
  options.likelihoods = 1;
  options.policy = "window";
  weir::SessionHandle session(*model_, options);
  weir::SessionHandle plain(*model_, Options());
  const std::vector<std::int32_t> ids = model_->Encode("the man and the sea and the boat", false);
  std::vector<float> nll(ids.size(), -1), parts(ids.size(), -1);
  EXPECT_EQ(weir_session_score(plain.get(), ids.data(), ids.size(), 0, nll.data()), WEIR_INVALID_ARGUMENT);
  ASSERT_EQ(weir_session_set_time(session.get(), 1500), WEIR_OK);
  EXPECT_EQ(weir_session_set_time(session.get(), -1), WEIR_INVALID_ARGUMENT);
  ASSERT_EQ(weir_session_score(session.get(), ids.data(), ids.size(), 0, nll.data()), WEIR_OK) << weir_last_error();
  EXPECT_EQ(nll[0], 0);
  for (size_t i = 1; i < nll.size(); ++i) EXPECT_GT(nll[i], 0) << i;
  // Against the logits before a token.
  weir::SessionHandle other(*model_, options);
  other.Append(std::vector<std::int32_t>(ids.begin(), ids.end() - 1));
  const float* logits = nullptr;
  size_t n = 0;
  ASSERT_EQ(weir_session_logits(other.get(), &logits, &n), WEIR_OK);
  double sum = 0;
  for (size_t i = 0; i < n; ++i) sum += std::exp(static_cast<double>(logits[i]));
  EXPECT_NEAR(std::log(sum) - static_cast<double>(logits[ids.back()]), static_cast<double>(nll.back()), 1e-3);

  const weir_slot* slots = nullptr;
  ASSERT_EQ(weir_session_slots(session.get(), 0, &slots, &n), WEIR_OK);
  ASSERT_EQ(n, ids.size());
  for (size_t i = 0; i < n; ++i) {
    EXPECT_EQ(slots[i].token_id, ids[i]);
    EXPECT_EQ(slots[i].seq, static_cast<int64_t>(i));
    EXPECT_EQ(slots[i].t_ms, 1500);
  }
  EXPECT_EQ(weir_session_slots(session.get(), 1, &slots, &n), WEIR_INVALID_ARGUMENT);
  EXPECT_EQ(weir_abi(), WEIR_ABI);
  EXPECT_EQ(weir_session_describe(nullptr, nullptr), WEIR_INVALID_ARGUMENT);
  EXPECT_EQ(weir_session_slots(nullptr, 0, &slots, &n), WEIR_INVALID_ARGUMENT);
}

TEST_F(AnswersTest, KeysAndValuesHaveTheTypeThatWasAskedFor) {
  weir_session_options options = Options();
  weir::SessionHandle half(*model_, options);
  options.k_type = options.v_type = "f32";
  weir::SessionHandle whole(*model_, options);
  EXPECT_GT(whole.counters().bytes, half.counters().bytes);
  options.v_type = "q3_0";
  weir_session* session = nullptr;
  EXPECT_EQ(weir_session_open(model_->get(), &options, &session), WEIR_INVALID_ARGUMENT);
}

TEST_F(AnswersTest, ATraceIsAFileOfItsOwn) {
  const std::string path = ::testing::TempDir() + "capi_trace_" + std::to_string(getpid()) + ".jsonl";
  const auto contents = [&] {
    std::ifstream file(path);
    return (std::ostringstream() << file.rdbuf()).str();
  };
  {
    weir::SessionHandle session(*model_, Options());
    ASSERT_EQ(weir_session_trace(session.get(), path.c_str()), WEIR_OK) << weir_last_error();
    EXPECT_EQ(weir_session_trace(session.get(), path.c_str()), WEIR_INVALID_ARGUMENT);
    for (int i = 0; i < 40; ++i) session.Say("the sea and the river, ");
    ASSERT_EQ(weir_session_trace(session.get(), nullptr), WEIR_OK);
    EXPECT_EQ(weir_session_trace(session.get(), nullptr), WEIR_OK);  // there is none
    EXPECT_NE(contents().find("\"type\":\"select\""), std::string::npos);
    EXPECT_NE(contents().find("\"type\":\"end\",\"seen\":" + std::to_string(session.counters().seen)),
              std::string::npos);
    EXPECT_EQ(weir_session_trace(session.get(), "/there/is/no/folder/t"), WEIR_IO);
    ASSERT_EQ(weir_session_trace(session.get(), path.c_str()), WEIR_OK);
    session.Say("a boat");
  }  // closing ends it
  EXPECT_NE(contents().find("\"type\":\"end\""), std::string::npos);
  std::filesystem::remove(path);
}

// A callback may look at its session, and may not change it.
TEST_F(AnswersTest, ACallbackCannotEndTheAnswerThatCallsIt) {
  weir::SessionHandle session(*model_, Options());
  session.Say("the man and the sea");
  struct Seen {
    weir_session* session;
    int n_calls = 0, n_refused = 0;
    bool looked = false;
  } seen{session.get()};
  const auto meddle = [](const char* text, size_t n, void* to) {
    Seen& mine = *static_cast<Seen*>(to);
    ++mine.n_calls;
    const char* next = nullptr;
    size_t n_next = 0;
    int more = 0;
    weir_session* fork = nullptr;
    mine.n_refused += weir_session_end_answer(mine.session, nullptr, nullptr) == WEIR_INVALID_ARGUMENT;
    mine.n_refused += weir_session_next(mine.session, &next, &n_next, &more) == WEIR_INVALID_ARGUMENT;
    mine.n_refused += weir_session_reset(mine.session) == WEIR_INVALID_ARGUMENT;
    mine.n_refused += weir_session_fork(mine.session, nullptr, &fork) == WEIR_INVALID_ARGUMENT;
    weir_counters counters = WEIR_COUNTERS_INIT;
    mine.looked = weir_session_counters(mine.session, &counters) == WEIR_OK && n > 0 && text != nullptr;
    return 0;
  };
  const weir_generate_options writing = Writing(20);
  size_t n_tokens = 0;
  ASSERT_EQ(weir_session_ask(session.get(), "what?", 5, &writing, meddle, &seen, &n_tokens, nullptr), WEIR_OK);
  EXPECT_EQ(n_tokens, 20u);
  EXPECT_GT(seen.n_calls, 3);
  EXPECT_EQ(seen.n_refused, 4 * seen.n_calls);
  EXPECT_TRUE(seen.looked);
  EXPECT_EQ(weir_session_reset(session.get()), WEIR_OK);
}

// Whoever closes the model first takes nothing from its sessions.
TEST_F(AnswersTest, AModelMayBeClosedBeforeItsSessions) {
  weir_model* model = nullptr;
  const std::string path = weir::SourceDir() + "/tests/golden/models/llama.gguf";
  ASSERT_EQ(weir_model_open(path.c_str(), nullptr, &model), WEIR_OK);
  weir_session *session = nullptr, *fork = nullptr;
  const weir_session_options options = Options();
  ASSERT_EQ(weir_session_open(model, &options, &session), WEIR_OK);
  weir_model_close(model);
  ASSERT_EQ(weir_session_append_text(session, "the man", 7, 0), WEIR_OK);
  ASSERT_EQ(weir_session_fork(session, nullptr, &fork), WEIR_OK);
  weir_session_close(session);
  ASSERT_EQ(weir_session_append_text(fork, " and the sea", 12, 0), WEIR_OK);
  weir_session_close(fork);
}

// Stream time goes on from where a session was saved.
TEST_F(AnswersTest, ARestoredSessionHasItsTime) {
  weir::SessionHandle session(*model_, Options());
  weir::Check(weir_session_set_time(session.get(), 100000));
  session.Say("the man and the sea");
  size_t n = 0;
  weir::Check(weir_session_save(session.get(), nullptr, 0, &n));
  std::vector<uint8_t> saved(n);
  weir::Check(weir_session_save(session.get(), saved.data(), n, &n));
  weir::Check(weir_session_set_time(session.get(), 5000000));
  weir::Check(weir_session_restore(session.get(), saved.data(), n));
  EXPECT_EQ(weir_session_set_time(session.get(), 200000), WEIR_OK) << weir_last_error();
}

}  // namespace
