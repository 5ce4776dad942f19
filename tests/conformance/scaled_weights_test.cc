// SPDX-License-Identifier: Apache-2.0
// Files with a scale beside each matrix (NVFP4's second one): the same numbers as files whose matrices hold it.
#include <gtest/gtest.h>

#include <cstring>
#include <limits>
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

// Those that llama.cpp looks for.
bool MayHaveScale(const std::string& name) {
  for (const char* part : {"attn_q", "attn_k", "attn_v", "attn_output", "attn_qkv", "attn_gate", "ffn_gate", "ffn_down",
                           "ffn_up", "ffn_gate_shexp", "ffn_down_shexp", "ffn_up_shexp", "ffn_gate_exps",
                           "ffn_down_exps", "ffn_up_exps", "ssm_in", "ssm_out", "ssm_alpha", "ssm_beta"}) {
    if (name.starts_with("blk.") && name.ends_with(std::string(".") + part + ".weight")) return true;
  }
  return false;
}

EditedTensor Floats(const std::string& name, const std::vector<float>& values) {
  EditedTensor out = {name, DType::kF32, {std::ssize(values)}, std::vector<uint8_t>(values.size() * 4)};
  std::memcpy(out.data.data(), values.data(), out.data.size());
  return out;
}

// The same model: every matrix, of a stack each of them, divided by a number of its own that stands beside it.
EditedModel Divided(const EditedModel& model, int* n_scales) {
  EditedModel out = model;
  *n_scales = 0;
  for (const EditedTensor& whole : model.tensors) {
    if (!MayHaveScale(whole.name)) continue;
    EditedTensor& tensor = out.Tensor(whole.name);
    const size_t n = tensor.shape.size() == 3 ? static_cast<size_t>(tensor.shape[0]) : 1;
    std::vector<float> values(tensor.data.size() / 4), scales;
    std::memcpy(values.data(), tensor.data.data(), tensor.data.size());
    for (size_t i = 0; i < n; ++i) scales.push_back(0.0021f * static_cast<float>(1 + (*n_scales)++ % 17));
    for (size_t i = 0; i < values.size(); ++i) values[i] /= scales[i / (values.size() / n)];
    std::memcpy(tensor.data.data(), values.data(), tensor.data.size());
    const std::string stem = whole.name.substr(0, whole.name.size() - 6);
    out.tensors.push_back(Floats(stem + "scale", scales));
    out.tensors.push_back(Floats(stem + "input_scale", std::vector<float>(n, 77.0f)));
  }
  return out;
}

class ScaledWeights : public ::testing::TestWithParam<const char*> {};

TEST_P(ScaledWeights, GiveTheSameLogits) {
  const EditedModel model(GetParam());
  int n_scales = 0;
  const EditedModel divided = Divided(model, &n_scales);
  EXPECT_GE(n_scales, 8);
  const std::vector<float> want = EditedLogits(model);
  for (const bool simd : {false, true}) {
    const std::vector<float> got = EditedLogits(divided, simd ? MakeCpuBackend(2) : MakeRefBackend());
    ASSERT_EQ(got.size(), want.size());
    EXPECT_LT(RelativeError(got.data(), want.data(), want.size()), 1e-4) << simd;
  }
}

// Biases, fused and interleaved rows, experts of every kind, a shared one, recurrences, latents, several streams.
INSTANTIATE_TEST_SUITE_P(Models, ScaledWeights,
                         ::testing::Values("llama", "llama_bias", "qwen3", "phi3", "gptneox", "gemma3", "gemma3n",
                                           "gpt_oss", "qwen3moe", "qwen2moe", "nemotron_h_moe", "qwen35", "qwen35moe",
                                           "falcon_h1", "deepseek2"),
                         [](const auto& info) { return std::string(info.param); });

// Gate and up of an expert in one matrix, with one scale.
TEST(ScaledWeightsOf, FusedExperts) {
  EditedModel model("qwen3moe");
  const EditedModel plain = model;
  for (const EditedTensor& gate : plain.tensors) {
    if (!gate.name.ends_with("ffn_gate_exps.weight")) continue;
    const std::string blk = gate.name.substr(0, gate.name.find("ffn_"));
    EditedTensor both = gate;
    const std::vector<uint8_t> up = model.Tensor(blk + "ffn_up_exps.weight").data;
    const size_t n = static_cast<size_t>(gate.shape[0]), bytes = gate.data.size() / n;
    both.name = blk + "ffn_gate_up_exps.weight";
    both.shape[1] *= 2;
    both.data.clear();
    std::vector<float> scales;
    for (size_t e = 0; e < n; ++e) {
      scales.push_back(0.1f * static_cast<float>(e + 1));
      for (const auto* part : {&gate.data, &up}) {
        std::vector<float> values(bytes / 4);
        std::memcpy(values.data(), part->data() + e * bytes, bytes);
        for (float& value : values) value /= scales.back();
        const auto* from = reinterpret_cast<const uint8_t*>(values.data());
        both.data.insert(both.data.end(), from, from + bytes);
      }
    }
    model.Remove(gate.name);
    model.Remove(blk + "ffn_up_exps.weight");
    model.tensors.push_back(both);
    model.tensors.push_back(Floats(blk + "ffn_gate_up_exps.scale", scales));
  }
  const std::vector<float> got = EditedLogits(model), want = EditedLogits(plain);
  ASSERT_EQ(got.size(), want.size());
  EXPECT_LT(RelativeError(got.data(), want.data(), want.size()), 1e-4);
}

void ExpectRefused(EditedModel model, const std::vector<float>& scales, const std::string& name,
                   const std::string& what) {
  model.tensors.push_back(Floats(name, scales));
  const Status status = LoadEdited(model);
  ASSERT_FALSE(status.ok()) << name;
  EXPECT_NE(status.message().find(name), std::string::npos) << status.message();
  EXPECT_NE(status.message().find(what), std::string::npos) << status.message();
  EXPECT_EQ(status.message().find('\n'), std::string::npos) << status.message();
}

TEST(ScaledWeightsOf, FilesThatDoNotFit) {
  const EditedModel dense("llama"), experts("qwen3moe");
  const float nan = std::numeric_limits<float>::quiet_NaN();
  ExpectRefused(dense, {0}, "blk.0.attn_q.scale", "positive");
  ExpectRefused(dense, {-1}, "blk.1.ffn_up.scale", "positive");
  ExpectRefused(dense, {1e38f}, "blk.1.ffn_up.scale", "positive");
  ExpectRefused(dense, {nan}, "blk.1.ffn_up.scale", "finite");
  ExpectRefused(dense, {1, 1}, "blk.0.attn_q.scale", "shape");
  ExpectRefused(dense, {1, 1}, "blk.0.attn_q.input_scale", "shape");
  ExpectRefused(experts, std::vector<float>(5, 1.0f), "blk.0.ffn_up_exps.scale", "shape");
  // Of heads and tables none is known, and none that has no matrix.
  ExpectRefused(dense, {1}, "output.scale", "unknown");
  ExpectRefused(dense, {1}, "token_embd.scale", "unknown");
  ExpectRefused(dense, {1}, "blk.0.attn_norm.scale", "unknown");
  ExpectRefused(dense, {1}, "blk.9.attn_q.scale", "unknown");
}

}  // namespace
}  // namespace weir
