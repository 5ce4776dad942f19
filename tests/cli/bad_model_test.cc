// SPDX-License-Identifier: Apache-2.0
// Model files that are cut short, damaged, of another kind, or not what their metadata says.
#include <gtest/gtest.h>

#include <cmath>
#include <limits>

#include "cli/refusal.h"

namespace weir::testing {
namespace {

using BadModelTest = RefusalTest;

// The control: an unchanged model that is taken apart and written again runs, so the failures below are due to the
// edits.
TEST_F(BadModelTest, AnUneditedModelRuns) {
  for (const char* name : {"llama", "qwen2"}) {
    const RunResult run = Run(RunWith(dir_.Write("good.gguf", EditedModel(name).Bytes())));
    EXPECT_EQ(run.code, 0) << run.err;
    EXPECT_EQ(run.out, Run(RunWith(ModelPath(name))).out);
  }
}

// Granite 4's files may say that no layer rotates.
TEST_F(BadModelTest, AGraniteWithoutPositions) {
  const auto prompt = [this](const std::string& model) {
    return Run({"run", "-m", model, "-p", "the king the queen", "-n", "16", "--temp", "0", "--ignore-eos"});
  };
  EditedModel plain("granite");
  plain.metadata["granite.rope.scaling.finetuned"].v = false;
  const RunResult rotated = prompt(ModelPath("granite")), run = prompt(dir_.Write("plain.gguf", plain.Bytes()));
  EXPECT_EQ(run.code, 0) << run.err;
  EXPECT_NE(run.out, rotated.out);
}

// Incomplete files of every family: the message names the architecture and what is missing.
TEST_F(BadModelTest, EveryFamilyNamesWhatIsMissing) {
  const struct {
    const char *model, *tensor, *key;
  } cases[] = {
      {"gptneox", "blk.1.attn_qkv.bias", "gptneox.attention.layer_norm_epsilon"},
      {"qwen", "blk.1.attn_qkv.bias", "qwen.feed_forward_length"},
      {"qwen3", "blk.0.attn_k_norm.weight", "qwen3.block_count"},
      {"qwen3moe", "blk.1.ffn_down_exps.weight", "qwen3moe.expert_used_count"},
      {"olmoe", "blk.0.attn_q_norm.weight", "olmoe.attention.head_count"},
      {"phi3", "blk.1.attn_qkv.weight", "phi3.context_length"},
      {"gemma2", "blk.2.post_ffw_norm.weight", "gemma2.attention.head_count"},
      {"gemma3", "blk.6.attn_q_norm.weight", "gemma3.feed_forward_length"},
      {"gemma4", "blk.7.attn_q_norm.weight", "gemma4.attention.key_length_swa"},
      {"gemma3n", "blk.3.laurel_r.weight", "gemma3n.altup.num_inputs"},
      {"apertus", "blk.1.attn_k_norm.weight", "xielu.alpha_n"},
      {"falcon", "blk.0.attn_qkv.weight", "falcon.attention.head_count"},
      {"gemma", "blk.1.ffn_norm.weight", "gemma.block_count"},
      {"qwen35", "blk.0.ssm_conv1d.weight", "qwen35.ssm.state_size"},
      {"qwen35moe", "blk.0.ffn_gate_inp_shexp.weight", "qwen35moe.ssm.inner_size"},
      {"qwen3next", "blk.0.ssm_ba.weight", "qwen3next.ssm.group_count"},
      {"granitehybrid", "blk.0.ssm_norm.weight", "granitehybrid.ssm.conv_kernel"},
      {"lfm2", "blk.0.shortconv.in_proj.weight", "lfm2.shortconv.l_cache"},
      {"nemotron_h", "blk.1.ffn_up.weight", "nemotron_h.ssm.time_step_rank"},
      {"smollm3", "blk.3.attn_output.weight", "smollm3.attention.head_count"},
      {"olmo2", "blk.1.attn_k_norm.weight", "olmo2.attention.layer_norm_rms_epsilon"},
      {"exaone4", "blk.3.post_ffw_norm.weight", "exaone4.embedding_length"},
      {"glm4", "blk.0.post_attention_norm.weight", "glm4.feed_forward_length"},
      {"mistral3", "blk.1.attn_q.weight", "mistral3.rope.scaling.original_context_length"},
      {"granitemoe", "blk.1.ffn_up_shexp.weight", "granitemoe.expert_used_count"},
      {"granite", "blk.1.ffn_gate.weight", "granite.context_length"},
      {"seed_oss", "blk.1.post_attention_norm.weight", "seed_oss.embedding_length"},
      {"ernie4_5", "blk.0.attn_norm.weight", "ernie4_5.context_length"},
      {"cohere2", "blk.2.attn_norm.weight", "cohere2.attention.layer_norm_epsilon"},
      {"starcoder2", "blk.1.ffn_up.weight", "starcoder2.attention.layer_norm_epsilon"},
      {"phi2", "blk.0.ffn_down.weight", "phi2.feed_forward_length"},
      {"stablelm", "blk.1.ffn_norm.weight", "stablelm.attention.layer_norm_epsilon"},
  };
  for (const auto& c : cases) {
    const std::string arch = std::string("'") + c.model + "'";
    EditedModel without_tensor(c.model), without_key(c.model), strange(c.model);
    without_tensor.Remove(c.tensor);
    ExpectBadModel(without_tensor.Bytes(), {c.tensor, arch.c_str()});
    ASSERT_EQ(without_key.metadata.erase(c.key), 1u) << c.key;
    ExpectBadModel(without_key.Bytes(), {c.key, arch.c_str()});
    strange.Tensor(c.tensor).name = "blk.0.router.weight";
    strange.tensors.push_back(EditedModel(c.model).Tensor(c.tensor));
    ExpectBadModel(strange.Bytes(), {"blk.0.router.weight", arch.c_str()});
  }
}

TEST_F(BadModelTest, WindowsAndCapsOutOfBounds) {
  const auto with = [](const char* model, const char* key, auto value) {
    EditedModel edited(model);
    edited.metadata[key].v = value;
    return edited.Bytes();
  };
  const double nan = std::numeric_limits<double>::quiet_NaN();
  ExpectBadModel(with("gemma2", "gemma2.attention.sliding_window", int64_t{-1}), {"sliding_window"});
  ExpectBadModel(with("gemma3", "gemma3.attention.sliding_window_pattern", int64_t{-6}), {"sliding_window_pattern"});
  ExpectBadModel(with("gemma2", "gemma2.attn_logit_softcapping", -1.0), {"attn_logit_softcapping"});
  ExpectBadModel(with("gemma2", "gemma2.final_logit_softcapping", nan), {"final_logit_softcapping"});
  ExpectBadModel(with("gemma2", "gemma2.attention.scale", 0.0), {"attention.scale"});
  ExpectBadModel(with("gemma3", "gemma3.rope.freq_base_swa", 0.0), {"freq_base_swa"});
  const std::vector<bool> two = {true, false};
  ExpectBadModel(with("exaone4", "exaone4.attention.sliding_window_pattern", two), {"sliding_window_pattern", "4"});
  ExpectBadModel(with("cohere2", "cohere2.logit_scale", 0.0), {"logit_scale"});
  ExpectBadModel(with("granite", "granite.residual_scale", -1.0), {"residual_scale"});
  ExpectBadModel(with("granite", "granite.embedding_scale", nan), {"embedding_scale"});
  ExpectBadModel(with("granite", "granite.logit_scale", 0.0), {"logit_scale"});
  ExpectBadModel(with("mistral3", "mistral3.attention.temperature_scale", -0.5), {"temperature_scale"});
  ExpectBadModel(with("mistral3", "mistral3.rope.scaling.yarn_log_multiplier", -1.0), {"yarn_log_multiplier"});
  ExpectBadModel(with("qwen", "qwen.feed_forward_length", int64_t{73}), {"feed_forward_length"});
  ExpectBadModel(with("gptneox", "gptneox.rope.dimension_count", int64_t{3}), {"dimension_count"});
  ExpectBadModel(with("gptneox", "gptneox.attention.head_count_kv", int64_t{1}), {"KV heads"});
}

// Layers that differ: lists for other layers, and sizes that do not fit each other.
TEST_F(BadModelTest, LayersThatDoNotFit) {
  const auto with = [](const char* model, const char* key, auto value) {
    EditedModel edited(model);
    edited.metadata[key].v = value;
    return edited.Bytes();
  };
  using List = std::vector<int64_t>;
  const std::string attention = "gemma4.attention.";
  ExpectBadModel(with("gemma4", "gemma4.feed_forward_length", List{24, 24}), {"feed_forward_length", "8 layers"});
  ExpectBadModel(with("gemma4", "gemma4.feed_forward_length", List{24, 24, 24, 24, 24, 48, 48, -1}), {"number -1"});
  ExpectBadModel(with("gemma4", "gemma4.feed_forward_length", List(8, 24)), {"blk.5.ffn_gate.weight"});
  ExpectBadModel(with("gemma4_k_eq_v", (attention + "head_count_kv").c_str(), List{4, 3, 4, 2}), {"3 KV heads"});
  ExpectBadModel(with("gemma4_k_eq_v", (attention + "head_count_kv").c_str(), List{4, 2, 2, 2}),
                 {"blk.2.attn_k.weight"});
  ExpectBadModel(with("gemma4", (attention + "sliding_window_pattern").c_str(), List{1, 1, 0}), {"8 layers"});
  ExpectBadModel(with("gemma4", (attention + "sliding_window_pattern").c_str(), List(8, 2)), {"number 2"});
  ExpectBadModel(with("gemma4", (attention + "key_length_swa").c_str(), int64_t{12}), {"window layers"});
  ExpectBadModel(with("gemma4", (attention + "key_length_swa").c_str(), int64_t{1 << 20}), {"key_length_swa"});
  ExpectBadModel(with("gemma4", (attention + "sliding_window").c_str(), int64_t{0}), {"sliding_window"});
  ExpectBadModel(with("gemma4", (attention + "shared_kv_layers").c_str(), int64_t{7}), {"keys and values"});
  ExpectBadModel(with("gemma4", (attention + "shared_kv_layers").c_str(), int64_t{8}), {"shared_kv_layers"});
  ExpectBadModel(with("gemma4", "gemma4.rope.dimension_count_swa", int64_t{3}), {"dimension_count_swa"});
  ExpectBadModel(with("gemma4", "gemma4.embedding_length_per_layer_input", int64_t{7}), {"per_layer"});
  // A projection that some layers without a window have and others lack.
  EditedModel half("gemma4");
  half.Remove("blk.4.attn_v.weight");
  ExpectBadModel(half.Bytes(), {"blk.4.attn_v.weight"});
  EditedModel unrotated("gemma4");
  unrotated.Remove("rope_freqs.weight");
  ExpectBadModel(unrotated.Bytes(), {"rope_freqs.weight"});
}

TEST_F(BadModelTest, ActivationsThatDoNotFit) {
  using List = std::vector<double>;
  for (const char* key : {"xielu.alpha_p", "xielu.alpha_n", "xielu.beta", "xielu.eps"}) {
    for (const List& bad : {List{1}, List{1, 1, 1}, List{1, std::nan("")}, List{1, 1e9}}) {
      EditedModel edited("apertus");
      edited.metadata[key].v = bad;
      ExpectBadModel(edited.Bytes(), {key, "'apertus'"});
    }
  }
  // The sizes with two norms in a layer.
  EditedModel two("falcon");
  EditedTensor norm = two.Tensor("blk.0.attn_norm.weight");
  norm.name = "blk.0.attn_norm_2.weight";
  two.tensors.push_back(norm);
  ExpectBadModel(two.Bytes(), {"blk.0.attn_norm_2.weight", "'falcon'"});
}

TEST_F(BadModelTest, StreamsThatDoNotFit) {
  const auto with = [](const char* key, auto value) {
    EditedModel edited("gemma3n");
    edited.metadata[std::string("gemma3n.") + key].v = value;
    return edited.Bytes();
  };
  using List = std::vector<double>;
  const double nan = std::numeric_limits<double>::quiet_NaN();
  ExpectBadModel(with("altup.num_inputs", int64_t{3}), {"altup_proj.weight"});
  ExpectBadModel(with("altup.num_inputs", int64_t{1} << 40), {"altup.num_inputs"});
  ExpectBadModel(with("altup.active_idx", int64_t{4}), {"altup.active_idx", "0 to 3"});
  ExpectBadModel(with("activation_sparsity_scale", List(5, 1.0)), {"activation_sparsity_scale", "6 layers"});
  ExpectBadModel(with("activation_sparsity_scale", List(6, nan)), {"activation_sparsity_scale"});
  ExpectBadModel(with("activation_sparsity_scale", List(6, 1e9)), {"activation_sparsity_scale", "1e+09"});
  ExpectBadModel(with("attention.shared_kv_layers", int64_t{5}), {"keys and values"});
  EditedModel wide("gemma3n");
  wide.Tensor("blk.0.laurel_l.weight").shape = {4, 64};
  ExpectBadModel(wide.Bytes(), {"laurel_l.weight"});
}

TEST_F(BadModelTest, ExpertsOutOfBounds) {
  const auto with = [](const char* model, const char* key, int64_t value) {
    EditedModel edited(model);
    edited.metadata[std::string(model == std::string("qwen3moe") ? "qwen3moe." : "llama.") + key].v = value;
    return edited.Bytes();
  };
  for (const int64_t count : {int64_t{-1}, int64_t{4097}, int64_t{1} << 40}) {
    ExpectBadModel(with("qwen3moe", "expert_count", count), {"expert_count", "0 to 4096"});
  }
  // As many as it can hold, and none: the tensors contradict both.
  ExpectBadModel(with("qwen3moe", "expert_count", 4096), {"blk.0.ffn_gate_inp.weight"});
  ExpectBadModel(with("qwen3moe", "expert_count", 0), {"blk.0.ffn_gate.weight", "missing"});
  ExpectBadModel(with("llama_experts", "expert_count", 0), {"blk.0.ffn_gate.weight", "missing"});
  ExpectBadModel(with("llama_experts", "expert_count", 3), {"blk.0.ffn_gate_inp.weight", "[4, 32]"});
  for (const int64_t used : {int64_t{0}, int64_t{7}, int64_t{1} << 33}) {
    ExpectBadModel(with("qwen3moe", "expert_used_count", used), {"expert_used_count", "1 to 6"});
  }
  ExpectBadModel(with("qwen3moe", "expert_feed_forward_length", 0), {"expert_feed_forward_length"});
  ExpectBadModel(with("qwen3moe", "expert_feed_forward_length", 31), {"width 31", "multiples of 16"});
  ExpectBadModel(with("qwen3moe", "expert_feed_forward_length", 1 << 20), {"blk.0.ffn_down_exps.weight"});
  // gpt-oss: every bias and sink, of the right length.
  for (const char* tensor : {"blk.1.attn_sinks.weight", "blk.0.ffn_gate_inp.bias", "blk.2.ffn_up_exps.bias"}) {
    EditedModel without("gpt_oss"), short_one("gpt_oss");
    without.Remove(tensor);
    ExpectBadModel(without.Bytes(), {tensor, "missing"});
    EditedTensor& cut = short_one.Tensor(tensor);
    cut.shape.back() -= 1;
    cut.data.resize(cut.data.size() / 4 * 4 - cut.data.size() / (cut.shape.back() + 1));
    ExpectBadModel(short_one.Bytes(), {tensor, "has shape"});
  }
  // An architecture without experts.
  EditedModel dense("qwen2");
  dense.metadata["qwen2.expert_count"].v = int64_t{8};
  ExpectBadModel(dense.Bytes(), {"no mixtures of experts", "8"});
  // A stack whose tensor is a matrix, and one that lacks a matrix.
  EditedModel flat("llama_experts"), short_one("llama_experts");
  EditedTensor& stack = flat.Tensor("blk.1.ffn_up_exps.weight");
  ASSERT_EQ(stack.shape.size(), 3u);
  stack.shape = {stack.shape[0] * stack.shape[1], stack.shape[2]};
  ExpectBadModel(flat.Bytes(), {"blk.1.ffn_up_exps.weight", "[128, 32]"});
  EditedTensor& cut = short_one.Tensor("blk.1.ffn_up_exps.weight");
  cut.shape[0] -= 1;
  cut.data.resize(cut.data.size() / 4 * 3);
  ExpectBadModel(short_one.Bytes(), {"blk.1.ffn_up_exps.weight", "[3, 32, 32]"});
}

// Recurrent layers: sizes that do not fit each other, and lists for other layers.
TEST_F(BadModelTest, StatesThatDoNotFit) {
  const auto with = [](const char* model, const char* key, auto value) {
    EditedModel edited(model);
    edited.metadata[std::string(model) + key].v = value;
    return edited.Bytes();
  };
  using List = std::vector<int64_t>;
  ExpectBadModel(with("qwen35", ".ssm.inner_size", int64_t{127}), {"inner_size", "127"});
  ExpectBadModel(with("qwen35", ".ssm.group_count", int64_t{3}), {"group_count", "3"});
  ExpectBadModel(with("qwen35", ".ssm.conv_kernel", int64_t{9}), {"conv_kernel", "1 to 8"});
  ExpectBadModel(with("qwen35", ".ssm.conv_kernel", int64_t{3}), {"blk.0.ssm_conv1d.weight"});
  ExpectBadModel(with("qwen35", ".ssm.time_step_rank", int64_t{1} << 40), {"time_step_rank"});
  ExpectBadModel(with("qwen35", ".full_attention_interval", int64_t{0}), {"full_attention_interval"});
  ExpectBadModel(with("qwen35", ".full_attention_interval", int64_t{3}), {"blk.2.attn_q.weight"});
  ExpectBadModel(with("qwen35", ".nextn_predict_layers", int64_t{4}), {"nextn_predict_layers"});
  ExpectBadModel(with("lfm2", ".attention.head_count_kv", List{0, 2, 0}), {"head_count_kv", "4 layers"});
  ExpectBadModel(with("lfm2", ".attention.head_count_kv", List{0, 0, 0, 0}), {"head_count_kv", "every layer"});
  ExpectBadModel(with("lfm2", ".attention.head_count_kv", List{0, 2, 0, -1}), {"head_count_kv", "-1"});
  ExpectBadModel(with("lfm2", ".attention.head_count_kv", List{0, 2, 0, 1}), {"head_count_kv"});
  ExpectBadModel(with("nemotron_h", ".feed_forward_length", List{0, 64, 0}), {"feed_forward_length", "4 layers"});
  ExpectBadModel(with("nemotron_h", ".feed_forward_length", int64_t{64}), {"an entry for each layer"});
  ExpectBadModel(with("granitehybrid", ".attention.head_count_kv", int64_t{2}), {"an entry for each layer"});
  EditedModel rotated("granitehybrid");
  rotated.metadata["granitehybrid.rope.scaling.finetuned"].v = true;
  ExpectBadModel(rotated.Bytes(), {"rotary"});
  EditedModel nan("qwen35");
  const float bad = NAN;
  std::memcpy(nan.Tensor("blk.0.ssm_a").data.data(), &bad, 4);
  ExpectBadModel(nan.Bytes(), {"blk.0.ssm_a", "not finite"});
}

TEST_F(BadModelTest, TruncatedFiles) {
  const std::string bytes = FileBytes(ModelPath("llama_tied"));
  ASSERT_GT(bytes.size(), 10000u);
  for (const size_t n : {size_t{0}, size_t{3}, size_t{4}, size_t{7}, size_t{23}, size_t{24}, size_t{100}, size_t{5000},
                         bytes.size() / 2, bytes.size() - 4096, bytes.size() - 1}) {
    ExpectBadModel(bytes.substr(0, n), {"bad.gguf"});
  }
}

TEST_F(BadModelTest, WhatIsNoModel) {
  ExpectBadModel("", {"bad.gguf"});
  ExpectBadModel("PK\x03\x04 this is a zip file of no interest to anyone", {"not a GGUF file"});
  ExpectBadModel(std::string(100000, '\0'), {"not a GGUF file"});
  ExpectError(RunWith(dir_.File("nowhere.gguf")), {"nowhere.gguf"});
  ExpectError(RunWith(dir_.path()), {"directory"});
  ExpectError(RunWith("/dev/null"), {"/dev/null"});
  ExpectError({"info", dir_.File("nowhere.gguf")}, {"nowhere.gguf"});
  ExpectError({"plan", "-m", dir_.Write("x", "x")}, {"x"});
  ExpectError(RunWith(std::string("\xff\xfe\n.gguf")), {});
}

TEST_F(BadModelTest, CountsAndVersions) {
  const std::string good = FileBytes(ModelPath("llama_tied"));
  const auto with = [&](size_t at, std::initializer_list<int> patch) {
    std::string bytes = good;
    for (const int b : patch) bytes[at++] = static_cast<char>(b);
    return bytes;
  };
  ExpectBadModel(with(4, {1, 0, 0, 0}), {"version 1"});
  ExpectBadModel(with(4, {99, 0, 0, 0}), {"version 99"});
  ExpectBadModel(with(4, {0, 0, 0, 3}), {"big-endian"});
  ExpectBadModel(with(8, {255, 255, 255, 255, 255, 255, 255, 255}), {"18446744073709551615"});
  ExpectBadModel(with(8, {0, 0, 0, 0, 1, 0, 0, 0}), {"4294967296"});
  ExpectBadModel(with(16, {255, 255, 255, 255, 255, 255, 255, 127}), {"9223372036854775807"});
  ExpectBadModel(with(24, {255, 255, 255, 255, 255, 255, 255, 255}),
                 {"18446744073709551615"});  // the first key's length
}

// Every bit of the head counts: the program refuses or runs (a name or an unread value may differ), it never crashes.
TEST_F(BadModelTest, FlippedBitsNeverCrash) {
  const std::string good = FileBytes(ModelPath("llama_tied"));
  uint64_t state = 12345;
  int refused = 0;
  for (int round = 0; round < 60; ++round) {
    std::string bytes = good;
    for (int flips = 0; flips < 4; ++flips) {
      state = state * 6364136223846793005u + 1442695040888963407u;
      const uint64_t bit = (state >> 20) % (round % 2 == 0 ? 2000 * 8 : bytes.size() * 8);
      bytes[bit / 8] = static_cast<char>(bytes[bit / 8] ^ (1 << (bit % 8)));
    }
    const RunResult run = Run(RunWith(dir_.Write("bad.gguf", bytes)));
    refused += run.code == 2;
    EXPECT_TRUE(run.code == 0 || run.code == 2)
        << "round " << round << " code " << run.code << " signal " << run.signal << "\n"
        << run.err;
    if (run.code == 2) {
      EXPECT_TRUE(StartsWith(Lines(run.err).back(), "weir: error: ")) << run.err;
    }
  }
  EXPECT_GT(refused, 20);
}

TEST_F(BadModelTest, TensorsThatDoNotFitTheArchitecture) {
  {
    EditedModel model("llama");
    model.Remove("blk.1.ffn_up.weight");
    ExpectBadModel(model.Bytes(), {"blk.1.ffn_up.weight", "missing"});
  }
  {
    EditedModel model("llama");
    model.Remove("token_embd.weight");
    ExpectBadModel(model.Bytes(), {"token_embd.weight", "missing"});
  }
  {
    EditedModel model("llama");
    EditedTensor extra = model.Tensor("blk.0.attn_norm.weight");
    extra.name = "blk.0.surprise.weight";
    model.tensors.push_back(extra);
    ExpectBadModel(model.Bytes(), {"blk.0.surprise.weight", "unknown"});
  }
  {
    EditedModel model("llama");  // a layer more than the metadata says
    model.metadata["llama.block_count"].v = int64_t{2};
    ExpectBadModel(model.Bytes(), {"blk.2."});
  }
  {
    EditedModel model("llama");
    std::swap(model.Tensor("blk.0.ffn_up.weight").shape[0], model.Tensor("blk.0.ffn_up.weight").shape[1]);
    ExpectBadModel(model.Bytes(), {"blk.0.ffn_up.weight", "shape [64, 96]", "expected [96, 64]"});
  }
  {
    EditedModel model("llama");
    model.Tensor("output_norm.weight").shape = {8, 8};
    ExpectBadModel(model.Bytes(), {"output_norm.weight", "shape"});
  }
}

TEST_F(BadModelTest, MetadataThatCannotBe) {
  const auto with = [](const std::string& key, decltype(GgufValue::v) value) {
    EditedModel model("llama");
    model.metadata[key].v = std::move(value);
    return model.Bytes();
  };
  const auto without = [](const std::string& key) {
    EditedModel model("llama");
    model.metadata.erase(key);
    return model.Bytes();
  };
  ExpectBadModel(with("general.architecture", std::string("mamba9")), {"mamba9", "not supported", "llama"});
  ExpectBadModel(without("general.architecture"), {"general.architecture", "missing"});
  ExpectBadModel(with("split.count", int64_t{3}), {"part 1 of 3", "-00001-of-00003.gguf"});
  ExpectBadModel(without("llama.block_count"), {"llama.block_count"});
  ExpectBadModel(with("llama.block_count", int64_t{1} << 40), {"llama.block_count"});
  ExpectBadModel(with("llama.block_count", std::string("three")), {"llama.block_count"});
  ExpectBadModel(with("llama.attention.head_count", int64_t{0}), {"llama.attention.head_count"});
  ExpectBadModel(with("llama.attention.head_count_kv", int64_t{3}), {"heads"});
  ExpectBadModel(with("llama.context_length", int64_t{-5}), {"llama.context_length"});
  const double nan = std::numeric_limits<double>::quiet_NaN(), inf = std::numeric_limits<double>::infinity();
  for (const double bad : {nan, inf, -1.0}) {
    ExpectBadModel(with("llama.attention.layer_norm_rms_epsilon", bad), {"layer_norm_rms_epsilon"});
    ExpectBadModel(with("llama.rope.freq_base", bad), {"freq_base"});
    ExpectBadModel(with("llama.rope.scaling.factor", bad), {"scaling.factor"});
  }
  ExpectBadModel(with("llama.rope.freq_base", 0.0), {"freq_base"});
  ExpectBadModel(with("llama.rope.scaling.type", std::string("spiral")), {"spiral", "yarn"});
  ExpectBadModel(without("tokenizer.ggml.tokens"), {"tokenizer.ggml.tokens"});
  ExpectBadModel(with("tokenizer.ggml.model", std::string("wordpiece9")), {"wordpiece9"});
}

TEST_F(BadModelTest, RopeNumbersThatAreNotFinite) {
  EditedModel yarn("llama_rope_yarn");
  yarn.metadata["llama.rope.scaling.original_context_length"].v = int64_t{0};
  ExpectBadModel(yarn.Bytes(), {"original_context_length"});
  for (const float bad : {NAN, INFINITY, 0.0f, -1.0f}) {
    EditedModel llama3("llama_rope_llama3");
    llama3.Tensor("rope_freqs.weight").SetFloat(1, bad);
    ExpectBadModel(llama3.Bytes(), {"rope_freqs.weight"});
  }
}

TEST_F(BadModelTest, TensorTypesThisBuildLacks) {
  // The type is a number in the header, after the dimensions: found by the tensor's name.
  std::string bytes = FileBytes(ModelPath("llama_tied"));
  const std::string name = "blk.0.ffn_down.weight";
  const size_t at = bytes.find(name);
  ASSERT_NE(at, std::string::npos);
  const size_t type_at = at + name.size() + 4 + 2 * 8;
  ASSERT_EQ(bytes[type_at], 0);  // F32
  bytes[type_at] = 9;            // Q8_1
  ExpectBadModel(bytes, {name, "Q8_1"});
  bytes[type_at] = 77;
  ExpectBadModel(bytes, {name, "77"});
}

TEST_F(BadModelTest, WeightsThatAreNotFinite) {
  for (const float bad : {NAN, INFINITY, -INFINITY}) {
    for (const char* name : {"blk.2.ffn_gate.weight", "blk.0.attn_norm.weight", "token_embd.weight", "output.weight"}) {
      EditedModel model("llama");
      EditedTensor& tensor = model.Tensor(name);
      tensor.SetFloat(tensor.data.size() / 4 - 1, bad);
      ExpectBadModel(model.Bytes(), {name});
    }
  }
  // The scale of a block comes first in it; 0x7e00 and 0x7c00 are binary16's NaN and infinity, 0x7f80 bfloat16's
  // infinity.
  struct Case {
    DType type;
    uint16_t bits;
  };
  for (const Case c : {Case{DType::kF16, 0x7e00},
                       {DType::kF16, 0x7c00},
                       {DType::kBF16, 0x7f80},
                       {DType::kQ8_0, 0x7e00},
                       {DType::kQ8_0, 0xfc00},
                       {DType::kQ4_0, 0x7e00},
                       {DType::kQ4_1, 0x7c00},
                       {DType::kQ5_0, 0x7e00}}) {
    for (const char* name : {"blk.1.attn_q.weight", "token_embd.weight"}) {
      EditedModel model("llama");
      EditedTensor& tensor = model.Convert(name, c.type);
      const std::string good = model.Bytes();
      std::memcpy(tensor.data.data() + RowBytes(c.type, tensor.shape.back()), &c.bits, 2);
      ExpectBadModel(model.Bytes(), {name});
      EXPECT_EQ(Run(RunWith(dir_.Write("bad.gguf", good))).code, 0) << InfoOf(c.type).name;
    }
  }
}

}  // namespace
}  // namespace weir::testing
