// SPDX-License-Identifier: Apache-2.0
// Tensors that hold several matrices (Phi-3's qkv and gate_up, GPT-NeoX's and Qwen's qkv) are cut apart while loading,
// in every type of storage: a cut at the wrong byte would read another matrix's blocks.
#include <gtest/gtest.h>

#include <cstring>
#include <string>
#include <vector>

#include "cli/edited_model.h"
#include "engine/session.h"
#include "quant/format.h"
#include "support/tiny.h"

namespace weir {
namespace {

using testing::EditedModel;
using testing::EditedTensor;
using testing::RelativeError;

bool IsFused(const std::string& model, const std::string& name) {
  return name.ends_with("attn_qkv.weight") || (model == "phi3" && name.ends_with("ffn_up.weight"));
}

std::vector<float> Logits(const EditedModel& model) {
  const std::string text = model.Bytes();
  const std::vector<uint8_t> bytes(text.begin(), text.end());
  auto file = GgufFile::Parse(bytes, "memory");
  EXPECT_TRUE(file.ok()) << file.status().message();
  Ledger ledger;
  auto backend = MakeCpuBackend(2);
  auto loaded = LoadModel(**file, *backend, ledger);
  EXPECT_TRUE(loaded.ok()) << loaded.status().message();
  if (!loaded.ok()) return {};
  SessionOptions options;
  options.policy = std::move(ParsePolicySpec("full")).value();
  options.pot_slots = 32;
  options.k_type = options.v_type = DType::kF32;
  auto session = std::move(Session::Make(**loaded, *backend, options)).value();
  EXPECT_TRUE(session->Append(testing::RandomTokens(24, (*loaded)->config().n_vocab)).ok());
  return testing::LogitsOf(*session);
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
      const std::vector<float> got = Logits(stored), want = Logits(decoded);
      ASSERT_EQ(got.size(), want.size());
      // Block formats meet activations of 8 bits.
      EXPECT_LT(RelativeError(got.data(), want.data(), want.size()), type == DType::kF16 ? 1e-4 : 5e-2);
    }
  }
}

}  // namespace
}  // namespace weir
