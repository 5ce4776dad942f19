// SPDX-License-Identifier: Apache-2.0
// Every model and encoder file of the goldens with one part left out: each key and each tensor in turn is either one
// that files may lack, or the error names it, the family whose rules it breaks, and nothing stays reserved.
#include <gtest/gtest.h>

#include <filesystem>

#include "cli/edited_model.h"
#include "model/architecture.h"
#include "support/golden.h"
#include "text/tokenizer.h"
#include "vision/encoder.h"

namespace weir {
namespace {

using testing::EditedModel;
using testing::EditedTensor;

// Keys that a family has a value for where the file has none. Without them a file may still be at odds with its
// tensors, which is an error about a tensor.
bool KeyMayBeMissing(const std::string& key) {
  constexpr const char* kEnds[] = {
      // what heads share, and their size
      ".attention.head_count_kv", ".attention.key_length", ".attention.value_length", ".attention.scale",
      // positions
      ".rope.dimension_count", ".rope.freq_base", ".rope.freq_base_swa", ".rope.scale_linear", ".rope.scaling.type",
      ".rope.scaling.factor", ".rope.scaling.original_context_length", ".rope.scaling.attn_factor",
      ".rope.scaling.yarn_ext_factor", ".rope.scaling.yarn_beta_fast", ".rope.scaling.yarn_beta_slow",
      ".rope.scaling.yarn_log_multiplier", ".rope.scaling.finetuned",
      // windows, caps, norms
      ".attention.sliding_window", ".attention.sliding_window_pattern", ".attn_logit_softcapping",
      ".final_logit_softcapping", ".full_attention_interval", ".rope.dimension_sections", ".use_parallel_residual",
      ".norm_before", ".vocab_size",
      // a name for the order of rows that every such file has
      ".tensor_data_layout",
      // which of several residual streams a layer reads
      ".altup.active_idx",
      // what only some sizes of a family have
      ".attention.shared_kv_layers", ".embedding_length_per_layer_input",
      // experts, and a factor
      ".expert_count", ".expert_feed_forward_length", ".expert_shared_feed_forward_length", ".expert_shared_count",
      ".expert_gating_func", ".expert_weights_norm", ".expert_weights_scale", ".expert_group_count",
      ".leading_dense_block_count", ".interleave_moe_layer_step", ".attention.temperature_scale",
      ".attention.clamp_kqv",
      // latents: what older files lack, and the large models alone have
      ".attention.key_length_mla", ".attention.q_lora_rank",
      // of encoders: what the oldest files mean by leaving it out
      "clip.projector_type", "clip.use_gelu", "clip.use_silu", "clip.has_text_encoder", "clip.has_llava_projector",
      "clip.vision.feature_layer", "clip.vision.projection_dim", "clip.vision.mm_patch_merge_type",
      "clip.vision.image_grid_pinpoints", "clip.vision.preproc_image_size", "clip.vision.image_min_pixels",
      "clip.vision.image_max_pixels", "weir.vision.fit", "weir.vision.split", "weir.vision.max_slices",
      "clip.minicpmv_query_num",
      // of InternVL's and Qwen's: what all released models have
      "clip.vision.preproc_min_tiles", "clip.vision.preproc_max_tiles", "clip.vision.window_size",
      "clip.vision.tokens_per_second", "clip.vision.spatial_merge_size", "clip.vision.is_deepstack_layers",
      ".n_deepstack_layers"};
  return std::any_of(std::begin(kEnds), std::end(kEnds), [&](const char* end) { return key.ends_with(end); });
}

// Heads tied to the embedding, factors of positions and of layers, biases of linear layers, projections of Gemma 3n's
// layers that read another's keys.
bool TensorMayBeMissing(const std::string& family, const std::string& name) {
  if (name == "output.weight" || name.starts_with("rope_f") || name.ends_with(".layer_output_scale.weight"))
    return true;
  if (family == "gemma3n" && (name.starts_with("blk.4.attn_") || name.starts_with("blk.5.attn_"))) {
    return name.find("attn_k") != std::string::npos || name.find("attn_v") != std::string::npos;
  }
  if (name == "resampler.pos_embed_k" && family == "resampler") return true;  // computed for every picture
  if (name.ends_with("put_min") || name.ends_with("put_max")) return true;    // bounds of Gemma 4's encoder
  return name.ends_with(".bias") && name.find("norm") == std::string::npos && name.find("ln") == std::string::npos &&
         name != "mm.model.mlp.0.bias";  // a norm's
}

class HalfKnownTest : public ::testing::TestWithParam<std::string> {
 protected:
  void SetUp() override {
    good_ = EditedModel::FromFile(GetParam());
    architecture_ = std::get<std::string>(good_.metadata.at("general.architecture").v);
    family_ = architecture_;
    for (const char* key : {"clip.projector_type", "clip.vision.projector_type"}) {
      const auto at = good_.metadata.find(key);
      if (at != good_.metadata.end()) family_ = std::get<std::string>(at->second.v);
    }
    if (family_ == "clip") family_ = "mlp";
    has_words_ = good_.metadata.contains("tokenizer.ggml.model");
  }

  Status Load(const EditedModel& edited) const {
    const std::string bytes = edited.Bytes();
    const std::span<const uint8_t> view(reinterpret_cast<const uint8_t*>(bytes.data()), bytes.size());
    auto file = GgufFile::Parse(view, "half.gguf");
    if (!file.ok()) return file.status();
    auto backend = MakeRefBackend();
    Ledger ledger;
    Status status;
    if (architecture_ == "clip") {
      status = LoadEncoder(**file, *backend, ledger).status();
    } else {
      status = LoadModel(**file, *backend, ledger).status();
      if (status.ok() && has_words_) status = Tokenizer::Load(**file).status();
    }
    EXPECT_EQ(ledger.used_bytes(), 0);
    return status;
  }

  void ExpectNames(const Status& status, const std::string& what) const {
    EXPECT_FALSE(status.ok()) << what;
    const std::string& message = status.message();
    EXPECT_NE(message.find(what), std::string::npos) << what << ": " << message;
    EXPECT_EQ(message.find('\n'), std::string::npos) << message;
  }
  void ExpectNamesFamily(const Status& status) const {
    EXPECT_NE(status.message().find("'" + family_ + "'"), std::string::npos) << status.message();
  }

  EditedModel good_;
  std::string architecture_, family_;
  bool has_words_ = false;
};

TEST_P(HalfKnownTest, TheWholeFileLoads) { EXPECT_TRUE(Load(good_).ok()) << Load(good_).message(); }

TEST_P(HalfKnownTest, EveryKey) {
  int n_refused = 0;
  for (const auto& [key, value] : good_.metadata) {
    // Names and licences; numbers of tokens that every vocabulary has.
    if (key.starts_with("general.") && key != "general.architecture") continue;
    SCOPED_TRACE(key);
    EditedModel edited = good_;
    edited.metadata.erase(key);
    const Status status = Load(edited);
    if (key.starts_with("tokenizer.")) {
      const bool needed =
          key.ends_with(".tokens") || key.ends_with(".model") || key.ends_with(".merges") || key.ends_with(".scores");
      if (needed && !status.ok()) ExpectNames(status, key);
      // Byte-level vocabularies need no scores, the others no merges.
      if (key.ends_with(".tokens") || key.ends_with(".model")) {
        EXPECT_FALSE(status.ok());
      }
      if (!needed) {
        EXPECT_TRUE(status.ok()) << status.message();
      }
      continue;
    }
    n_refused += !status.ok();
    // What files of Gemma 3, Gemma 4 and LFM2-VL mean by leaving these out is wrong for such small ones.
    const bool of_size = key == "clip.vision.projector.scale_factor" || key.starts_with("weir.vision.");
    if (of_size && (family_ == "gemma3" || family_ == "gemma4v" || family_ == "lfm2")) {
      if (!status.ok()) ExpectNamesFamily(status);
      continue;
    }
    if (KeyMayBeMissing(key)) {
      if (status.ok()) continue;
      if (key.ends_with("projector_type")) {
        ExpectNames(status, "'mlp'");  // which a file without the key is read as
        continue;
      }
      ExpectNamesFamily(status);
      EXPECT_TRUE(status.message().find("tensor") != std::string::npos ||
                  status.message().find(key) != std::string::npos)
          << status.message();
      continue;
    }
    // It has both kinds, since readers ask for either.
    if (family_.starts_with("nemotron_h") && key.ends_with("_epsilon")) {
      EXPECT_TRUE(status.ok()) << status.message();
      continue;
    }
    // With experts in every layer, theirs is the only width.
    if (key.ends_with(".feed_forward_length") && good_.metadata.contains(architecture_ + ".expert_count")) {
      EXPECT_TRUE(status.ok() || status.message().find("feed_forward_length") != std::string::npos) << status.message();
      continue;
    }
    // What takes pictures of any size has no use for one.
    if (key == "clip.vision.image_size" &&
        (family_.ends_with("vl_merger") || family_ == "lfm2" || family_ == "gemma4v")) {
      EXPECT_TRUE(status.ok()) << status.message();
      continue;
    }
    if (key == "clip.has_vision_encoder") {
      ExpectNames(status, "no vision encoder");
      continue;
    }
    ExpectNames(status, key);
    if (key != "general.architecture") ExpectNamesFamily(status);
  }
  EXPECT_GE(n_refused, 6);
}

TEST_P(HalfKnownTest, EveryTensor) {
  int n_refused = 0;
  // Blocks after the layer whose features are used are in the file but not read.
  int64_t n_read = 1 << 20;
  if (family_ == "mlp") {
    const auto layer = good_.metadata.find("clip.vision.feature_layer");
    n_read = layer != good_.metadata.end() ? std::get<std::vector<int64_t>>(layer->second.v).front()
                                           : std::get<int64_t>(good_.metadata.at("clip.vision.block_count").v);
  }
  for (const EditedTensor& tensor : good_.tensors) {
    int block = 0;
    if (std::sscanf(tensor.name.c_str(), "v.blk.%d.", &block) == 1 && block >= n_read) continue;
    SCOPED_TRACE(tensor.name);
    EditedModel edited = good_;
    edited.Remove(tensor.name);
    const Status status = Load(edited);
    n_refused += !status.ok();
    if (status.ok()) {
      EXPECT_TRUE(TensorMayBeMissing(family_, tensor.name));
      continue;
    }
    // A block that lost the first tensor of an optional part is at odds with the next one.
    const size_t cross = tensor.name.find("cross_attn");
    ExpectNames(status, cross == std::string::npos ? tensor.name : tensor.name.substr(0, cross + 10));
    ExpectNamesFamily(status);
  }
  EXPECT_GE(n_refused, 6);
}

TEST_P(HalfKnownTest, ATensorNobodyKnows) {
  EditedModel edited = good_;
  EditedTensor extra = edited.tensors.back();
  extra.name = "surprise.weight";
  edited.tensors.push_back(extra);
  const Status status = Load(edited);
  ExpectNames(status, "surprise.weight");
  ExpectNamesFamily(status);
}

TEST_P(HalfKnownTest, AFamilyNobodyKnows) {
  EditedModel edited = good_;
  const bool encoder = architecture_ == "clip";
  edited.metadata[encoder ? "clip.projector_type" : "general.architecture"].v = std::string("hologram");
  edited.metadata.erase("clip.vision.projector_type");
  const Status status = Load(edited);
  ExpectNames(status, "'hologram' is not supported");
  // What is supported.
  if (encoder) {
    for (const EncoderInfo* info : AllEncoderInfos()) ExpectNames(status, info->projector);
  } else {
    for (const ArchitectureInfo* info : AllArchitectureInfos()) ExpectNames(status, info->name);
  }
}

INSTANTIATE_TEST_SUITE_P(Files, HalfKnownTest, ::testing::ValuesIn(testing::GoldenModelFiles()),
                         [](const auto& info) { return std::filesystem::path(info.param).stem().string(); });

}  // namespace
}  // namespace weir
