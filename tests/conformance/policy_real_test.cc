// SPDX-License-Identifier: Apache-2.0
// Policies on a real model, which WEIR_MODEL names: what tiny random models cannot show. Attention there has sinks,
// likelihoods have meaning, scores come close to one another.
//
// With WEIR_DUMP=FILE the selections go to FILE, one case a line as in tests/golden/policy;
// tools/reference/check_dump.py FILE lets the independent reference make them again.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <fstream>
#include <memory>
#include <nlohmann/json.hpp>
#include <numeric>
#include <sstream>
#include <string>

#include "base/rng.h"
#include "engine/loaded_model.h"
#include "engine/session.h"
#include "support/build_paths.h"

namespace weir {
namespace {

using nlohmann::json;

class PolicyReal : public ::testing::Test {
 protected:
  void SetUp() override {
    const char* path = std::getenv("WEIR_MODEL");
    if (path == nullptr) GTEST_SKIP() << "set WEIR_MODEL to a model file (scripts/fetch-model prints one)";
    auto model = LoadedModel::Load({path, 0, "cpu", false});
    ASSERT_TRUE(model.ok()) << model.status().message();
    model_ = std::move(model).value();
  }
  std::unique_ptr<Session> MakeSession(PolicySpec policy, int32_t pot, int32_t chunk) {
    SessionOptions options;
    options.policy = std::move(policy);
    options.pot_slots = pot;
    options.chunk_rows = chunk;
    options.nll = true;
    options.probe = model_->tokenizer().Encode(
        "\n\nWhat is the text above about? Name the parts that matter most, and say in a few words why they do.");
    options.probe.resize(16, options.probe.back());  // a power of two: means over its rows are exact
    auto session = Session::Make(model_->model(), model_->backend(), options);
    EXPECT_TRUE(session.ok()) << session.status().message();
    return session.ok() ? std::move(session).value() : nullptr;
  }
  std::vector<int32_t> Text(size_t n_tokens) const {
    std::string text;
    for (const char* name : {"ARCHITECTURE.md", "CONTRIBUTING.md", "README.md"}) {
      std::ifstream file(SourceDir() + "/" + name);
      text += (std::ostringstream() << file.rdbuf()).str();
    }
    std::vector<int32_t> tokens = model_->tokenizer().Encode(text);
    EXPECT_GE(tokens.size(), n_tokens);
    tokens.resize(std::min(tokens.size(), n_tokens));
    return tokens;
  }
  std::unique_ptr<LoadedModel> model_;
};

// Runs another policy and keeps what it saw and chose.
struct Selection {
  int32_t n_keep = 0;
  PolicyNeeds needs;
  std::vector<SlotView> views;
  std::vector<std::vector<SlotMeta>> slots;
  std::vector<std::vector<float>> scores, nll;
  std::vector<KeepSet> keeps;
};
const PolicySpec* recorded_spec = nullptr;
std::vector<Selection>* record = nullptr;

class Recorder : public Policy {
 public:
  explicit Recorder(std::unique_ptr<Policy> policy) : policy_(std::move(policy)) {}
  PolicyNeeds Needs() const override { return policy_->Needs(); }
  int32_t TargetSlots(int32_t n_slots, int32_t n_coming) const override {
    return policy_->TargetSlots(n_slots, n_coming);
  }
  void Select(const SlotView& view, int32_t n_keep, KeepSet* keep) override { policy_->Select(view, n_keep, keep); }
  void SelectAll(std::span<const SlotView> views, int32_t n_keep, std::span<KeepSet> keeps) override {
    policy_->SelectAll(views, n_keep, keeps);
    Selection& s = record->emplace_back();
    s.n_keep = n_keep;
    s.needs = Needs();
    s.keeps.assign(keeps.begin(), keeps.end());
    s.views.assign(views.begin(), views.end());
    for (SlotView& view : s.views) {
      s.slots.emplace_back(view.slots.begin(), view.slots.end());
      s.scores.emplace_back(view.scores.begin(), view.scores.end());
      s.nll.emplace_back(view.nll.begin(), view.nll.end());
      view.slots = s.slots.back();
      view.scores = s.scores.back();
      view.nll = s.nll.back();
    }
  }

 private:
  const std::unique_ptr<Policy> policy_;
};
constexpr auto kMakeRecorder = [](const PolicyOptions&) -> Result<std::unique_ptr<Policy>> {
  WEIR_ASSIGN_OR_RETURN(std::unique_ptr<Policy> policy, recorded_spec->Make());
  return std::unique_ptr<Policy>(new Recorder(std::move(policy)));
};

json Floats(std::span<const float> values) {
  json out = json::array();
  for (float v : values) out.push_back(std::isfinite(v) ? json(v) : json(nullptr));
  return out;
}

// The groups [begin, end) of a selection, those of one layer, as a case.
json CaseOf(const std::string& policy, const json& options, const Selection& s, size_t begin, size_t end) {
  json step = {{"n_keep", s.n_keep}, {"slots", json::array()}, {"keep", json::array()}};
  const bool mean = policy == "inf_mllm" || policy == "weir";  // what their cases hold is divided by the rows
  for (size_t g = begin; g < end; ++g) {
    const SlotView& view = s.views[g];
    json slots = {{"seq", json::array()}, {"pinned", json::array()}};
    for (size_t i = 0; i < view.slots.size(); ++i) {
      slots["seq"].push_back(view.slots[i].seq);
      if (view.slots[i].pinned) slots["pinned"].push_back(i);
      if (options.contains("normalise")) slots["queries"].push_back(view.n_seen - view.slots[i].seq);
    }
    std::vector<float> scores(view.scores.begin(), view.scores.end());
    for (float& x : scores) x /= mean ? static_cast<float>(view.n_rows) : 1.0f;
    if (!view.nll.empty()) slots["nll"] = Floats(view.nll);
    step["slots"].push_back(slots);
    if (policy == "sirllm") scores.assign(view.nll.begin(), view.nll.end());
    if (!scores.empty()) step["scores"].push_back(Floats(scores));
    step["keep"].push_back(s.keeps[g]);
  }
  const std::string name =
      policy + " layer " + std::to_string(s.views[begin].layer) + " at " + std::to_string(s.views[begin].n_seen);
  json out = {{"policy", policy}, {"name", name}, {"tags", {"real"}}, {"options", options}};
  out["n_kv_heads"] = s.needs.granularity == Granularity::kPerHead ? end - begin : 1;
  if (policy == "pyramidkv") {
    step["n_keep"] = s.keeps[begin].size();
    out["options"]["capacity"] = s.n_keep;
    out["options"]["full_pot"] = true;
    out["options"]["layer"] = s.views[begin].layer;
    out["options"]["n_layers"] = s.views[begin].n_layers;
  }
  out["rounds"] = {step};
  return out;
}

TEST_F(PolicyReal, SelectionsCanBeMadeAgain) {
  const char* path = std::getenv("WEIR_DUMP");
  std::ofstream dump;
  if (path != nullptr) dump.open(path);
  const std::vector<int32_t> tokens = Text(900);
  const std::vector<std::pair<std::string, json>> plans = {
      {"window", json::object()},
      {"streaming_llm", {{"sinks", 4}}},
      {"h2o", {{"recent", 100}, {"reduce", "mean"}, {"normalise", "none"}}},
      {"h2o", {{"recent", 20}, {"reduce", "sum"}, {"normalise", "count"}}},
      {"keyformer", {{"recent", 60}, {"seed", 3}, {"reduce", "mean"}}},
      {"tova", json::object()},
      {"sirllm", {{"sinks", 4}, {"recent", 30}, {"decay", 1}}},
      {"snapkv", {{"window", 16}, {"kernel", 5}, {"pooling", "avg"}, {"reduce", "mean"}}},
      {"snapkv", {{"window", 8}, {"kernel", 7}, {"pooling", "max"}, {"reduce", "max"}}},
      // 58 slots freed: twice as many between the lowest and the highest layer, which 29 steps between layers divide.
      {"pyramidkv", {{"window", 8}, {"kernel", 7}, {"pooling", "max"}, {"reduce", "mean"}, {"beta", 2}, {"step", 58}}},
      {"adakv", {{"window", 16}, {"kernel", 7}, {"pooling", "max"}, {"reduce", "mean"}, {"floor", 0.2}}},
      {"inf_mllm", {{"recent", 32}, {"b", 0.0001}, {"per_kv_head", false}}},
      {"inf_mllm", {{"recent", 16}, {"b", 0.01}, {"per_kv_head", true}}},
      {"infinipot", {{"alpha", 0.5}, {"kernel", 1}, {"pooling", "avg"}, {"rows", "sum"}, {"reduce", "mean"}}},
      {"infinipot", {{"alpha", 0.25}, {"kernel", 5}, {"pooling", "max"}, {"rows", "max"}, {"reduce", "max"}}},
      {"value_norm", {{"recent", 8}}},
      {"keydiff", {{"recent", 0}}},
      {"weir",
       {{"sinks", 4},
        {"alpha", 0.35},
        {"z", 2},
        {"beta", 0.1},
        {"saddle", 8},
        {"kernel", 5},
        {"b", 0},
        {"rows", 32},
        {"recent", 0.3},
        {"frame_rows", 4},
        {"first", 0.1},
        {"saddles", "always"}}},
      {"weir",
       {{"sinks", 0},
        {"alpha", 0.2},
        {"z", 1},
        {"beta", 0.5},
        {"saddle", 1},
        {"kernel", 3},
        {"b", 0.01},
        {"rows", 16},
        {"recent", 0.5},
        {"frame_rows", 0},
        {"first", 0},
        {"saddles", "always"}}},
  };
  for (const auto& [name, wanted] : plans) {
    std::string text = name;
    for (const auto& [key, value] : wanted.items()) {
      text += (text == name ? ":" : ",") + key + "=";
      text += value.is_boolean()  ? (value.get<bool>() ? "on" : "off")
              : value.is_string() ? value.get<std::string>()
                                  : value.dump();
    }
    SCOPED_TRACE(text);
    auto spec = ParsePolicySpec(text);
    ASSERT_TRUE(spec.ok()) << spec.status().message();
    std::vector<Selection> selections;
    recorded_spec = &*spec;
    record = &selections;
    const PolicyInfo info = {name.c_str(), "", "", {}, kMakeRecorder};
    PolicySpec recorder;
    recorder.info = &info;
    auto session = MakeSession(recorder, 512, 32);
    ASSERT_NE(session, nullptr);
    const Status status = session->Append(tokens);
    ASSERT_TRUE(status.ok()) << status.message();
    ASSERT_GE(selections.size(), 2u);
    // Another object, the selections in another order: nothing but the view decides.
    auto again = std::move(spec->Make()).value();
    for (size_t i = selections.size(); i-- > 0;) {
      const Selection& s = selections[i];
      std::vector<KeepSet> keeps(s.views.size());
      again->SelectAll(s.views, s.n_keep, keeps);
      ASSERT_EQ(keeps, s.keeps) << "selection " << i;
    }
    // The first selection, and one whose groups hold different tokens. The reference of pyramidkv has equal layers
    // only.
    for (size_t i : {size_t{0}, selections.size() - 1}) {
      const Selection& s = selections[i];
      if (!dump.is_open() || (i > 0 && name == "pyramidkv")) continue;
      for (size_t begin = 0; begin < s.views.size();) {
        size_t end = begin + 1;
        while (end < s.views.size() && s.views[end].layer == s.views[begin].layer) ++end;
        // Every seventh layer, to keep the file small; -1 means all of them.
        if (s.views[begin].layer % 7 <= 0) dump << CaseOf(name, wanted, s, begin, end).dump() << '\n';
        begin = end;
      }
    }
  }
  EXPECT_TRUE(path == nullptr || dump.good()) << path;
}

double MeanOf(std::span<const float> values) {
  return std::accumulate(values.begin(), values.end(), 0.0) / static_cast<double>(values.size());
}

// A likelihood that belongs to the token before it, or to the one after it, would not fall.
TEST_F(PolicyReal, TheSecondCopyOfARandomStringSurprisesLess) {
  Rng rng(1);
  std::vector<int32_t> tokens(100);
  for (int32_t& id : tokens) id = static_cast<int32_t>(1000 + rng.Below(20000));
  const std::vector<int32_t> first = tokens;
  tokens.insert(tokens.end(), first.begin(), first.end());
  auto session = MakeSession(std::move(ParsePolicySpec("full")).value(), 256, 64);
  std::vector<float> nll(tokens.size());
  Session::AppendOptions options;
  options.nll = nll.data();
  ASSERT_TRUE(session->Append(tokens, options).ok());
  EXPECT_LT(MeanOf({nll.data() + 110, 90}), 0.5 * MeanOf({nll.data() + 10, 90}));
}

// StreamingLLM table 1: sinks and a window are as good as encoding the window anew, a window alone is not. How far it
// falls depends on the model; small ones lose less than those of the paper.
TEST_F(PolicyReal, SinksMakeAWindowWork) {
  const std::vector<int32_t> tokens = Text(1500);
  std::vector<float> nll[2];
  const char* specs[] = {"streaming_llm:step=16", "window:step=16"};
  for (int i = 0; i < 2; ++i) {
    auto session = MakeSession(std::move(ParsePolicySpec(specs[i])).value(), 256, 16);
    nll[i].resize(tokens.size());
    Session::AppendOptions options;
    options.nll = nll[i].data();
    ASSERT_TRUE(session->Append(tokens, options).ok());
  }
  const double sinks = MeanOf({nll[0].data() + 400, 1100}), window = MeanOf({nll[1].data() + 400, 1100});
  EXPECT_GT(window, sinks + 0.2);
  double anew = 0, streamed = 0;
  constexpr size_t kBlock = 40;
  int64_t n = 0;
  for (size_t at = 480; at + kBlock <= tokens.size(); at += 120) {
    // As many tokens before the block as the pot holds on average when it is read.
    auto session = MakeSession(std::move(ParsePolicySpec("full")).value(), 320, 256);
    ASSERT_TRUE(session->Append({tokens.data() + at - 240, 240}).ok());
    std::vector<float> fresh(kBlock);
    Session::AppendOptions options;
    options.nll = fresh.data();
    ASSERT_TRUE(session->Append({tokens.data() + at, kBlock}, options).ok());
    for (size_t i = 0; i < kBlock; ++i, ++n) {
      anew += fresh[i];
      streamed += nll[0][at + i];
    }
  }
  EXPECT_NEAR(streamed / static_cast<double>(n), anew / static_cast<double>(n), 0.1);
}

}  // namespace
}  // namespace weir
