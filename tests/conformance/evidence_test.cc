// SPDX-License-Identifier: Apache-2.0
// What policies are shown, against its definition: after many evictions the attention of a chunk's last rows, computed
// anew from the stored keys with every key rotated to its slot and every query to its own (methods CACHE and RESET: the
// kept tokens stand at positions 0, 1, 2 ... as if the others had never been).
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <map>
#include <memory>
#include <numeric>
#include <string>
#include <vector>

#include "base/rng.h"
#include "engine/session.h"
#include "ops/kv_slots.h"
#include "support/golden.h"
#include "support/tiny.h"

namespace weir {
namespace {

struct Shown {
  int32_t n_rows = 0;
  std::vector<std::vector<float>> scores;  // of every group
  std::vector<float> row_attention;
};
Shown shown;
Granularity granularity;
Positions positions;

// Keeps every third slot and the newest, so that the pot holds gaps everywhere.
class EveryThird : public Policy {
 public:
  PolicyNeeds Needs() const override {
    PolicyNeeds needs;
    needs.positions = positions;
    needs.granularity = granularity;
    needs.evidence.rows = EvidenceRows::kLast;
    needs.evidence.n_last = 3;
    return needs;
  }
  int32_t TargetSlots(int32_t n_slots, int32_t n_coming) const override { return n_slots / 2; }
  void Select(const SlotView& view, int32_t n_keep, KeepSet* keep) override {
    if (view.group == 0) shown = Shown();
    shown.n_rows = view.n_rows;
    shown.scores.emplace_back(view.scores.begin(), view.scores.end());
    keep->clear();
    const int32_t n = static_cast<int32_t>(view.slots.size());
    // Groups differ in what they keep.
    for (int32_t s = view.group % 3; s < n && std::ssize(*keep) < n_keep - (n - 1 - s); s += 3) keep->push_back(s);
    const int32_t after = keep->empty() ? 0 : keep->back() + 1;
    for (int32_t s = std::max(after, n - (n_keep - static_cast<int32_t>(keep->size()))); s < n; ++s) keep->push_back(s);
  }
};

class EvidenceTest : public ::testing::TestWithParam<std::tuple<std::string, Granularity, Positions>> {};

TEST_P(EvidenceTest, AttentionToTheKeptTokensAtTheirNewPositions) {
  granularity = std::get<1>(GetParam());
  positions = std::get<2>(GetParam());
  Ledger ledger;
  const std::unique_ptr<Backend> backend = MakeCpuBackend(2);
  auto file = std::move(GgufFile::Open(testing::GoldenDir() + std::get<0>(GetParam()) + ".gguf")).value();
  const std::unique_ptr<Model> model = std::move(LoadModel(*file, *backend, ledger)).value();
  const AttentionLayout& layout = model->config().attention;
  const PolicyInfo info = {"every_third", "", "", {}, [](const PolicyOptions&) -> Result<std::unique_ptr<Policy>> {
                             return std::unique_ptr<Policy>(new EveryThird);
                           }};
  SessionOptions options;
  options.policy.info = &info;
  options.pot_slots = 48;
  options.chunk_rows = 8;
  options.windows_in_pot = true;
  options.k_type = options.v_type = DType::kF32;
  auto session = std::move(Session::Make(*model, *backend, options)).value();

  std::map<std::string, std::vector<float>> seen;  // queries of the newest chunk
  const TensorObserver observer = [&](const std::string& name, int64_t n_rows, int64_t n_cols, const float* data) {
    seen[name].assign(data, data + n_rows * n_cols);
  };
  Session::AppendOptions observed;
  observed.observer = &observer;
  Rng rng(9);
  int n_checked = 0;
  for (int chunk = 0; chunk < 40; ++chunk) {
    int32_t tokens[8];
    for (int32_t& id : tokens) {
      id = static_cast<int32_t>(rng.Below(static_cast<uint64_t>(model->config().n_vocab)));
    }
    // What a selection would be shown now, if the next chunk brings one.
    const bool selects = session->pot().n_free() < 8;
    std::vector<std::vector<double>> expected;
    if (selects) {
      const RopeTable ropes[] = {
          std::move(RopeTable::Make(layout.rope, 64)).value(),
          std::move(RopeTable::Make(layout.window_rope.value_or(layout.rope), 64)).value(),
      };
      const int64_t dim = layout.head_dim, half = layout.rope.n_rot / 2,
                    group_heads = layout.n_heads / layout.n_kv_heads;
      const auto rotated = [&](const RopeTable& rope, std::vector<float> x, int64_t pos) {
        std::vector<float> cos(static_cast<size_t>(half)), sin(static_cast<size_t>(half));
        RopeAngles(rope, &pos, 1, cos.data(), sin.data());
        ref::RotateRows(rope, cos.data(), sin.data(), 1, dim, x.data());
        return x;
      };
      int32_t block = 0;  // of the model, some of whose blocks may not attend
      for (int32_t layer = 0; layer < layout.n_layers; ++layer, ++block) {
        while (block < model->config().n_layers && !seen.contains("blk." + std::to_string(block) + ".q")) ++block;
        const std::vector<float>& q = seen["blk." + std::to_string(block) + ".q"];
        ASSERT_EQ(std::ssize(q), 8 * layout.n_heads * dim);
        const RopeTable& rope = ropes[layout.is_window(layer) ? 1 : 0];
        const auto placed = [&](std::vector<float> x, int64_t pos) {
          return layout.rotates(layer) ? rotated(rope, std::move(x), pos) : x;
        };
        for (int32_t head = 0; head < layout.n_heads; ++head) {
          const int32_t kv_head = static_cast<int32_t>(head / group_heads);
          const int32_t n = session->pot().n_used(layer, kv_head);
          const bool fresh = granularity == Granularity::kPerHead ? head % group_heads == 0 : head == 0;
          if (fresh) expected.emplace_back(static_cast<size_t>(n));
          const double share =
              1.0 / static_cast<double>(granularity == Granularity::kPerHead ? group_heads : layout.n_heads);
          for (int64_t row = 5; row < 8; ++row) {
            const int64_t n_visible = n - 8 + row + 1;
            const float* at = &q[(row * layout.n_heads + head) * dim];
            const std::vector<float> query = placed({at, at + dim}, n_visible - 1);
            const int64_t first = layout.is_window(layer) ? std::max<int64_t>(0, n_visible - layout.window) : 0;
            std::vector<double> weights(static_cast<size_t>(first), 0.0);
            double sum = 0;
            for (int64_t s = first; s < n_visible; ++s) {
              std::vector<float> key(static_cast<size_t>(dim));
              ref::LoadSlot(DType::kF32, session->pot().keys(layer, kv_head), s, dim, key.data());
              key = placed(key, s);
              double dot = 0;
              for (int64_t i = 0; i < dim; ++i) dot += static_cast<double>(query[i]) * key[i];
              const double score = dot * layout.scale;
              weights.push_back(
                  std::exp(layout.softcap > 0 ? layout.softcap * std::tanh(score / layout.softcap) : score));
              sum += weights.back();
            }
            for (int64_t s = 0; s < n_visible; ++s) expected.back()[s] += share * weights[s] / sum;
          }
        }
      }
    }
    ASSERT_TRUE(session->Append(tokens, observed).ok());
    if (!selects) continue;
    ++n_checked;
    EXPECT_EQ(shown.n_rows, 3);
    ASSERT_EQ(shown.scores.size(), expected.size());
    for (size_t g = 0; g < expected.size(); ++g) {
      ASSERT_EQ(shown.scores[g].size(), expected[g].size());
      for (size_t s = 0; s < expected[g].size(); ++s) {
        ASSERT_NEAR(shown.scores[g][s], expected[g][s], 2e-5) << "group " << g << ", slot " << s << ", chunk " << chunk;
      }
    }
  }
  EXPECT_GE(n_checked, 5);
}

// Keeps four slots at the end of every prompt and shows what it was shown.
int32_t n_last = 6;
class AtPromptEnd : public Policy {
 public:
  PolicyNeeds Needs() const override {
    PolicyNeeds needs;
    needs.granularity = Granularity::kPerHead;
    needs.evidence.rows = EvidenceRows::kLast;
    needs.evidence.n_last = n_last;
    return needs;
  }
  int32_t TargetSlots(int32_t n_slots, int32_t n_coming) const override { return n_slots - n_coming; }
  int32_t TargetAfterPrompt(int32_t) const override { return 4; }
  void Select(const SlotView& view, int32_t n_keep, KeepSet* keep) override {
    if (view.group == 0) shown = Shown();
    shown.n_rows = view.n_rows;
    shown.scores.emplace_back(view.scores.begin(), view.scores.end());
    shown.row_attention.push_back(view.row_attention);
    keep->resize(static_cast<size_t>(n_keep));
    std::iota(keep->begin(), keep->end(), static_cast<int32_t>(view.slots.size()) - n_keep);
  }
};

// The last rows of a prompt vote, however it was cut into chunks and calls.
TEST(PromptEnd, VotesAreThoseOfItsLastRows) {
  Ledger ledger;
  const std::unique_ptr<Backend> backend = MakeCpuBackend(2);
  auto file = std::move(GgufFile::Open(testing::GoldenDir() + "llama.gguf")).value();
  const std::unique_ptr<Model> model = std::move(LoadModel(*file, *backend, ledger)).value();
  const PolicyInfo info = {"at_prompt_end", "", "", {}, [](const PolicyOptions&) -> Result<std::unique_ptr<Policy>> {
                             return std::unique_ptr<Policy>(new AtPromptEnd);
                           }};
  std::vector<int32_t> tokens;
  Rng rng(9);
  for (int i = 0; i < 25; ++i) {
    tokens.push_back(static_cast<int32_t>(rng.Below(static_cast<uint64_t>(model->config().n_vocab))));
  }
  // Reads the tokens in calls of these lengths, the last of which ends the prompt.
  const auto after = [&](int32_t chunk_rows, int32_t pot_slots, const std::vector<int>& calls) {
    SessionOptions options;
    options.policy.info = &info;
    options.pot_slots = pot_slots;
    options.chunk_rows = chunk_rows;
    options.k_type = options.v_type = DType::kF32;
    auto session = std::move(Session::Make(*model, *backend, options)).value();
    size_t at = 0;
    for (size_t i = 0; i < calls.size(); ++i) {
      Session::AppendOptions append;
      append.end_of_prompt = i + 1 == calls.size();
      EXPECT_TRUE(session->Append({tokens.data() + at, static_cast<size_t>(calls[i])}, append).ok());
      at += static_cast<size_t>(calls[i]);
    }
    return shown;
  };
  const Shown whole = after(32, 64, {25});
  EXPECT_EQ(whole.n_rows, 6);
  const auto expect_same = [&](const Shown& other) {
    EXPECT_EQ(other.n_rows, whole.n_rows);
    ASSERT_EQ(other.scores.size(), whole.scores.size());
    for (size_t g = 0; g < whole.scores.size(); ++g) {
      ASSERT_EQ(other.scores[g].size(), whole.scores[g].size());
      for (size_t s = 0; s < whole.scores[g].size(); ++s) EXPECT_NEAR(other.scores[g][s], whole.scores[g][s], 1e-5);
    }
  };
  for (const int32_t chunk_rows : {2, 4, 8, 12, 24}) {
    SCOPED_TRACE(chunk_rows);
    expect_same(after(chunk_rows, 64, {25}));
  }
  // A call of its own for the end: its rows, and the six before.
  const Shown apart = after(32, 64, {23, 2});
  EXPECT_EQ(apart.n_rows, 8);
  for (const std::vector<float>& scores : apart.scores) {
    EXPECT_NEAR(std::accumulate(scores.begin(), scores.end(), 0.0), 8, 1e-4);
  }
  EXPECT_EQ(after(32, 64, {21, 2, 2}).n_rows, 10);
  // Votes do not pile up over short calls without end.
  EXPECT_LE(after(32, 64, {9, 2, 2, 2, 2, 2, 2, 2, 2}).n_rows, 12);
  // Rows of the same call only.
  n_last = -6;
  EXPECT_EQ(after(32, 64, {23, 2}).n_rows, 2);
  EXPECT_EQ(after(32, 64, {9, 2, 2, 2, 2, 2, 2, 2, 2}).n_rows, 2);
  for (const int32_t chunk_rows : {2, 4, 8, 12, 24}) expect_same(after(chunk_rows, 64, {25}));
  // All of them, however the call was cut; half a pot at most.
  n_last = -(1 << 30);
  EXPECT_EQ(after(32, 64, {25}).n_rows, 25);
  const Shown all = after(32, 64, {5, 20});
  EXPECT_EQ(all.n_rows, 20);
  for (const int32_t chunk_rows : {2, 4, 8, 12}) {
    const Shown cut = after(chunk_rows, 64, {5, 20});
    EXPECT_EQ(cut.n_rows, 20);
    for (size_t g = 0; g < all.scores.size(); ++g) {
      for (size_t s = 0; s < 5; ++s) EXPECT_NEAR(cut.scores[g][s], all.scores[g][s], 1e-5);
    }
  }
  EXPECT_LE(after(4, 32, {25}).n_rows, 16);
  n_last = 6;
  // A pot that runs full in the middle of a prompt's end.
  for (int32_t chunk_rows = 2; chunk_rows <= 8; ++chunk_rows) {
    SCOPED_TRACE(chunk_rows);
    const int32_t n_rows = after(chunk_rows, 20, {25}).n_rows;
    EXPECT_GE(n_rows, 6);
    EXPECT_LE(n_rows, 12);
  }
}

// Over the slots a row's attention is 1, also where layers that read the same keys vote together, but for what a
// model's sinks take: then a policy is told what is left.
TEST(PromptEnd, ARowsAttentionIsOneLessWhatSinksTake) {
  const PolicyInfo info = {"at_prompt_end", "", "", {}, [](const PolicyOptions&) -> Result<std::unique_ptr<Policy>> {
                             return std::unique_ptr<Policy>(new AtPromptEnd);
                           }};
  for (const std::string name : {"gemma4", "gpt_oss"}) {
    SCOPED_TRACE(name);
    Ledger ledger;
    const std::unique_ptr<Backend> backend = MakeCpuBackend(2);
    auto file = std::move(GgufFile::Open(testing::GoldenDir() + name + ".gguf")).value();
    const std::unique_ptr<Model> model = std::move(LoadModel(*file, *backend, ledger)).value();
    const AttentionLayout& layout = model->config().attention;
    int n_borrowing = 0;
    for (int32_t layer = 0; layer < layout.n_layers; ++layer) n_borrowing += !layout.stores(layer);
    EXPECT_EQ(n_borrowing > 0, name == "gemma4");
    EXPECT_EQ(layout.sinks.empty(), name == "gemma4");
    SessionOptions options;
    options.policy.info = &info;
    options.pot_slots = 64;
    auto session = std::move(Session::Make(*model, *backend, options)).value();
    Rng rng(9);
    std::vector<int32_t> tokens(25);
    for (int32_t& id : tokens) {
      id = static_cast<int32_t>(rng.Below(static_cast<uint64_t>(model->config().n_vocab)));
    }
    Session::AppendOptions prompt;
    prompt.end_of_prompt = true;
    ASSERT_TRUE(session->Append(tokens, prompt).ok());
    ASSERT_FALSE(shown.scores.empty());
    for (size_t group = 0; group < shown.scores.size(); ++group) {
      const double of_row = std::accumulate(shown.scores[group].begin(), shown.scores[group].end(), 0.0) / shown.n_rows;
      EXPECT_NEAR(shown.row_attention[group], of_row, 1e-4);
      if (name == "gemma4") {
        EXPECT_EQ(shown.row_attention[group], 1);
      } else {
        EXPECT_LT(of_row, 0.9999);
      }
    }
  }
}

// `reduce` of every policy that has it, at the pot: a row's attention of one query head sums to 1 over the slots. Of a
// KV head's query heads the mean sums to the number of voting rows, the sum to as many times more as there are heads;
// the largest is between these, slot by slot.
TEST(HeadReduce, IsTheOneThatTheOptionNames) {
  Ledger ledger;
  const std::unique_ptr<Backend> backend = MakeCpuBackend(2);
  auto file = std::move(GgufFile::Open(testing::GoldenDir() + "llama.gguf")).value();
  const std::unique_ptr<Model> model = std::move(LoadModel(*file, *backend, ledger)).value();
  const int32_t n_heads = model->config().attention.n_heads / model->config().attention.n_kv_heads;
  ASSERT_GT(n_heads, 1) << "one query head of a KV head would hide the difference";
  std::vector<int32_t> tokens;
  Rng rng(9);
  for (int i = 0; i < 24; ++i) {
    tokens.push_back(static_cast<int32_t>(rng.Below(static_cast<uint64_t>(model->config().n_vocab))));
  }
  const auto scores_of = [&](const std::string& policy) {
    SessionOptions options;
    options.policy = std::move(ParsePolicySpec(policy)).value();
    options.pot_slots = 64;
    options.k_type = options.v_type = DType::kF32;
    auto session = std::move(Session::Make(*model, *backend, options)).value();
    Session::AppendOptions prompt;
    prompt.end_of_prompt = true;
    EXPECT_TRUE(session->Append(tokens, prompt).ok());
    std::vector<std::vector<float>> out;
    for (int32_t group = 0; group < session->pot().shape().n_groups(); ++group) {
      const std::span<const float> scores = session->pot().scores(group);
      out.emplace_back(scores.begin(), scores.begin() + static_cast<std::ptrdiff_t>(tokens.size()));
    }
    return out;
  };
  int n_policies = 0;
  for (const PolicyInfo* info : AllPolicyInfos()) {
    const auto option = std::find_if(info->options.begin(), info->options.end(),
                                     [](const PolicyOptionInfo& o) { return std::string(o.key) == "reduce"; });
    if (option == info->options.end()) continue;
    const std::string name = info->name;
    SCOPED_TRACE(name);
    const auto spec = std::move(ParsePolicySpec(name)).value();
    const Evidence evidence = std::move(spec.Make()).value()->Needs().evidence;
    EXPECT_EQ(evidence.head_reduce, HeadReduce::kMean) << "unless something else is asked for";
    ++n_policies;
    if (evidence.rows == EvidenceRows::kProbe) continue;  // nothing votes before a selection
    const double n_rows = evidence.rows == EvidenceRows::kAll ? 24 : std::min(24, evidence.n_last);
    const auto mean = scores_of(name + ":reduce=mean");
    for (const std::vector<float>& group : mean) {
      EXPECT_NEAR(std::accumulate(group.begin(), group.end(), 0.0), n_rows, 1e-3);
    }
    for (const std::string how : {"sum", "max"}) {
      const auto other = ParsePolicySpec(name + ":reduce=" + how);
      if (!other.ok()) continue;  // sums over all rows have no max
      SCOPED_TRACE(how);
      const auto scores = scores_of(name + ":reduce=" + how);
      int n_between = 0;
      for (size_t g = 0; g < mean.size(); ++g) {
        for (size_t s = 0; s < mean[g].size(); ++s) {
          if (how == "sum") {
            EXPECT_NEAR(scores[g][s], mean[g][s] * static_cast<float>(n_heads), 1e-5)
                << "group " << g << ", slot " << s;
          } else {
            EXPECT_GE(scores[g][s], mean[g][s] - 1e-6f);
            EXPECT_LE(scores[g][s], mean[g][s] * static_cast<float>(n_heads) + 1e-5f);
            n_between += scores[g][s] > 1.01f * mean[g][s] && scores[g][s] < 0.99f * mean[g][s] * n_heads;
          }
        }
      }
      EXPECT_EQ(n_between > 0, how == "max");
    }
  }
  EXPECT_GE(n_policies, 6);
}

RowReduce row_reduce = RowReduce::kSum;

class AllRows : public AtPromptEnd {
 public:
  PolicyNeeds Needs() const override {
    PolicyNeeds needs;
    needs.granularity = Granularity::kPerHead;
    needs.evidence.rows = EvidenceRows::kAll;
    needs.evidence.row_reduce = row_reduce;
    return needs;
  }
};

// The largest attention of any row is less than the sum of all, and more than their mean.
TEST(RowReduces, AreThoseThatAPolicyNames) {
  testing::Tiny tiny("llama");
  const PolicyInfo info = {"all_rows", "", "", {}, [](const PolicyOptions&) -> Result<std::unique_ptr<Policy>> {
                             return std::unique_ptr<Policy>(new AllRows);
                           }};
  const std::vector<int32_t> tokens = testing::RandomTokens(24, tiny.model->config().n_vocab);
  std::vector<std::vector<float>> scores[2];
  for (const bool max : {false, true}) {
    row_reduce = max ? RowReduce::kMax : RowReduce::kSum;
    SessionOptions options;
    options.policy.info = &info;
    options.pot_slots = 64;
    auto session = std::move(Session::Make(*tiny.model, *tiny.backend, options)).value();
    Session::AppendOptions prompt;
    prompt.end_of_prompt = true;
    ASSERT_TRUE(session->Append(tokens, prompt).ok());
    scores[max] = shown.scores;
  }
  ASSERT_FALSE(scores[0].empty());
  for (size_t group = 0; group < scores[0].size(); ++group) {
    EXPECT_NEAR(std::accumulate(scores[0][group].begin(), scores[0][group].end(), 0.0), 24, 1e-3);
    for (size_t s = 0; s + 1 < 24; ++s) {
      const float sum = scores[0][group][s], most = scores[1][group][s];
      EXPECT_LT(most, sum);
      EXPECT_GT(most, 0.999f * sum / static_cast<float>(24 - s));
    }
    EXPECT_EQ(scores[1][group][0], 1) << "the first row sees itself alone";
  }
}

// The temperature of an answer's n-th token is n steps above the prompt's.
TEST(Keyformer, AnAnswersTemperatureRises) {
  testing::Tiny tiny("llama");
  const std::vector<int32_t> tokens = testing::RandomTokens(24, tiny.model->config().n_vocab);
  // What the answer's tokens add to a head's scores.
  const auto added = [&](const std::string& policy, size_t n_answer) {
    SessionOptions options;
    options.policy = std::move(ParsePolicySpec(policy)).value();
    options.pot_slots = 64;
    auto session = std::move(Session::Make(*tiny.model, *tiny.backend, options)).value();
    Session::AppendOptions prompt, answer;
    prompt.end_of_prompt = answer.generated = true;
    EXPECT_TRUE(session->Append({tokens.data(), 20}, prompt).ok());
    std::vector<float> before;
    for (size_t i = 0; i < n_answer; ++i) {
      const std::span<const float> scores = session->pot().scores(0).first(20);
      before.assign(scores.begin(), scores.end());
      EXPECT_TRUE(session->Append({&tokens[20 + i], 1}, answer).ok());
    }
    for (size_t s = 0; s < before.size(); ++s) before[s] = session->pot().scores(0)[s] - before[s];
    return before;
  };
  const std::string rising = "keyformer:tau=1,tau_end=3,length=4";
  for (const size_t n : {1, 2, 3}) {
    const std::string tau = std::to_string(1 + 0.5 * static_cast<double>(n));
    const std::vector<float> got = added(rising, n), want = added("keyformer:tau=" + tau + ",tau_end=" + tau, n);
    ASSERT_EQ(got.size(), 20u);
    for (size_t s = 0; s < got.size(); ++s) EXPECT_NEAR(got[s], want[s], 1e-5) << "token " << n << ", slot " << s;
  }
}

INSTANTIATE_TEST_SUITE_P(Models, EvidenceTest,
                         ::testing::Combine(::testing::Values("llama", "qwen2", "llama_bias", "llama_rope_yarn",
                                                              "llama_window", "gptneox", "qwen3", "qwen35", "phi3",
                                                              "gemma2", "gemma3", "smollm3", "exaone4", "deepseek2",
                                                              "deepseek2_v3"),
                                            ::testing::Values(Granularity::kPerLayer, Granularity::kPerHead),
                                            ::testing::Values(Positions::kCache, Positions::kReset)),
                         [](const auto& test) {
                           return std::get<0>(test.param) +
                                  (std::get<1>(test.param) == Granularity::kPerLayer ? "_layer_" : "_head_") +
                                  PositionsName(std::get<2>(test.param));
                         });

}  // namespace
}  // namespace weir
