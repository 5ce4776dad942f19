// SPDX-License-Identifier: Apache-2.0
// Tensors that hold several matrices (Phi-3's qkv and gate_up, GPT-NeoX's and Qwen's qkv) are cut apart while loading,
// in every type of storage: a cut at the wrong byte would read another matrix's blocks.
#include <gtest/gtest.h>

#include <cstring>
#include <string>
#include <vector>

#include "conformance/edited_logits.h"
#include "quant/format.h"

namespace weir {
namespace {

using testing::EditedLogits;
using testing::EditedModel;
using testing::EditedTensor;
using testing::RelativeError;

bool IsFused(const std::string& model, const std::string& name) {
  return name.ends_with("attn_qkv.weight") || (model == "phi3" && name.ends_with("ffn_up.weight"));
}

TEST(Fused, AnyTypeGivesWhatItsDecodedWeightsGive) {
  for (const char* name : {"phi3", "gptneox", "qwen"}) {
    for (DType type : {DType::kF16, DType::kQ8_0, DType::kQ4_1, DType::kQ5_0}) {
      SCOPED_TRACE(std::string(name) + " as " + InfoOf(type).name);
      EditedModel stored(name), decoded(name);
      int n_fused = 0;
      for (EditedTensor& tensor : decoded.tensors) {
        if (!IsFused(name, tensor.name)) continue;
        ++n_fused;
        const EditedTensor& encoded = stored.Convert(tensor.name, type);
        const int64_t n = tensor.shape.back();
        for (int64_t r = 0; r < tensor.shape.front(); ++r) {
          DecodeRow(type, encoded.data.data() + r * RowBytes(type, n), n,
                    reinterpret_cast<float*>(tensor.data.data()) + r * n);
        }
      }
      ASSERT_GE(n_fused, 2);
      const std::vector<float> got = EditedLogits(stored), want = EditedLogits(decoded);
      ASSERT_EQ(got.size(), want.size());
      // Block formats meet activations of 8 bits.
      EXPECT_LT(RelativeError(got.data(), want.data(), want.size()), type == DType::kF16 ? 1e-4 : 5e-2);
    }
  }
}

// Of each of n equal parts, the rows of every tensor in `parts`, one after the other, in place of them.
void Fuse(EditedModel& model, const std::vector<std::string>& parts, const std::string& name, int64_t n = 1) {
  EditedTensor fused = model.Tensor(parts.front());
  fused.name = name;
  fused.data.clear();
  fused.shape[fused.shape.size() == 3 ? 1 : 0] = 0;
  for (int64_t i = 0; i < n; ++i) {
    for (const std::string& part : parts) {
      const EditedTensor& from = model.Tensor(part);
      const int64_t bytes = std::ssize(from.data) / n;
      fused.data.insert(fused.data.end(), from.data.begin() + i * bytes, from.data.begin() + (i + 1) * bytes);
    }
  }
  for (const std::string& part : parts) {
    const EditedTensor& from = model.Tensor(part);
    fused.shape[from.shape.size() == 3 ? 1 : 0] += from.shape[from.shape.size() == 3 ? 1 : 0];
    model.Remove(part);
  }
  model.tensors.push_back(fused);
}

TEST(Fused, QueriesKeysAndValuesOfAnyFamily) {
  for (const char* name : {"qwen3", "llama_bias", "granite"}) {  // the last two reorder rows
    SCOPED_TRACE(name);
    const EditedModel apart(name);
    EditedModel fused = apart;
    for (const char* layer : {"blk.0.", "blk.1."}) {
      const std::string at = std::string(layer) + "attn_";
      Fuse(fused, {at + "q.weight", at + "k.weight", at + "v.weight"}, at + "qkv.weight");
      if (std::string(name) == "llama_bias") {
        Fuse(fused, {at + "q.bias", at + "k.bias", at + "v.bias"}, at + "qkv.bias");
      }
    }
    EXPECT_EQ(EditedLogits(fused), EditedLogits(apart));
  }
}

// Newer converters write every expert's gate and up as one matrix.
TEST(Fused, GatesOfExperts) {
  for (const char* name : {"qwen3moe", "gpt_oss", "qwen3next"}) {
    SCOPED_TRACE(name);
    const EditedModel apart(name);
    EditedModel fused = apart;
    for (int layer = 0; layer < 3; ++layer) {
      const std::string at = "blk." + std::to_string(layer) + ".ffn_";
      for (const std::string kind : {".weight", ".bias"}) {
        if (std::ranges::none_of(apart.tensors, [&](const EditedTensor& t) { return t.name == at + "up_exps" + kind; }))
          continue;
        const int64_t n = apart.tensors.empty() ? 0 : EditedModel(apart).Tensor(at + "up_exps" + kind).shape.front();
        Fuse(fused, {at + "gate_exps" + kind, at + "up_exps" + kind}, at + "gate_up_exps" + kind, n);
        if (kind == ".bias") {  // [experts, 2 n_ff]
          EditedTensor& bias = fused.tensors.back();
          bias.shape = {n, std::ssize(bias.data) / 4 / n};
        }
      }
    }
    EXPECT_NE(fused.tensors.size(), apart.tensors.size());
    EXPECT_EQ(EditedLogits(fused), EditedLogits(apart));
  }
}

}  // namespace
}  // namespace weir
