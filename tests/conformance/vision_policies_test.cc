// SPDX-License-Identifier: Apache-2.0
// Policies that treat pictures apart: what they store at the end of a prompt and read at each step, against the
// independent reference (tools/golden/vl_policy.py) and in sessions over rows of embeddings.
#include <gtest/gtest.h>

#include <algorithm>
#include <fstream>
#include <memory>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "base/rng.h"
#include "engine/picture_parts.h"
#include "engine/session.h"
#include "support/build_paths.h"
#include "support/tiny.h"

namespace weir {
namespace {

using nlohmann::json;
using testing::Held;
using testing::LogitsOf;
using testing::RandomTokens;
using testing::Tiny;

struct Layers {
  std::vector<std::vector<SlotMeta>> slots;
  std::vector<std::vector<float>> scores;
  std::vector<SlotView> views;

  explicit Layers(const json& c) {
    const json& layers = c["layers"];
    slots.resize(layers.size());
    for (size_t l = 0; l < layers.size(); ++l) {
      for (const json& seq : layers[l]["seq"]) slots[l].emplace_back().seq = seq;
      for (const json& slot : layers[l]["pinned"]) slots[l][slot.get<size_t>()].pinned = true;
      for (const json& slot : layers[l]["visual"]) slots[l][slot.get<size_t>()].modality = Modality::kImage;
      scores.push_back(layers[l]["scores"].get<std::vector<float>>());
    }
    for (size_t l = 0; l < slots.size(); ++l) {
      SlotView view;
      view.group = view.layer = static_cast<int32_t>(l);
      view.n_layers = static_cast<int32_t>(slots.size());
      view.slots = slots[l];
      view.scores = scores[l];
      view.n_rows = 1;
      view.n_seen = c["n_seen"];
      view.n_seen_visual = c["n_seen_visual"];
      views.push_back(view);
    }
  }
};

class PromptEnd : public ::testing::TestWithParam<const char*> {};

TEST_P(PromptEnd, EqualsTheReference) {
  std::ifstream file(SourceDir() + "/tests/golden/prompt_end/" + GetParam() + ".jsonl");
  int n = 0;
  for (std::string line; std::getline(file, line); ++n) {
    const json c = json::parse(line);
    std::string text = c["policy"];
    for (const auto& [key, value] : c["options"].items()) {
      text += (text.find(':') == std::string::npos ? ":" : ",") + key + "=" + value.dump();
    }
    SCOPED_TRACE("line " + std::to_string(n + 1) + ": " + text);
    const auto policy = std::move(std::move(ParsePolicySpec(text)).value().Make()).value();
    Layers layers(c);
    std::vector<KeepSet> keeps(layers.views.size());
    policy->SelectAfterPrompt(layers.views, keeps);
    ASSERT_EQ(keeps, c["after_prompt"].get<std::vector<KeepSet>>());
    if (!c.contains("read")) continue;
    for (size_t l = 0; l < keeps.size(); ++l) {
      std::vector<SlotMeta> left;
      std::vector<float> scores;
      for (int32_t s : keeps[l]) {
        left.push_back(layers.slots[l][s]);
        scores.push_back(layers.scores[l][s]);
      }
      SlotView view = layers.views[l];
      view.slots = left;
      view.scores = scores;
      KeepSet read;
      policy->SelectRead(view, &read);
      EXPECT_EQ(read, c["read"][l].get<KeepSet>()) << "layer " << l;
    }
  }
  EXPECT_EQ(n, 25);
}

INSTANTIATE_TEST_SUITE_P(Reference, PromptEnd, ::testing::Values("a_vl", "fastv"));

constexpr int32_t kText = 5, kImage = 40, kQuestion = 9, kAnswer = 14;

class VisionPolicies : public ::testing::Test {
 protected:
  VisionPolicies()
      : tokens_(RandomTokens(400, tiny_.model->config().n_vocab)),
        rows_(static_cast<size_t>(kImage * tiny_.model->config().n_embd)) {
    Rng rng(5);
    for (float& v : rows_) v = static_cast<float>(rng.Uniform() * 2 - 1);
  }

  std::unique_ptr<Session> MakeSession(const std::string& policy, int32_t pot = 128) {
    SessionOptions options;
    options.policy = std::move(ParsePolicySpec(policy)).value();
    options.pot_slots = pot;
    options.k_type = options.v_type = DType::kF32;
    auto session = Session::Make(*tiny_.model, *tiny_.backend, options);
    EXPECT_TRUE(session.ok()) << session.status().message();
    return std::move(session).value();
  }
  // The system's words, a picture, a question.
  void Ask(Session& session) {
    Session::AppendOptions prompt;
    prompt.end_of_prompt = true;
    ASSERT_TRUE(session.Append({tokens_.data(), kText}).ok());
    ASSERT_TRUE(session.AppendEmbeddings(rows_, Modality::kImage, {}).ok());
    ASSERT_TRUE(session.Append({tokens_.data() + kText, kQuestion}, prompt).ok());
  }
  // Logits after each of n tokens of an answer.
  std::vector<std::vector<float>> Answer(Session& session, int32_t n = kAnswer, int32_t first = 0) {
    Session::AppendOptions answer;
    answer.generated = true;
    std::vector<std::vector<float>> out;
    for (int32_t i = first; i < first + n; ++i) {
      EXPECT_TRUE(session.Append({&tokens_[static_cast<size_t>(20 + i)], 1}, answer).ok());
      out.push_back(LogitsOf(session));
      EXPECT_EQ(session.ledger().peak_bytes(), session.plan().total_bytes);
    }
    return out;
  }
  std::vector<std::vector<float>> Run(const std::string& policy) {
    auto session = MakeSession(policy);
    Ask(*session);
    return Answer(*session);
  }
  static int64_t NumVisual(const Session& session, int32_t layer) {
    int64_t n = 0;
    for (const SlotMeta& slot : session.pot().meta(layer)) n += slot.modality != Modality::kText;
    return n;
  }

  Tiny tiny_{"llama"};
  const std::vector<int32_t> tokens_;
  std::vector<float> rows_;
};

TEST_F(VisionPolicies, AVlStoresASharePerLayer) {
  auto session = MakeSession("a_vl:S=0.45");
  Ask(*session);
  const int32_t n_layers = tiny_.model->config().n_layers;
  const auto held = Held(*session);
  for (int32_t layer = 0; layer < n_layers; ++layer) {
    EXPECT_EQ(NumVisual(*session, layer), 18) << "floor(0.45 * 40) in layer " << layer;
    EXPECT_EQ(std::ssize(held[layer]), kText + 18 + kQuestion) << "text stays";
  }
  EXPECT_NE(held[0], held[1]) << "layers rank for themselves";
  Answer(*session);
  EXPECT_EQ(NumVisual(*session, 0), 18);
}

TEST_F(VisionPolicies, AVlWithEverythingIsDense) {
  const auto dense = Run("window");
  EXPECT_EQ(Run("a_vl:S=1,C=1"), dense);
  EXPECT_EQ(Run("a_vl:S=1,K=1"), dense);
  EXPECT_NE(Run("a_vl:S=1,C=0.3,K=2"), dense);
  EXPECT_NE(Run("a_vl:S=0.45,C=0.45"), dense);
}

TEST_F(VisionPolicies, AVlReadsAllThatIsStoredEveryKthStep) {
  const auto all = Run("a_vl:K=0");
  EXPECT_EQ(Run("a_vl:K=1"), all);
  for (const int32_t k : {2, 3, 5}) {
    const auto some = Run("a_vl:K=" + std::to_string(k));
    EXPECT_NE(some[0], all[0]) << "the first step reads the core";
    EXPECT_EQ(Run("a_vl:C=0.45,K=" + std::to_string(k)), all) << "a core of all that is stored";
  }
}

// A step over the core is one whatever K is; the K-th reads all.
TEST_F(VisionPolicies, AVlReadsTheCoreUntilTheKthStep) {
  const auto core = Run("a_vl:C=0.2,K=1000");
  for (const size_t k : {2, 3, 5}) {
    const auto some = Run("a_vl:C=0.2,K=" + std::to_string(k));
    for (size_t i = 0; i + 1 < k; ++i) EXPECT_EQ(some[i], core[i]) << "K=" << k << ", step " << i;
    EXPECT_NE(some[k - 1], core[k - 1]) << "K=" << k;
  }
}

TEST_F(VisionPolicies, AResetSessionIsSavedAsANewOne) {
  auto session = MakeSession("a_vl:K=5");
  Ask(*session);
  Answer(*session, 3);
  session->Reset();
  std::vector<uint8_t> bytes, fresh;
  ASSERT_TRUE(session->Save(&bytes).ok());
  ASSERT_TRUE(MakeSession("a_vl:K=5")->Save(&fresh).ok());
  EXPECT_EQ(bytes, fresh);
}

// With positions of the stream a slot's key is the same wherever it lies: a step over the core of a large store equals
// one over a store that is the core.
TEST_F(VisionPolicies, AVlCoreStepsSeeTheCoreAlone) {
  const auto core = Run("a_vl:S=0.6,C=0.2,K=1000,positions=abs"), stored = Run("a_vl:S=0.2,C=0.2,positions=abs");
  ASSERT_EQ(core.size(), stored.size());
  for (size_t i = 0; i < core.size(); ++i) {
    EXPECT_LT(testing::RelativeError(core[i].data(), stored[i].data(), core[i].size()), 1e-5) << "token " << i;
  }
}

// What it ranks by: of pictures the newest row's attention, as TOVA's; of text the sum over rows, as H2O's.
TEST_F(VisionPolicies, AVlScoresPicturesByTheNewestRowAndTextByAll) {
  const auto expect_near = [](float got, double want) { EXPECT_NEAR(got, want, 1e-5 * std::max(1.0, want)); };
  auto session = MakeSession("a_vl:S=1"), tova = MakeSession("tova");
  Ask(*session);
  Ask(*tova);
  const PotShape& shape = session->pot().shape();
  for (int32_t layer = 0; layer < shape.n_layers; ++layer) {
    for (int32_t slot = kText; slot < kText + kImage; ++slot) {
      expect_near(session->pot().scores(layer)[slot], tova->pot().scores(layer)[slot]);
    }
    EXPECT_GT(session->pot().scores(layer)[0], 1.2f * tova->pot().scores(layer)[0])
        << "several rows saw the first token";
  }
  auto text = MakeSession("a_vl"), h2o = MakeSession("h2o");
  for (Session* s : {text.get(), h2o.get()}) {
    ASSERT_TRUE(s->Append({tokens_.data(), 30}).ok());
    Answer(*s, 6);
  }
  for (int32_t layer = 0; layer < shape.n_layers; ++layer) {
    for (int32_t slot = 0; slot < 36; ++slot) {
      double mean = 0;
      for (int32_t head = 0; head < shape.n_kv_heads; ++head)
        mean += h2o->pot().scores(layer * shape.n_kv_heads + head)[slot];
      expect_near(text->pot().scores(layer)[slot], mean / shape.n_kv_heads);
    }
  }
}

TEST_F(VisionPolicies, AVlTrimsTextBehindThePicture) {
  auto session = MakeSession("a_vl:T=0.5,text_min=2");
  Ask(*session);
  for (const auto& held : Held(*session)) {
    EXPECT_EQ(std::count_if(held.begin(), held.end(), [](int64_t seq) { return seq < kText; }), kText);
    EXPECT_EQ(std::count_if(held.begin(), held.end(), [](int64_t seq) { return seq >= kText + kImage; }), 5)
        << "round(9 / 2)";
  }
}

TEST_F(VisionPolicies, ASessionSavedBetweenTwoFullStepsContinuesWithTheSameBytes) {
  for (const char* policy : {"a_vl:K=4", "a_vl:K=4,T=0.5,text_min=0", "fastv:K=1"}) {
    for (const int32_t at : {1, 2, 3, 4, 6}) {
      auto session = MakeSession(policy), restored = MakeSession(policy);
      Ask(*session);
      Answer(*session, at);
      std::vector<uint8_t> bytes, again;
      ASSERT_TRUE(session->Save(&bytes).ok());
      ASSERT_TRUE(restored->Restore(bytes).ok());
      ASSERT_TRUE(restored->Save(&again).ok());
      EXPECT_EQ(again, bytes);
      EXPECT_EQ(Answer(*restored, kAnswer, at), Answer(*session, kAnswer, at)) << policy << " saved after " << at;
    }
  }
}

// Merging changes what is held, and not which tokens; a saved session has what was merged.
TEST_F(VisionPolicies, LookMMergesWhatItEvicts) {
  const auto watch = [&](const std::string& policy, std::vector<uint8_t>* saved) {
    auto session = MakeSession(policy, 72);
    for (int round = 0; round < 3; ++round) {
      Ask(*session);
      EXPECT_TRUE(session->Save(saved).ok());
      Answer(*session, 5);
    }
    EXPECT_EQ(session->ledger().peak_bytes(), session->plan().total_bytes);
    return std::pair(Held(*session), LogitsOf(*session));
  };
  std::vector<uint8_t> saved;
  const auto plain = watch("lookm", &saved);
  for (const char* merge : {"average", "pivot", "weighted"}) {
    const std::string policy = std::string("lookm:merge=") + merge;
    const auto merged = watch(policy, &saved);
    EXPECT_NE(merged.second, plain.second) << merge;
    EXPECT_EQ(watch(policy, &saved), merged) << merge;
    auto restored = MakeSession(policy, 72);
    ASSERT_TRUE(restored->Restore(saved).ok());
    EXPECT_EQ(Answer(*restored, 5).back(), merged.second) << merge;
  }
}

// Families put words around a picture's rows. They are read before its question and ask nothing: a picture that only
// they have seen stays whole when the question needs room.
TEST_F(VisionPolicies, WordsAroundAPictureDoNotVoteOnIt) {
  EncoderConfig config;
  config.n_embd = static_cast<int32_t>(tiny_.model->config().n_embd);
  config.words.tokens = {{1}, {2}};
  const std::vector<PicturePart> parts = {{.words = 0, .n_rows = kImage}, {.words = 1}};
  auto session = MakeSession("a_vl", 128);
  for (int round = 0; round < 6; ++round) {
    ASSERT_TRUE(AppendParts(config, parts, rows_, Modality::kVideo, *session, {}).ok());
    const int64_t end = session->n_seen() - 1, begin = end - kImage;
    const std::vector<int32_t> question(tokens_.begin(), tokens_.begin() + kQuestion);
    ASSERT_TRUE(session->BeginRound(question, kAnswer).ok());
    for (const auto& held : Held(*session)) {
      const auto is_new = [=](int64_t seq) { return seq >= begin && seq < end; };
      EXPECT_EQ(std::ranges::count_if(held, is_new), kImage) << "round " << round;
    }
    Session::AppendOptions prompt;
    prompt.end_of_prompt = true;
    ASSERT_TRUE(session->Append(question, prompt).ok());
    Answer(*session, 3);
  }
}

// Pictures and questions without end in a small pot.
TEST_F(VisionPolicies, StreamsOfPicturesStayWithinThePot) {
  for (const char* policy : {"a_vl", "a_vl:T=0.3,P=0.5,K=2", "fastv:K=1"}) {
    auto session = MakeSession(policy, 72);
    for (int round = 0; round < 12; ++round) {
      Ask(*session);
      Answer(*session, 5);
      for (const auto& held : Held(*session)) EXPECT_LE(std::ssize(held), 72);
    }
    EXPECT_EQ(session->counters().seen, 12 * (kText + kImage + kQuestion + 5));
    EXPECT_EQ(session->ledger().peak_bytes(), session->plan().total_bytes);
  }
}

TEST_F(VisionPolicies, FastVDropsTheSameTokensFromALayerOn) {
  const int32_t n_layers = tiny_.model->config().n_layers;
  auto session = MakeSession("fastv:K=1,R=0.75");
  Ask(*session);
  const auto held = Held(*session);
  EXPECT_EQ(std::ssize(held[0]), kText + kImage + kQuestion);
  for (int32_t layer = 1; layer < n_layers; ++layer) {
    EXPECT_EQ(NumVisual(*session, layer), 10) << "layer " << layer;
    EXPECT_EQ(held[layer], held[1]);
  }
  const auto dense = Run("window");
  EXPECT_EQ(Run("fastv:R=0"), dense);
  EXPECT_EQ(Run("fastv:R=1,K=" + std::to_string(n_layers)), dense);
  EXPECT_NE(Run("fastv:K=1,R=0.75"), dense);
}

}  // namespace
}  // namespace weir
