// SPDX-License-Identifier: Apache-2.0
// Keys and tensors that only some files of a family have: what they say is done, or refused with one line.
#include <gtest/gtest.h>

#include <algorithm>
#include <string>
#include <vector>

#include "conformance/edited_logits.h"

namespace weir {
namespace {

using testing::EditedLogits;
using testing::EditedModel;
using testing::EditedTensor;
using testing::LoadEdited;
using testing::RelativeError;

EditedModel With(const char* name, const std::string& key, auto value) {
  EditedModel out(name);
  out.metadata[key].v = value;
  return out;
}

void ExpectSame(const EditedModel& a, const EditedModel& b) {
  const std::vector<float> got = EditedLogits(a), want = EditedLogits(b);
  ASSERT_EQ(got.size(), want.size());
  EXPECT_LT(RelativeError(got.data(), want.data(), want.size()), 1e-5);
}

void ExpectDifferent(const EditedModel& a, const EditedModel& b) {
  const std::vector<float> got = EditedLogits(a), want = EditedLogits(b);
  ASSERT_EQ(got.size(), want.size());
  EXPECT_GT(RelativeError(got.data(), want.data(), want.size()), 1e-3);
}

void ExpectRefused(const EditedModel& model, const std::string& what) {
  const Status status = LoadEdited(model);
  ASSERT_FALSE(status.ok()) << what;
  EXPECT_NE(status.message().find(what), std::string::npos) << status.message();
  EXPECT_EQ(status.message().find('\n'), std::string::npos) << status.message();
}

TEST(OddFiles, ExpertsWeightsHaveAScale) {
  const EditedModel plain("qwen3moe");
  EditedModel doubled = plain;
  for (EditedTensor& tensor : doubled.tensors) {
    if (!tensor.name.ends_with("ffn_down_exps.weight")) continue;
    auto* const values = reinterpret_cast<float*>(tensor.data.data());
    for (size_t i = 0; i < tensor.data.size() / 4; ++i) values[i] *= 2;
  }
  ExpectSame(With("qwen3moe", "qwen3moe.expert_weights_scale", 2.0), doubled);
  ExpectSame(With("qwen3moe", "qwen3moe.expert_weights_scale", 0.0), plain);
  ExpectRefused(With("qwen3moe", "qwen3moe.expert_weights_scale", -1.0), "qwen3moe.expert_weights_scale is -1");
}

TEST(OddFiles, ExpertsAreChosenByTheFilesFunction) {
  const std::string gate = "olmoe.expert_gating_func";
  ExpectSame(With("olmoe", gate, int64_t{0}), EditedModel("olmoe"));
  ExpectSame(With("olmoe", gate, int64_t{1}), EditedModel("olmoe"));
  ExpectDifferent(With("olmoe", gate, int64_t{2}), EditedModel("olmoe"));
  ExpectSame(With("olmoe", gate, int64_t{3}), With("olmoe", "olmoe.expert_weights_norm", true));
  ExpectRefused(With("olmoe", gate, int64_t{4}), gate + " is 4");
  ExpectRefused(With("olmoe", gate, int64_t{-1}), gate);
}

TEST(OddFiles, GroupsOfExpertsFitTheirNumber) {
  const std::string count = "deepseek2.expert_group_count", used = "deepseek2.expert_group_used_count";
  ExpectRefused(With("deepseek2_v3", count, int64_t{3}), count);
  ExpectRefused(With("deepseek2_v3", count, int64_t{65}), count);
  ExpectRefused(With("deepseek2_v3", used, int64_t{5}), used);
  EditedModel narrow = With("deepseek2_v3", count, int64_t{8});
  narrow.metadata[used].v = int64_t{1};
  ExpectRefused(narrow, "2 of 8 experts cannot be chosen from 1 of 8 groups");
  ExpectDifferent(With("deepseek2_v3", used, int64_t{1}), EditedModel("deepseek2_v3"));
}

TEST(OddFiles, ExpertsWithoutEnd) {
  ExpectRefused(With("qwen3moe", "qwen3moe.expert_count", int64_t{4097}), "expected 0 to 4096");
  EditedModel greedy = With("qwen3moe", "qwen3moe.expert_count", int64_t{4096});
  greedy.metadata["qwen3moe.expert_used_count"].v = int64_t{129};
  ExpectRefused(greedy, "expected 1 to 128");
}

TEST(OddFiles, ASharedExpertThatTheFamilyDoesNotHave) {
  ExpectSame(With("qwen3moe", "qwen3moe.expert_shared_feed_forward_length", int64_t{64}), EditedModel("qwen3moe"));
}

TEST(OddFiles, BoundsOfQueriesKeysAndValues) {
  EditedModel wide = With("olmoe_clip", "olmoe.attention.clamp_kqv", 1000.0), none("olmoe_clip");
  none.metadata.erase("olmoe.attention.clamp_kqv");
  ExpectSame(wide, none);
  ExpectDifferent(none, EditedModel("olmoe_clip"));
  ExpectRefused(With("olmoe_clip", "olmoe.attention.clamp_kqv", -1.0), "olmoe.attention.clamp_kqv is -1");
}

TEST(OddFiles, WindowsWithARotaryBaseOfTheirOwn) {
  const std::string own = "olmo2.rope.freq_base_swa";
  const double base = std::get<double>(EditedModel("olmo3").metadata.at("olmo2.rope.freq_base").v);
  ExpectSame(With("olmo3", own, base), EditedModel("olmo3"));
  ExpectDifferent(With("olmo3", own, 1000.0 * base), EditedModel("olmo3"));
  ExpectRefused(With("olmo3", own, 0.0), own + " is 0");
}

TEST(OddFiles, NoTemperature) {
  EditedModel none("mistral3");
  none.metadata.erase("mistral3.attention.temperature_scale");
  ExpectSame(With("mistral3", "mistral3.attention.temperature_scale", 0.0), none);
  ExpectRefused(With("mistral3", "mistral3.attention.temperature_scale", -0.5), "temperature_scale is -0.5");
}

// Layers that read the keys and values of others may have projections of their own, which nothing reads: they do not
// tell whether values are projected.
TEST(OddFiles, Gemma4ValuesThatAreKeysBelowUnreadProjections) {
  EditedModel model("gemma4");
  const EditedTensor unread = model.Tensor("blk.2.attn_v.weight");
  for (const char* layer : {"blk.2.", "blk.4."}) model.Remove(std::string(layer) + "attn_v.weight");
  const EditedModel without = model;
  model.tensors.push_back(unread);
  model.tensors.back().name = "blk.7.attn_v.weight";
  ExpectSame(model, without);
}

// Files of before the two products of a latent were stored apart, and without a name for the gate.
TEST(OddFiles, OlderFilesOfDeepSeek) {
  for (const char* name : {"deepseek2", "deepseek2_v3"}) {
    SCOPED_TRACE(name);
    const EditedModel newer(name);
    EditedModel older = newer;
    for (int layer = 0; layer < 2; ++layer) {
      const std::string at = "blk." + std::to_string(layer) + ".attn_";
      const EditedTensor k = older.Tensor(at + "k_b.weight"), v = older.Tensor(at + "v_b.weight");
      const int64_t n_heads = k.shape[0], rank = k.shape[1], n_nope = k.shape[2], n_value = v.shape[1];
      EditedTensor both{at + "kv_b.weight", DType::kF32, {n_heads * (n_nope + n_value), rank}, {}};
      both.data.resize(static_cast<size_t>(both.shape[0] * rank * 4));
      const auto* const from_k = reinterpret_cast<const float*>(k.data.data());
      const auto* const from_v = reinterpret_cast<const float*>(v.data.data());
      for (int64_t h = 0; h < n_heads; ++h) {
        for (int64_t r = 0; r < rank; ++r) {
          const int64_t first = h * (n_nope + n_value);
          for (int64_t i = 0; i < n_nope; ++i)
            both.SetFloat(static_cast<size_t>((first + i) * rank + r), from_k[(h * rank + r) * n_nope + i]);
          for (int64_t i = 0; i < n_value; ++i)
            both.SetFloat(static_cast<size_t>((first + n_nope + i) * rank + r), from_v[(h * n_value + i) * rank + r]);
        }
      }
      older.Remove(k.name);
      older.Remove(v.name);
      older.tensors.push_back(both);
    }
    for (const char* part : {"key_length", "value_length"}) {
      const std::string key = std::string("deepseek2.attention.") + part;
      older.metadata[key] = older.metadata.at(key + "_mla");
      older.metadata.erase(key + "_mla");
    }
    older.metadata["deepseek2.attention.head_count_kv"] = older.metadata.at("deepseek2.attention.head_count");
    older.metadata.erase("deepseek2.expert_gating_func");
    ExpectSame(older, newer);
  }
}

TEST(OddFiles, LatentsOfImpossibleSizes) {
  ExpectRefused(With("deepseek2", "deepseek2.attention.kv_lora_rank", int64_t{576}), "latents of 576 numbers");
  ExpectRefused(With("deepseek2", "deepseek2.attention.kv_lora_rank", int64_t{26}), "multiple of 8");
  ExpectRefused(With("deepseek2", "deepseek2.rope.dimension_count", int64_t{24}), "cannot be rotated");
  ExpectRefused(With("deepseek2", "deepseek2.rope.dimension_count", int64_t{7}), "cannot be rotated");
  ExpectRefused(With("deepseek2", "deepseek2.attention.temperature_scale", 0.1), "temperature_scale");
}

}  // namespace
}  // namespace weir
