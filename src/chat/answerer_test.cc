// SPDX-License-Identifier: Apache-2.0
// Answers step by step: stop conditions, the text released, and sampling and reading as separate steps.
#include "chat/answerer.h"

#include <gtest/gtest.h>

#include <cmath>
#include <set>

#include "chat/generate.h"
#include "engine/step_batch.h"
#include "support/loaded.h"
#include "text/forms/form.h"

namespace weir {
namespace {

class AnswererTest : public testing::TinyLlamaTest {
 protected:
  // A session that has read a text.
  std::unique_ptr<Session> Asked(int32_t pot = 256, const char* policy = "full",
                                 const std::string& text = "the man and the sea") {
    SessionOptions options;
    options.policy = std::move(ParsePolicySpec(policy)).value();
    options.pot_slots = pot;
    auto session = Session::Make(model_->model(), model_->backend(), options);
    EXPECT_TRUE(session.ok()) << session.status().message();
    EXPECT_TRUE((*session)->Append(tokenizer().EncodePieces(std::vector<TextPiece>{{text, false}}, true)).ok());
    return std::move(*session);
  }
  static Sampler Greedy() {
    SamplerOptions options;
    options.temperature = 0;
    return std::move(Sampler::Create(options)).value();
  }
  // `n` tokens, ended only by their number.
  GenerateResult Plain(int64_t n) {
    const auto session = Asked();
    Sampler sampler = Greedy();
    GenerateOptions options;
    options.max_tokens = n;
    options.ignore_eos = true;
    return std::move(Generate(*session, sampler, tokenizer(), options, nullptr)).value();
  }
};

TEST_F(AnswererTest, StepsGiveWhatGenerateGives) {
  const GenerateResult plain = Plain(12);
  EXPECT_EQ(plain.reason, StopReason::kMaxTokens);
  const auto session = Asked();
  Sampler sampler = Greedy();
  AnswerOptions options;
  options.max_tokens = 12;
  options.ignore_eos = true;
  Answerer answerer(*session, sampler, tokenizer(), options);
  const int64_t n_before = session->n_seen();
  std::vector<int32_t> tokens;
  std::string text;
  while (!answerer.done()) {
    ASSERT_TRUE(answerer.Step().ok());
    tokens.push_back(answerer.token());
    text += answerer.TakeText();
  }
  answerer.Finish();
  text += answerer.TakeText();
  EXPECT_EQ(tokens, plain.tokens);
  EXPECT_EQ(text, plain.text);
  EXPECT_EQ(answerer.n_drawn(), 12);
  EXPECT_EQ(answerer.reason(), StopReason::kMaxTokens);
  EXPECT_FALSE(answerer.ended());
  EXPECT_EQ(session->n_seen(), n_before + 12);
}

TEST_F(AnswererTest, AFormIsKeptAtAnyTemperature) {
  const auto vocab = FormVocab::Make(tokenizer());
  FormSpec spec;
  spec.text =
      R"({"type":"object","properties":{"name":{"type":"string","maxLength":12},"n":{"type":"integer","maximum":9,
      "minimum":0},"kind":{"enum":["a","b"]}},"required":["name","n","kind"]})";
  const auto form = MakeForm(spec, vocab);
  ASSERT_TRUE(form.ok()) << form.status().message();
  std::set<std::string> texts;
  for (uint64_t seed = 0; seed < 12; ++seed) {
    const auto session = Asked();
    SamplerOptions hot;
    hot.temperature = seed == 0 ? 0 : 3;
    hot.top_k = seed % 2 == 0 ? 0 : 40;
    hot.top_p = 1;
    hot.min_p = 0;
    hot.seed = seed;
    Sampler sampler = std::move(Sampler::Create(hot)).value();
    GenerateOptions options;
    options.form = *form;
    options.max_tokens = 200;
    options.ignore_eos = seed % 3 == 0;  // ends all the same, where nothing else may follow
    options.n_logprobs = seed % 4 == 0 ? 2 : -1;
    options.logits.frequency_penalty = seed % 5 == 0 ? 0.5f : 0;
    const auto result = Generate(*session, sampler, tokenizer(), options, nullptr);
    ASSERT_TRUE(result.ok()) << result.status().message();
    EXPECT_EQ(result->reason, StopReason::kEndOfGeneration);
    FormState state(*form);
    EXPECT_TRUE(state.AcceptText(result->text).ok() && state.CanEnd()) << result->text;
    EXPECT_TRUE(tokenizer().IsEndOfGeneration(result->tokens.back()));
    texts.insert(result->text);
  }
  EXPECT_GT(texts.size(), 6u);
  // Cut at its length, and said so.
  const auto session = Asked();
  Sampler sampler = Greedy();
  GenerateOptions options;
  options.form = *form;
  options.max_tokens = 3;
  const auto cut = Generate(*session, sampler, tokenizer(), options, nullptr);
  ASSERT_TRUE(cut.ok());
  EXPECT_EQ(cut->reason, StopReason::kMaxTokens);
}

TEST_F(AnswererTest, OfAllowedTokensTheSameIsDrawnAsIfThereWereNoOthers) {
  std::vector<float> logits(1000);
  for (size_t i = 0; i < logits.size(); ++i) logits[i] = static_cast<float>((i * 7919) % 257) / 16;
  std::vector<uint64_t> allowed(16, 0);
  std::vector<float> others = logits;
  for (size_t i = 0; i < logits.size(); ++i) {
    if (i % 3 == 1) {
      allowed[i / 64] |= uint64_t{1} << (i % 64);
    } else {
      others[i] = -1e30f;
    }
  }
  for (const int32_t top_k : {0, 1, 5, 40, 900}) {
    SamplerOptions options;
    options.top_k = top_k;
    options.temperature = 1.3f;
    options.repeat_penalty = top_k == 5 ? 1.4f : 1.0f;
    options.seed = 5;
    Sampler one = std::move(Sampler::Create(options)).value(), other = one;
    for (int i = 0; i < 40; ++i) {
      const auto drawn = DrawAllowed(one, logits, allowed);
      ASSERT_TRUE(drawn.ok());
      EXPECT_EQ(*drawn, other.Sample(others).value()) << top_k;
      one.Accept(*drawn);
      other.Accept(*drawn);
    }
  }
  Sampler sampler = Greedy();
  EXPECT_FALSE(DrawAllowed(sampler, logits, std::vector<uint64_t>(16, 0)).ok());
  logits[4] = NAN;
  EXPECT_EQ(DrawAllowed(sampler, logits, allowed).status().code(), StatusCode::kCorrupt);
}

TEST_F(AnswererTest, AStopTextEndsItBeforeTheText) {
  const std::string plain = Plain(12).text;
  ASSERT_GE(plain.size(), 8u);
  const size_t at = plain.size() / 2;
  const std::string stop = plain.substr(at, 2);
  const auto session = Asked();
  Sampler sampler = Greedy();
  GenerateOptions options;
  options.max_tokens = 12;
  options.ignore_eos = true;
  options.stop_texts = {stop};
  const auto result = Generate(*session, sampler, tokenizer(), options, nullptr);
  ASSERT_TRUE(result.ok());
  EXPECT_EQ(result->reason, StopReason::kStopText);
  EXPECT_EQ(result->text, plain.substr(0, plain.find(stop)));
}

TEST_F(AnswererTest, TheLastTokenIsReadOnlyWhereItIsWanted) {
  const auto session = Asked();
  Sampler sampler = Greedy();
  AnswerOptions options;
  options.max_tokens = 3;
  options.ignore_eos = true;
  options.read_last = false;
  Answerer answerer(*session, sampler, tokenizer(), options);
  const int64_t n_before = session->n_seen();
  while (!answerer.done()) ASSERT_TRUE(answerer.Step().ok());
  EXPECT_EQ(session->n_seen(), n_before + 2);
  options.max_tokens = 0;
  EXPECT_TRUE(Answerer(*session, sampler, tokenizer(), options).done());
}

TEST_F(AnswererTest, AFullPotEndsItAndIsNoError) {
  const auto reading = Asked();
  const auto session = Asked(static_cast<int32_t>(reading->n_seen()) + 2);
  Sampler sampler = Greedy();
  AnswerOptions options;
  options.ignore_eos = true;
  Answerer answerer(*session, sampler, tokenizer(), options);
  while (!answerer.done()) ASSERT_TRUE(answerer.Step().ok());
  EXPECT_EQ(answerer.reason(), StopReason::kPotFull);
  EXPECT_EQ(answerer.full().code(), StatusCode::kOverBudget);
  EXPECT_EQ(answerer.n_drawn(), 3);
}

TEST_F(AnswererTest, ItsCallerCanEndIt) {
  const auto session = Asked();
  Sampler sampler = Greedy();
  Answerer answerer(*session, sampler, tokenizer(), {});
  answerer.Stop();
  EXPECT_EQ(answerer.reason(), StopReason::kStopped);
  EXPECT_FALSE(answerer.ended());
  EXPECT_EQ(answerer.n_drawn(), 0);
}

TEST_F(AnswererTest, ABiasDecidesAndLikelihoodsAreTheModels) {
  const std::vector<int32_t> plain = Plain(1).tokens;
  const int32_t wanted = plain[0] == 20 ? 21 : 20;
  const auto session = Asked();
  Sampler sampler = Greedy();
  AnswerOptions options;
  options.max_tokens = 2;
  options.ignore_eos = true;
  options.logits.bias = {{wanted, 1e4f}};
  options.n_logprobs = 1;
  Answerer answerer(*session, sampler, tokenizer(), options);
  ASSERT_TRUE(answerer.Step().ok());
  EXPECT_EQ(answerer.token(), wanted);
  const std::vector<ScoredToken> scored = answerer.TakeScored();
  ASSERT_EQ(scored.size(), 1u);
  EXPECT_EQ(scored[0].id, wanted);
  ASSERT_EQ(scored[0].top.size(), 1u);
  EXPECT_EQ(scored[0].top[0].first, plain[0]);
  EXPECT_TRUE(answerer.TakeScored().empty());
}

// Two answers whose tokens share forward passes equal the answers generated alone.
TEST_F(AnswererTest, SeveralShareAForwardPass) {
  const char* const texts[] = {"the man and the sea", "the sea, the sea"};
  std::vector<std::string> alone, together(2);
  GenerateOptions options;
  options.max_tokens = 8;
  options.ignore_eos = true;
  for (const char* text : texts) {
    const auto session = Asked(256, "full", text);
    Sampler sampler = Greedy();
    alone.push_back(std::move(Generate(*session, sampler, tokenizer(), options, nullptr)).value().text);
  }
  const std::unique_ptr<Session> sessions[] = {Asked(256, "full", texts[0]), Asked(256, "full", texts[1])};
  Sampler samplers[] = {Greedy(), Greedy()};
  Answerer answerers[] = {{*sessions[0], samplers[0], tokenizer(), options},
                          {*sessions[1], samplers[1], tokenizer(), options}};
  Ledger ledger(int64_t{1} << 30);
  auto batch = StepBatch::Make(model_->model(), model_->backend(), StepBatch::ShapeFor(sessions[0]->plan(), 2), ledger);
  ASSERT_TRUE(batch.ok()) << batch.status().message();
  while (!answerers[0].done()) {
    StepBatch::Step steps[2];
    for (size_t i = 0; i < 2; ++i) {
      const auto reads = answerers[i].Draw();
      ASSERT_TRUE(reads.ok() && *reads);
      steps[i].session = sessions[i].get();
      steps[i].token = answerers[i].token();
    }
    (*batch)->Append(steps);
    for (size_t i = 0; i < 2; ++i) ASSERT_TRUE(answerers[i].Read(steps[i].status).ok());
  }
  EXPECT_GT((*batch)->n_shared(), 0);
  for (size_t i = 0; i < 2; ++i) {
    answerers[i].Finish();
    EXPECT_EQ(answerers[i].TakeText(), alone[i]);
  }
}

}  // namespace
}  // namespace weir
