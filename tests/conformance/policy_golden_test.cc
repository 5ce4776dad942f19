// SPDX-License-Identifier: Apache-2.0
// What every policy must keep, slot by slot: the cases of tests/golden/policy, made by the independent reference in
// tools/reference (format: tools/golden/policy.py). A policy of the folder without such a file fails here.
#include <gtest/gtest.h>

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <limits>
#include <memory>
#include <nlohmann/json.hpp>
#include <set>
#include <string>
#include <vector>

#include "policy/policy.h"
#include "support/build_paths.h"

namespace weir {
namespace {

using nlohmann::json;

std::string PathOf(const std::string& policy) { return SourceDir() + "/tests/golden/policy/" + policy + ".jsonl"; }

std::vector<json> CasesOf(const std::string& policy) {
  std::ifstream file(PathOf(policy));
  std::vector<json> out;
  for (std::string line; std::getline(file, line);) out.push_back(json::parse(line));
  return out;
}

// The policy with the options of a case. Those that are no options of the policy say what a round already spells out:
// the budget, the layer that is shown, a reduction that the scores have behind them.
std::unique_ptr<Policy> MakePolicy(const json& c) {
  const std::string name = c["policy"];
  const PolicyInfo* info = FindPolicy(name);
  std::string text = name;
  for (const auto& [key, value] : c["options"].items()) {
    const bool known = std::any_of(info->options.begin(), info->options.end(),
                                   [&key = key](const PolicyOptionInfo& option) { return key == option.key; });
    const bool is_budget = key == "capacity" || key == "layer" || key == "n_layers";
    EXPECT_TRUE(known || is_budget) << name << " has no option " << key;
    // A pyramid of a prompt: its budget is `capacity`.
    const bool is_prompt = name == "pyramidkv" && key == "capacity";
    if ((is_budget && !is_prompt) || ((name == "h2o" || name == "lookm") && key == "reduce")) continue;
    text += text == name ? ":" : ",";
    text += key + "=";
    text += value.is_boolean()  ? (value.get<bool>() ? "on" : "off")
            : value.is_string() ? value.get<std::string>()
                                : value.dump();
  }
  Result<PolicySpec> spec = ParsePolicySpec(text);
  EXPECT_TRUE(spec.ok()) << text << ": " << spec.status().message();
  if (!spec.ok()) return nullptr;
  Result<std::unique_ptr<Policy>> policy = spec->Make();
  EXPECT_TRUE(policy.ok()) << text << ": " << policy.status().message();
  return policy.ok() ? std::move(policy).value() : nullptr;
}

// One group of a round, as the engine would show it.
struct Group {
  std::vector<SlotMeta> slots;
  std::vector<float> scores, nll, novelty, visual, scenes;
  SlotView view;

  Group(const json& c, const json& step, size_t group, const PolicyNeeds& needs) {
    const json& stored = step["slots"][step["slots"].size() == 1 ? 0 : group];
    for (const json& seq : stored["seq"]) slots.emplace_back().seq = seq;
    for (const json& slot : stored["pinned"]) slots[slot.get<size_t>()].pinned = true;
    for (const json& slot : stored.value("visual", json::array()))
      slots[slot.get<size_t>()].modality = Modality::kImage;
    for (size_t s = 0; stored.contains("frame") && s < slots.size(); ++s) {
      slots[s].t_src_ms = stored["t"][s];
      if (stored["frame"][s].get<int64_t>() < 0) continue;
      slots[s].modality = Modality::kVideo;
      slots[s].row = stored["row"][s];
      EXPECT_EQ(slots[s].frame(), stored["frame"][s]);
    }
    const auto floats = [](const json& row) {
      std::vector<float> out;
      for (const json& x : row) out.push_back(x.is_null() ? std::numeric_limits<float>::infinity() : x.get<float>());
      return out;
    };
    // The likelihoods of sirllm's cases are its scores: decay is already in them.
    if (needs.evidence.nll != Normaliser::kNone)
      nll = floats(c["policy"] == "sirllm" ? step["scores"][group] : stored["nll"]);
    if (needs.evidence.scores()) scores = floats(step["scores"][group]);
    if (needs.evidence.recent_frames > 0) novelty = floats(step["novelty"][group]);
    if (step.contains("visual")) visual = floats(step["visual"][group]);
    if (step.contains("scenes")) scenes = floats(step["scenes"][group]);
    view.group = static_cast<int32_t>(group);
    view.n_layers = 1;
    view.n_kv_heads = c["n_kv_heads"];
    if (needs.granularity != Granularity::kGlobal) view.layer = 0;
    if (needs.granularity == Granularity::kPerHead) view.head = view.group;
    view.n_rows = 1;  // means are taken in the file
    if (stored.contains("queries")) {
      view.n_seen = slots[0].seq + stored["queries"][0].get<int64_t>();
      for (size_t s = 0; s < slots.size(); ++s) EXPECT_EQ(view.n_seen - slots[s].seq, stored["queries"][s]);
    }
    if (step.contains("n_seen")) {
      view.n_seen = step["n_seen"];
      view.n_seen_visual = step["n_seen_visual"];
    }
    if (step.contains("scenes")) view.n_seen_visual = 1;  // what matters is that there were any
    view.slots = slots;
    view.scores = scores;
    view.nll = nll;
    view.novelty = novelty;
    view.visual = visual;
    view.scenes = scenes;
  }
};

void Check(const json& c, const json& step, Policy& policy) {
  const PolicyNeeds needs = policy.Needs();
  const int32_t n_keep = step["n_keep"];
  const std::vector<KeepSet> expected = step["keep"].get<std::vector<KeepSet>>();
  std::vector<std::unique_ptr<Group>> groups;
  std::vector<SlotView> views;
  for (size_t g = 0; g < expected.size(); ++g) {
    groups.push_back(std::make_unique<Group>(c, step, g, needs));
    views.push_back(groups.back()->view);
  }
  std::vector<KeepSet> keeps(views.size());
  policy.SelectAll(views, n_keep, keeps);
  EXPECT_EQ(keeps, expected);
  std::vector<KeepSet> again(views.size());
  policy.SelectAll(views, n_keep, again);
  EXPECT_EQ(keeps, again);
  if (needs.spread == 0) return;  // heads share a budget: there is no selection of one alone
  for (size_t g = 0; g < views.size(); ++g) {
    policy.Select(views[g], n_keep, &keeps[g]);
    EXPECT_EQ(keeps[g], expected[g]) << "group " << g << " alone";
  }
}

// PyramidKV's case is one layer of several, whose budget is known; here all of them hold the same slots. Layers give
// back what the published rounding keeps too many: the layer may then have fewer slots, the best of the published ones.
void CheckPyramid(const json& c, const json& step, Policy& policy) {
  const int32_t capacity = c["options"]["capacity"], n_layers = c["options"]["n_layers"];
  const size_t n_heads = c["n_kv_heads"], shown = c["options"]["layer"].get<size_t>();
  std::vector<std::unique_ptr<Group>> groups;
  std::vector<SlotView> views;
  for (int32_t layer = 0; layer < n_layers; ++layer) {
    for (size_t head = 0; head < n_heads; ++head) {
      groups.push_back(std::make_unique<Group>(c, step, head, policy.Needs()));
      views.push_back(groups.back()->view);
      views.back().layer = layer;
      views.back().n_layers = n_layers;
    }
  }
  std::vector<KeepSet> keeps(views.size());
  policy.SelectAll(views, capacity, keeps);
  int64_t n_kept = 0, n_slots = 0, n_pinned = 0;
  for (size_t i = 0; i < views.size(); ++i) {
    n_kept += std::ssize(keeps[i]);
    n_slots += std::ssize(views[i].slots);
    n_pinned = std::max<int64_t>(n_pinned, step["slots"][0]["pinned"].size());
  }
  EXPECT_EQ(n_kept, std::min(n_slots, std::ssize(views) * capacity));
  for (size_t head = 0; head < n_heads; ++head) {
    const KeepSet expected = step["keep"][head].get<KeepSet>();
    KeepSet alone;
    policy.Select(views[head], step["n_keep"], &alone);
    EXPECT_EQ(alone, expected) << "head " << head << " alone";
    const KeepSet& keep = keeps[shown * n_heads + head];
    EXPECT_TRUE(std::includes(expected.begin(), expected.end(), keep.begin(), keep.end())) << "head " << head;
    // A slot for every layer at most, and what the pinned slots of higher layers cost.
    EXPECT_GE(std::ssize(keep), std::ssize(expected) - (n_layers == 1 ? 0 : n_layers + n_pinned)) << "head " << head;
  }
}

class PolicyGolden : public ::testing::TestWithParam<std::string> {};

TEST_P(PolicyGolden, KeepsWhatTheReferenceKeeps) {
  const std::vector<json> cases = CasesOf(GetParam());
  ASSERT_GE(cases.size(), 24u) << PathOf(GetParam());
  std::set<std::string> names;
  for (const json& c : cases) {
    ASSERT_EQ(c["policy"], GetParam());
    EXPECT_TRUE(names.insert(c["name"]).second) << "two cases are called " << c["name"];
    SCOPED_TRACE(c["name"].get<std::string>() + " " + c["options"].dump());
    const std::unique_ptr<Policy> policy = MakePolicy(c);
    ASSERT_NE(policy, nullptr);
    size_t round = 0;
    for (const json& step : c["rounds"]) {
      SCOPED_TRACE("round " + std::to_string(round++) + ", budget " + step["n_keep"].dump());
      if (GetParam() == "pyramidkv")
        CheckPyramid(c, step, *policy);
      else
        Check(c, step, *policy);
    }
    if (HasFailure()) break;  // one case is enough to look at
  }
}

std::vector<std::string> NamesWithRankings() {
  std::vector<std::string> out;
  for (const PolicyInfo* info : AllPolicyInfos()) {
    // `full` never chooses; what `random` keeps is the subject of src/policy/definitions_test.cc.
    if (std::string(info->name) != "full" && std::string(info->name) != "random") out.push_back(info->name);
  }
  return out;
}

INSTANTIATE_TEST_SUITE_P(Folder, PolicyGolden, ::testing::ValuesIn(NamesWithRankings()),
                         [](const auto& info) { return info.param; });

TEST(PolicyGoldenFolder, EveryFileHasItsPolicy) {
  for (const auto& entry : std::filesystem::directory_iterator(SourceDir() + "/tests/golden/policy")) {
    EXPECT_NE(FindPolicy(entry.path().stem().string()), nullptr) << entry.path();
  }
}

}  // namespace
}  // namespace weir
