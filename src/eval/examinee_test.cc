// SPDX-License-Identifier: Apache-2.0
// Suites on a tiny model: every policy gets the same questions, questions aside leave no trace, cells have the right
// numbers.
#include "eval/examinee.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <map>
#include <memory>
#include <numeric>
#include <optional>
#include <set>

#include "chat/probe.h"
#include "eval/fact_source.h"
#include "eval/lines_suite.h"
#include "eval/passkey.h"
#include "eval/stream_facts.h"
#include "eval/suite.h"
#include "eval/words.h"
#include "recall/terms.h"
#include "support/loaded.h"

namespace weir {
namespace {

class ExamineeTest : public testing::TinyLlamaTest {
 protected:
  void SetUp() override {
    session_ = MakeSession("streaming_llm", 256);
    ASSERT_NE(session_, nullptr);
  }
  std::unique_ptr<Session> MakeSession(const char* policy, int32_t pot) {
    SessionOptions options;
    auto spec = ParsePolicySpec(policy);
    EXPECT_TRUE(spec.ok());
    if (!spec.ok()) return nullptr;
    options.policy = *spec;
    options.pot_slots = pot;
    options.nll = true;
    auto session = Session::Make(model_->model(), model_->backend(), options);
    EXPECT_TRUE(session.ok()) << session.status().message();
    return session.ok() ? std::move(*session) : nullptr;
  }
  Examinee Make() { return Examinee(*session_, tokenizer(), nullptr, true, nullptr); }
  SuiteHooks Hooks() {
    SuiteHooks hooks;
    hooks.report = [this](const Cell& cell) { cells_.push_back(cell); };
    hooks.progress = [this](int64_t done, int64_t total) {
      EXPECT_EQ(done, ++done_);
      EXPECT_LE(done, total);
    };
    return hooks;
  }

  std::unique_ptr<Session> session_;
  std::vector<Cell> cells_;
  int64_t done_ = 0;
};

Question SeaQuestion() {
  Question question;
  question.completion = "\nthe man and the";
  question.gold = " sea";
  question.n_answer = 6;
  return question;
}

// A catalyst with the question mark behaves as if it had contained the question from the beginning.
TEST_F(ExamineeTest, WhatIsExpectedStandsInTheProbe) {
  const auto state_after = [&](const std::string& catalyst, const std::optional<Question>& expected, int32_t n_more) {
    SessionOptions options;
    auto spec = ParsePolicySpec("infinipot:alpha=0,catalyst=\"" + catalyst + "\"");
    EXPECT_TRUE(spec.ok());
    options.policy = *spec;
    options.pot_slots = 64;
    EXPECT_TRUE(PrepareProbe(tokenizer(), nullptr, "", &options).ok());
    options.max_probe = static_cast<int32_t>(options.probe.size()) + n_more;
    auto session = Session::Make(model_->model(), model_->backend(), options);
    EXPECT_TRUE(session.ok()) << session.status().message();
    Examinee examinee(**session, tokenizer(), nullptr, false, nullptr);
    EXPECT_TRUE(examinee.Begin().ok());
    if (expected.has_value()) EXPECT_TRUE(examinee.Expect(*expected).ok());
    std::string text;
    for (int i = 0; i < 40; ++i) text += "the man and the sea, " + std::to_string(i);
    EXPECT_TRUE(examinee.Read(text).ok());
    EXPECT_TRUE(examinee.Mark().ok());
    EXPECT_GT((*session)->counters().selections, 0);
    std::vector<uint8_t> state;
    EXPECT_TRUE((*session)->Save(&state).ok());
    return state;
  };
  const Question question = SeaQuestion();
  const int32_t n_question = static_cast<int32_t>(Make().Encode(question.completion).size());
  const auto expected = state_after("say {question}", question, n_question),
             written = state_after("say " + question.completion, std::nullopt, 0),
             unexpected = state_after("say {question}", std::nullopt, n_question);
  EXPECT_EQ(expected, written);
  EXPECT_NE(expected, unexpected);
  // Policies that do not name it are not changed by it.
  EXPECT_EQ(state_after("say", question, 0), state_after("say", std::nullopt, 0));
  // A question without room loses its beginning, in the extreme all of it.
  EXPECT_EQ(state_after("say {question}", question, 0), state_after("say {question}", std::nullopt, 0));
}

TEST_F(ExamineeTest, AskingAsideLeavesNoTrace) {
  Examinee examinee = Make();
  ASSERT_TRUE(examinee.Begin().ok());
  ASSERT_TRUE(examinee.Read("the man and the sea, the man and the sea").ok());
  ASSERT_TRUE(examinee.Mark().ok());
  const int64_t seen = session_->counters().seen;
  EXPECT_EQ(seen, examinee.n_tokens());
  const auto first = examinee.AskAside(SeaQuestion()), second = examinee.AskAside(SeaQuestion());
  ASSERT_TRUE(first.ok() && second.ok());
  EXPECT_EQ(first->text, second->text);
  ASSERT_TRUE(first->has_gold_nll);
  EXPECT_EQ(first->gold_nll, second->gold_nll);
  EXPECT_GT(first->gold_nll, 0);
  EXPECT_EQ(session_->counters().seen, seen);
  // Asked in the stream, the answer is the same and stays.
  const auto kept = examinee.Ask(SeaQuestion());
  ASSERT_TRUE(kept.ok());
  EXPECT_EQ(kept->text, first->text);
  EXPECT_GT(session_->counters().seen, seen);
  EXPECT_GT(examinee.cost().answer_tokens, 0);
}

// The likelihood of the right answer, measured in one piece without any harness.
TEST_F(ExamineeTest, GoldLikelihoodIsTheModels) {
  Examinee examinee = Make();
  ASSERT_TRUE(examinee.Begin().ok());
  ASSERT_TRUE(examinee.Read("the man and the sea").ok());
  const auto reply = examinee.MarkAndAsk(SeaQuestion());
  ASSERT_TRUE(reply.ok() && reply->has_gold_nll);
  auto other = MakeSession("full", 256);
  ASSERT_NE(other, nullptr);
  std::vector<int32_t> tokens = tokenizer().EncodePieces({}, true);
  for (const char* text : {"the man and the sea", "\nthe man and the sea"}) {
    const std::vector<int32_t> more = examinee.Encode(text);
    tokens.insert(tokens.end(), more.begin(), more.end());
  }
  std::vector<float> nll(tokens.size());
  Session::AppendOptions append;
  append.nll = nll.data();
  ASSERT_TRUE(other->Append(tokens, append).ok());
  const std::vector<int32_t> asked = examinee.Encode("\nthe man and the"),
                             whole = examinee.Encode("\nthe man and the sea");
  ASSERT_TRUE(std::equal(asked.begin(), asked.end(), whole.begin()));
  const size_t n_gold = whole.size() - asked.size();
  double sum = 0;
  for (size_t i = tokens.size() - n_gold; i < tokens.size(); ++i) sum += nll[i];
  EXPECT_NEAR(reply->gold_nll, sum / static_cast<double>(n_gold), 2e-3 * std::max(1.0, reply->gold_nll));
}

TEST_F(ExamineeTest, ATemplateEndsTheUsersTurn) {
  auto chat = ChatTemplate::FromName("chatml", "", "");
  ASSERT_TRUE(chat.ok());
  Examinee examinee(*session_, tokenizer(), &*chat, true, nullptr);
  ASSERT_TRUE(examinee.Begin().ok());
  EXPECT_GT(examinee.n_tokens(), 0);
  const auto reply = examinee.MarkAndAsk(SeaQuestion());
  ASSERT_TRUE(reply.ok()) << reply.status().message();
  EXPECT_FALSE(reply->has_gold_nll);
}

// Rounds of one conversation: after an answer comes the end of its turn and the head of the user's next one.
TEST_F(ExamineeTest, AnAnswerInAConversationEndsItsTurn) {
  auto chat = ChatTemplate::FromName("chatml", "", "");
  ASSERT_TRUE(chat.ok());
  const auto n_of = [&](const std::string& text) {
    return std::ssize(tokenizer().EncodePieces(std::vector<TextPiece>{{text, true}}, false));
  };
  Examinee examinee(*session_, tokenizer(), &*chat, false, nullptr);
  ASSERT_TRUE(examinee.Begin().ok());
  ASSERT_TRUE(examinee.Ask(SeaQuestion()).ok());
  // The end token is read where the model ended its answer by itself.
  const int64_t n_waiting = examinee.n_tokens() - session_->counters().seen,
                n_cut = n_of("<|im_end|>\n<|im_start|>user\n"), n_ended = n_of("\n<|im_start|>user\n");
  EXPECT_TRUE(n_waiting == n_cut || n_waiting == n_ended) << n_waiting << ", not " << n_cut << " or " << n_ended;
}

// The text before a late key is read once; every trial equals one that reads its whole stream.
TEST_F(ExamineeTest, PasskeysShareWhatComesBeforeThem) {
  session_ = MakeSession("weir", 96);
  Examinee examinee = Make();
  PasskeyOptions options;
  options.key_at = {4200};
  options.lengths = {4400, 4600};
  options.n = 3;
  options.n_answer = 2;
  ASSERT_TRUE(RunPasskeyGrowing(examinee, options, Hooks()).ok());
  ASSERT_EQ(cells_.size(), 2u);
  double sums[2] = {};
  for (uint64_t t = 0; t < 3; ++t) {
    ASSERT_TRUE(examinee.Begin().ok());
    const int64_t begin = examinee.n_tokens();
    const PasskeyStream stream(examinee, TrialRng(options.seed, t << 16).Next());
    Question question = stream.question();
    question.n_answer = options.n_answer;
    int64_t at = 0;
    for (size_t l = 0; l < 2; ++l) {
      const int64_t end = options.lengths[l] - begin;
      for (; at < end; at = std::min<int64_t>(at + 4096, end)) {
        ASSERT_TRUE(examinee.ReadTokens(stream.Tokens(4200, at, std::min<int64_t>(at + 4096, end))).ok());
      }
      const auto reply = examinee.MarkAndAsk(question);
      ASSERT_TRUE(reply.ok()) << reply.status().message();
      sums[l] += reply->gold_nll;
    }
  }
  for (size_t l = 0; l < 2; ++l) EXPECT_NEAR(cells_[l].gold_nll.mean(), sums[l] / 3, 1e-12);
}

TEST_F(ExamineeTest, LinesCountTheirTrials) {
  Examinee examinee = Make();
  LinesOptions options;
  options.distances = {2, 9};
  options.n = 3;
  options.every = 4;
  options.n_answer = 3;
  for (const bool carry : {false, true}) {
    options.carry = carry;
    cells_.clear();
    done_ = 0;
    const Status status = RunLinesStream(examinee, options, Hooks());
    ASSERT_TRUE(status.ok()) << status.message();
    ASSERT_EQ(cells_.size(), 2u);
    EXPECT_EQ(done_, 6);
    for (const Cell& cell : cells_) {
      EXPECT_EQ(cell.score.n(), 3);
      EXPECT_EQ(cell.gold_nll.n(), carry ? 0 : 3);
    }
    EXPECT_GT(cells_[1].tokens_back.mean(), 2 * cells_[0].tokens_back.mean());
  }
}

// In rounds that stay, the line 10 back and the one 20 back a round later are the same: another is asked for.
TEST_F(ExamineeTest, CarriedLinesAreAskedForOnce) {
  Examinee examinee = Make();
  LinesOptions options;
  options.n = 3;
  options.n_answer = 3;
  options.carry = true;
  std::vector<double> back;
  for (const int32_t distance : {20, 21}) {
    options.distances = {10, distance, 40};
    cells_.clear();
    done_ = 0;
    ASSERT_TRUE(RunLinesStream(examinee, options, Hooks()).ok());
    ASSERT_EQ(cells_.size(), 3u);
    back.push_back(cells_[1].tokens_back.mean());
  }
  EXPECT_EQ(back[0], back[1]);
}

// A round's prompt is what waits and the question, in one piece; a question of its own comes after what waits.
TEST_F(ExamineeTest, ARoundIsOnePrompt) {
  const std::string text = "the man and the sea, the man and the boat, the man and the fish";
  const auto state_after = [&](bool round) {
    // Votes of the prompt's own rows: they say what it was.
    session_ = MakeSession("inf_mllm:votes=own", 256);
    Examinee examinee = Make();
    EXPECT_TRUE(examinee.Begin().ok());
    EXPECT_TRUE(examinee.Read(text).ok());
    const auto reply = round ? examinee.AskRound(SeaQuestion()) : examinee.Ask(SeaQuestion());
    EXPECT_TRUE(reply.ok());
    const std::span<const float> scores = session_->pot().scores(0);
    return std::make_pair(session_->n_seen(), std::accumulate(scores.begin(), scores.end(), 0.0));
  };
  const auto apart = state_after(false), round = state_after(true);
  EXPECT_EQ(apart.first, round.first);
  const auto n_text = std::ssize(Make().Encode(text)), n_asked = std::ssize(Make().Encode(SeaQuestion().completion));
  EXPECT_NEAR(apart.second, static_cast<double>(n_asked), 1e-3);
  EXPECT_NEAR(round.second, static_cast<double>(n_asked + n_text), 1e-3);
}

TEST_F(ExamineeTest, APotThatMayNotShrinkKeepsWhatWasAnswered) {
  session_ = MakeSession("full", 256);
  Examinee examinee = Make();
  LinesOptions options;
  options.distances = {1};
  options.n = 1000;
  options.every = 1;
  const Status status = RunLinesStream(examinee, options, Hooks());
  EXPECT_EQ(status.code(), StatusCode::kOverBudget) << status.message();
  ASSERT_EQ(cells_.size(), 1u);
  EXPECT_GT(cells_[0].score.n(), 0);
  EXPECT_LT(cells_[0].score.n(), 1000);
}

TEST_F(ExamineeTest, PasskeyLengthsAreExact) {
  Examinee examinee = Make();
  ASSERT_TRUE(examinee.Begin().ok());
  const PasskeyStream stream(examinee, 7);
  EXPECT_EQ(stream.key(), 35029);
  const auto whole = stream.Tokens(100, 0, 1000);
  ASSERT_EQ(whole.size(), 1000u);
  auto joined = stream.Tokens(100, 0, 333);
  const auto rest = stream.Tokens(100, 333, 1000);
  joined.insert(joined.end(), rest.begin(), rest.end());
  EXPECT_EQ(joined, whole);
  const std::string text = tokenizer().Decode(whole);
  EXPECT_NE(text.find(std::to_string(stream.key())), std::string::npos) << text;

  PasskeyOptions options;
  options.lengths = {300, 600};
  options.key_at = {10, 400};
  options.depths = {0, 1};
  options.n = 2;
  options.n_answer = 2;
  ASSERT_TRUE(RunPasskeyGrowing(examinee, options, Hooks()).ok());
  // The key at 400 tokens has not been read at 300.
  ASSERT_EQ(cells_.size(), 3u);
  std::set<std::pair<double, double>> found;
  for (const Cell& cell : cells_) {
    EXPECT_EQ(cell.score.n(), 2);
    found.insert({cell.numbers[0].second, cell.numbers[1].second});
  }
  EXPECT_EQ(found, (std::set<std::pair<double, double>>{{10, 300}, {10, 600}, {400, 600}}));

  cells_.clear();
  done_ = 0;
  ASSERT_TRUE(RunPasskeyGrid(examinee, options, Hooks()).ok());
  ASSERT_EQ(cells_.size(), 4u);
  EXPECT_EQ(cells_[1].tokens_back.mean(), 0);
  EXPECT_GT(cells_[2].tokens_back.mean(), cells_[0].tokens_back.mean() + 299);
}

TEST_F(ExamineeTest, StreamQaAsksAtItsDistances) {
  Examinee examinee = Make();
  StreamQaOptions options;
  options.distances = {64, 400};
  options.gap_tokens = 64;
  options.every_tokens = 100;
  options.n = 5;
  options.n_answer = 2;
  const Status status = RunStreamQa(examinee, options, Hooks());
  ASSERT_TRUE(status.ok()) << status.message();
  ASSERT_EQ(cells_.size(), 3u);
  EXPECT_EQ(done_, 15);
  for (const Cell& cell : cells_) EXPECT_EQ(cell.score.n(), 5);
  // Half a gap and half a sentence of prose away at most.
  EXPECT_NEAR(cells_[1].tokens_back.mean(), 64, 64);
  EXPECT_NEAR(cells_[2].tokens_back.mean(), 400, 64);
  options.distances = {FactSource::MaxSubjects(FactPool::kLarge) * 64};
  EXPECT_EQ(RunStreamQa(examinee, options, Hooks()).code(), StatusCode::kInvalidArgument);
}

TEST_F(ExamineeTest, CarriedFactsAreAskedForOnce) {
  Examinee examinee = Make();
  StreamQaOptions options;
  options.distances = {64, 400};
  options.gap_tokens = 64;
  options.every_tokens = 200;
  options.n = 5;
  options.n_answer = 2;
  options.carry = true;
  std::set<std::string> asked;
  int n_asked = 0;
  options.log.asked = [&](const Question& question, std::string_view, int64_t) {
    asked.insert(question.completion);
    ++n_asked;
  };
  const Status status = RunStreamQa(examinee, options, Hooks());
  ASSERT_TRUE(status.ok()) << status.message();
  ASSERT_EQ(cells_.size(), 3u);
  for (const Cell& cell : cells_) {
    EXPECT_EQ(cell.score.n(), 5);
    EXPECT_EQ(cell.gold_nll.n(), 0);
  }
  EXPECT_EQ(n_asked, 15);
  EXPECT_EQ(asked.size(), 15u);
  EXPECT_NEAR(cells_[2].tokens_back.mean(), 400, 128);
  options.untold = true;
  EXPECT_EQ(RunStreamQa(examinee, options, Hooks()).code(), StatusCode::kInvalidArgument);
  options.untold = false;
  options.every_tokens = 127;
  EXPECT_EQ(RunStreamQa(examinee, options, Hooks()).code(), StatusCode::kInvalidArgument);
}

// Everything that was read and asked is in the log, and the spans of a question are where its fact is.
TEST_F(ExamineeTest, StreamQaAsksForSetsAtTheEnd) {
  Examinee examinee = Make();
  StreamQaOptions options;
  options.distances = {24576};
  options.gap_tokens = 16;
  options.every_tokens = 64;
  options.n = 2;
  options.n_sets = 3;
  options.n_answer = 2;
  std::string text;
  std::map<std::string, std::vector<Question>> asked;
  options.log.read = [&](std::string_view more) { text += more; };
  options.log.asked = [&](const Question& question, std::string_view kind, int64_t) {
    asked[std::string(kind)].push_back(question);
  };
  const Status status = RunStreamQa(examinee, options, Hooks());
  ASSERT_TRUE(status.ok()) << status.message();
  ASSERT_EQ(cells_.size(), 4u);
  EXPECT_EQ(cells_[2].score.n(), 12);
  EXPECT_EQ(cells_[3].score.n(), 3);
  ASSERT_EQ(asked["needle"].size(), 12u);
  ASSERT_EQ(asked["needles"].size(), 3u);
  for (const char* kind : {"memory", "needle"}) {
    for (const Question& question : asked[kind]) {
      const SeqSpan span = question.where->at(0);
      const std::string fact = question.completion.substr(2) + question.gold + ".";
      EXPECT_NE(text.find(fact), std::string::npos) << fact;
      EXPECT_GT(span.seq_end, span.seq);
    }
  }
  for (const Question& question : asked["needles"]) {
    ASSERT_EQ(question.where->size(), 4u);
    for (size_t i = 1; i < 4; ++i) EXPECT_GT((*question.where)[i].seq, (*question.where)[i - 1].seq_end + 64);
  }
  // So many people are not in so short a stream.
  options.n_sets = 100;
  options.distances = {256};
  EXPECT_EQ(RunStreamQa(examinee, options, Hooks()).code(), StatusCode::kInvalidArgument);
}

TEST(FactSourceTest, SubjectsAreDistinct) {
  for (const FactPool pool : {FactPool::kUsual, FactPool::kLarge, FactPool::kParaphrase}) {
    FactSource source(1, 0, pool), again(1, 0, pool);
    std::set<std::string> subjects;
    for (int64_t i = 0; i < FactSource::MaxSubjects(pool); ++i) {
      const Fact fact = source.Next();
      EXPECT_EQ(fact.text(), again.Next().text());
      EXPECT_GE(fact.value, 10000);
      EXPECT_LE(fact.value, 99999);
      subjects.insert(fact.subject);
    }
    EXPECT_EQ(static_cast<int64_t>(subjects.size()), FactSource::MaxSubjects(pool));
  }
  // A million tokens with a fact every 256, and questions about some that were never told.
  EXPECT_GT(FactSource::MaxSubjects(FactPool::kLarge), (1 << 20) / 256 + 64);
}

TEST(FactSourceTest, AParaphraseSharesNoWord) {
  FactSource source(1, 0, FactPool::kParaphrase);
  std::set<std::string> questions, people;
  for (int64_t i = 0; i < FactSource::MaxSubjects(FactPool::kParaphrase); ++i) {
    const Fact fact = source.Next();
    const std::string other = ParaphrasedSubject(fact);
    const std::vector<Term> said = QueryTerms(fact.subject);
    EXPECT_GE(said.size(), 3u) << fact.subject;
    for (const Term term : QueryTerms(other)) EXPECT_EQ(std::ranges::count(said, term), 0) << fact.subject << other;
    questions.insert(other);
    people.insert(fact.subject.substr(4, fact.subject.find("'s ") - 4));
  }
  EXPECT_EQ(static_cast<int64_t>(questions.size()), FactSource::MaxSubjects(FactPool::kParaphrase));
  // Nobody's other name is somebody else's.
  for (const Synonym& one : PeopleOtherwise()) {
    EXPECT_TRUE(people.contains(std::string(one.word))) << one.word;
    EXPECT_FALSE(people.contains(std::string(one.other))) << one.other;
    EXPECT_EQ(std::ranges::count(People(), one.word), 1) << one.word;
    EXPECT_EQ(std::ranges::count(People(), one.other), 0) << one.other;
  }
  for (size_t i = 0; i < NumberedThingsOtherwise().size(); ++i) {
    EXPECT_EQ(NumberedThingsOtherwise()[i].word, NumberedThings()[i]);
  }
}

TEST(RunningMeanTest, MeanAndError) {
  RunningMean mean;
  for (const double x : {1.0, 0.0, 1.0, 1.0}) mean.Add(x);
  EXPECT_DOUBLE_EQ(mean.mean(), 0.75);
  // Sample variance 0.25, over four.
  EXPECT_DOUBLE_EQ(mean.std_error(), 0.25);
}

}  // namespace
}  // namespace weir
