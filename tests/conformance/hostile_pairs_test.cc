// SPDX-License-Identifier: Apache-2.0
// Encoder files and OPT models that were damaged in one place: each is refused in words that name the place, none
// crashes, and nothing stays reserved. What the programs make of such files is in tests/cli/bad_encoder_test.cc.
#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <set>

#include "cli/edited_model.h"
#include "model/architecture.h"
#include "vision/encoder.h"

namespace weir {
namespace {

using testing::EditedModel;
using testing::EditedTensor;

struct Case {
  const char* name;
  bool encoder;
  std::vector<std::string> sizes;   // whole numbers that must be there and be sane
  std::vector<std::string> floats;  // numbers that must be there, finite and not negative
  int n_blocks_read;                // blocks of the vision transformer from here on are in the file and not read
  std::string path() const {
    return encoder || std::string(name) == "blip2_opt" ? testing::VisionPath(std::string(name) + ".gguf")
                                                       : testing::ModelPath(name);
  }
};

const std::vector<std::string> kVit = {"clip.vision.image_size",       "clip.vision.patch_size",
                                       "clip.vision.embedding_length", "clip.vision.feed_forward_length",
                                       "clip.vision.block_count",      "clip.vision.attention.head_count"};
// Of encoders that take pictures of any size, whose feed-forward part is as wide as its tensors.
const std::vector<std::string> kAnySize = {"clip.vision.patch_size", "clip.vision.embedding_length",
                                           "clip.vision.block_count", "clip.vision.attention.head_count"};
const std::vector<std::string> kNaFlex = {"clip.vision.patch_size", "clip.vision.embedding_length",
                                          "clip.vision.feed_forward_length", "clip.vision.block_count",
                                          "clip.vision.attention.head_count"};
const std::vector<std::string> kOpt = {"opt.block_count", "opt.embedding_length", "opt.feed_forward_length",
                                       "opt.context_length", "opt.attention.head_count"};

std::vector<std::string> With(std::vector<std::string> list, const std::vector<std::string>& more) {
  list.insert(list.end(), more.begin(), more.end());
  return list;
}

std::vector<Case> Cases() {
  const std::string q = "clip.vision.qformer.", eps = "attention.layer_norm_epsilon";
  const std::vector<std::string> queries = {q + "query_count", q + "embedding_length", q + "feed_forward_length",
                                            q + "block_count", q + "attention.head_count"};
  return {{"blip2", true, With(kVit, queries), {"clip.vision." + eps, q + eps}, 1 << 20},
          {"clip", true, kVit, {"clip.vision." + eps}, 3},
          {"clip_next", true, kVit, {"clip.vision." + eps}, 3},
          {"gemma3_vision", true, kVit, {"clip.vision." + eps}, 1 << 20},
          {"gemma4_large_vision", true, kNaFlex, {"clip.vision." + eps}, 1 << 20},
          {"gemma4_vision", true, kNaFlex, {"clip.vision." + eps}, 1 << 20},
          {"internvl", true, With(kVit, {"clip.vision.projector.scale_factor"}), {"clip.vision." + eps}, 1 << 20},
          {"lfm2_vision", true, kNaFlex, {"clip.vision." + eps}, 1 << 20},
          {"minicpmv", true, kNaFlex, {"clip.vision." + eps}, 1 << 20},
          {"mistral3_pixtral", true, kNaFlex, {"clip.vision." + eps}, 1 << 20},
          {"pixtral", true, kNaFlex, {"clip.vision." + eps}, 1 << 20},
          {"qwen25vl_merger", true, kAnySize, {"clip.vision." + eps}, 1 << 20},
          {"qwen3vl_merger", true, kAnySize, {"clip.vision." + eps}, 1 << 20},
          {"blip2_opt", false, kOpt, {"opt." + eps}, 0},
          {"opt", false, kOpt, {"opt." + eps}, 0},
          {"opt_norm_after", false, kOpt, {"opt." + eps}, 0}};
}

class HostilePairs : public ::testing::TestWithParam<Case> {
 protected:
  // What loading the file says.
  Status Load(const EditedModel& edited) {
    const std::string bytes = edited.Bytes();
    const std::span<const uint8_t> view(reinterpret_cast<const uint8_t*>(bytes.data()), bytes.size());
    auto file = GgufFile::Parse(view, "bad.gguf");
    if (!file.ok()) return file.status();
    auto backend = MakeRefBackend();
    Ledger ledger;
    const Status status = GetParam().encoder ? LoadEncoder(**file, *backend, ledger).status()
                                             : LoadModel(**file, *backend, ledger).status();
    EXPECT_EQ(ledger.used_bytes(), 0);
    return status;
  }
  void ExpectRefused(const EditedModel& edited, const std::string& word) {
    const Status status = Load(edited);
    EXPECT_FALSE(status.ok()) << word;
    EXPECT_NE(status.message().find(word), std::string::npos) << word << ": " << status.message();
    EXPECT_EQ(status.message().find('\n'), std::string::npos);
  }
  EditedModel Good() const { return EditedModel::FromFile(GetParam().path()); }
  // Biases of linear layers may be missing, those of norms may not.
  static bool MayBeMissing(const std::string& name) {
    if (name.ends_with("put_min") || name.ends_with("put_max")) return true;  // bounds of Gemma 4's
    return name.ends_with(".bias") && name.find("norm") == std::string::npos && name.find("ln") == std::string::npos &&
           name != "mm.model.mlp.0.bias";  // a norm's
  }
  static size_t ElementBytes(const EditedTensor& tensor) { return tensor.type == DType::kF16 ? 2 : 4; }
  bool IsRead(const std::string& name) const {
    int block = 0;
    if (name == "resampler.pos_embed_k" && GetParam().name == std::string("minicpmv")) return false;
    return std::sscanf(name.c_str(), "v.blk.%d.", &block) != 1 || block < GetParam().n_blocks_read;
  }
  // An error about a block that lost its first tensor may name the next one.
  static std::string BlockOf(const std::string& name) {
    const size_t cross = name.find("cross_attn");
    return cross == std::string::npos ? name : name.substr(0, cross + 10);
  }
};

TEST_P(HostilePairs, TheUndamagedFileLoads) { EXPECT_TRUE(Load(Good()).ok()) << Load(Good()).message(); }

TEST_P(HostilePairs, EveryTensorIsNeeded) {
  const EditedModel good = Good();
  for (const EditedTensor& tensor : good.tensors) {
    if (!IsRead(tensor.name)) continue;
    SCOPED_TRACE(tensor.name);
    EditedModel edited = good;
    edited.Remove(tensor.name);
    if (MayBeMissing(tensor.name)) {
      EXPECT_TRUE(Load(edited).ok()) << Load(edited).message();
    } else if (tensor.name != "output.weight") {  // tied to the embedding where there is none
      ExpectRefused(edited, BlockOf(tensor.name));
    }
  }
}

TEST_P(HostilePairs, EveryShapeIsChecked) {
  const EditedModel good = Good();
  for (const EditedTensor& tensor : good.tensors) {
    if (!IsRead(tensor.name)) continue;
    SCOPED_TRACE(tensor.name);
    if (tensor.shape == std::vector<int64_t>{1}) {
      EditedModel twice = good;
      EditedTensor& pair = twice.Tensor(tensor.name);
      pair.shape = {2};
      pair.data.insert(pair.data.end(), tensor.data.begin(), tensor.data.end());
      ExpectRefused(twice, "shape");
      continue;
    }
    // The same bytes in another shape, and half of them.
    EditedModel folded = good, cut = good;
    EditedTensor& flat = folded.Tensor(tensor.name);
    if (flat.shape.size() == 1) {
      flat.shape = {2, flat.shape[0] / 2};
    } else {
      flat.shape = {static_cast<int64_t>(flat.data.size() / ElementBytes(flat))};
    }
    EditedTensor& half = cut.Tensor(tensor.name);
    half.shape.front() /= 2;
    half.data.resize(half.data.size() / 2);
    ExpectRefused(folded, "shape");
    // The embedding's rows say how large the vocabulary is.
    if (tensor.shape.front() % 2 == 0 && tensor.name != "token_embd.weight") ExpectRefused(cut, "shape");
  }
}

TEST_P(HostilePairs, NumbersThatAreNone) {
  const EditedModel good = Good();
  for (const EditedTensor& tensor : good.tensors) {
    if (!IsRead(tensor.name) || tensor.type != DType::kF32) continue;
    EditedModel edited = good;
    EditedTensor& bad = edited.Tensor(tensor.name);
    // Tables of positions may have more than are kept.
    bad.SetFloat(tensor.name == "v.position_embd.weight" ? 0 : bad.data.size() / 4 - 1, NAN);
    ExpectRefused(edited, tensor.name);
  }
}

TEST_P(HostilePairs, ATensorNobodyKnows) {
  EditedModel edited = Good();
  EditedTensor extra = edited.tensors.back();
  extra.name = "surprise.weight";
  edited.tensors.push_back(extra);
  ExpectRefused(edited, "surprise.weight");
}

TEST_P(HostilePairs, EverySizeIsNeededAndBounded) {
  const EditedModel good = Good();
  for (const std::string& key : GetParam().sizes) {
    EditedModel without = good;
    ASSERT_EQ(without.metadata.erase(key), 1u) << key;
    ExpectRefused(without, key);
    for (const int64_t size : {int64_t{0}, int64_t{-1}, int64_t{1} << 40, std::numeric_limits<int64_t>::min()}) {
      EditedModel edited = good;
      edited.metadata[key].v = size;
      ExpectRefused(edited, key);
    }
    for (const GgufValue& value :
         {GgufValue{std::string("three")}, GgufValue{std::vector<int64_t>{3, 3}}, GgufValue{1.5}}) {
      EditedModel edited = good;
      edited.metadata[key] = value;
      ExpectRefused(edited, key);
    }
    // Sane alone, and not what the tensors say. They say nothing of heads, nor of blocks that are not read.
    if (key.ends_with("head_count") || (key == "clip.vision.block_count" && GetParam().n_blocks_read < 1024)) continue;
    EditedModel edited = good;
    edited.metadata[key].v = std::get<int64_t>(good.metadata.at(key).v) * 2;
    EXPECT_FALSE(Load(edited).ok()) << key;
  }
}

TEST_P(HostilePairs, EveryNumberIsNeededAndFinite) {
  const EditedModel good = Good();
  for (const std::string& key : GetParam().floats) {
    EditedModel without = good;
    ASSERT_EQ(without.metadata.erase(key), 1u) << key;
    ExpectRefused(without, key);
    for (const double number : {std::nan(""), double{INFINITY}, -1.0}) {
      EditedModel edited = good;
      edited.metadata[key].v = number;
      ExpectRefused(edited, key);
    }
    EditedModel edited = good;
    edited.metadata[key].v = std::string("small");
    ExpectRefused(edited, key);
  }
}

TEST_P(HostilePairs, Normalisation) {
  if (!GetParam().encoder) GTEST_SKIP() << "a language model has none";
  for (const std::string key : {"clip.vision.image_mean", "clip.vision.image_std"}) {
    const auto refused = [&](GgufValue value) {
      EditedModel edited = Good();
      edited.metadata[key] = std::move(value);
      ExpectRefused(edited, key);
    };
    EditedModel without = Good();
    without.metadata.erase(key);
    ExpectRefused(without, key);
    refused({std::vector<double>{0.5, 0.5}});
    refused({std::vector<double>{0.5, 0.5, std::nan("")}});
    refused({std::string("grey")});
    if (key.ends_with("std")) refused({std::vector<double>{0.5, 0, 0.5}});
  }
}

TEST_P(HostilePairs, ProjectionsOfAbsurdWidth) {
  if (!GetParam().encoder) GTEST_SKIP() << "a language model has none";
  const std::string name = GetParam().name;
  const std::string last = name == "blip2"             ? "v.proj_linear.weight"
                           : name == "internvl"        ? "mm.model.mlp.3.weight"
                           : name.starts_with("gemma") ? "mm.input_projection.weight"
                           : name == "minicpmv"        ? "resampler.kv.weight"
                                                       : "mm.2.weight";
  EditedModel edited = Good();
  EditedTensor& projection = edited.Tensor(last);
  projection.shape = {1 << 18, 1};
  projection.data.assign(ElementBytes(projection) << 18, 0);
  EXPECT_FALSE(Load(edited).ok());
  projection.shape = {1};
  projection.data.assign(ElementBytes(projection), 0);
  ExpectRefused(edited, "shape");
}

TEST_P(HostilePairs, OtherThingsThatCannotBe) {
  const auto refused = [&](const std::string& key, GgufValue value, const std::string& word) {
    EditedModel edited = Good();
    edited.metadata[key] = std::move(value);
    ExpectRefused(edited, word);
  };
  const std::string name = GetParam().name;
  if (!GetParam().encoder) {
    refused("opt.norm_before", {std::string("yes")}, "opt.norm_before");
    refused("opt.attention.head_count_kv", {int64_t{2}}, "KV heads");
    refused("opt.attention.key_length", {int64_t{16}}, "width");
    return;
  }
  refused("clip.vision.projector_type", {std::string("hologram")}, "hologram");
  refused("clip.has_vision_encoder", {false}, "no vision encoder");
  refused("general.architecture", {std::string("llama")}, "no vision encoder");
  refused("clip.vision.attention.head_count", {int64_t{7}}, "heads");
  if (name == "blip2") {
    refused("clip.vision.qformer.attention.head_count", {int64_t{5}}, "heads");
    EditedModel blind = Good();
    std::erase_if(blind.tensors, [](const EditedTensor& t) { return t.name.find("cross_attn") != std::string::npos; });
    ExpectRefused(blind, "no block of the Q-Former sees the picture");
    return;
  }
  if (name == "lfm2_vision") {
    refused("clip.vision.preproc_max_tiles", {int64_t{65}}, "clip.vision.preproc_max_tiles");
    refused("clip.vision.preproc_min_tiles", {int64_t{5}}, "clip.vision.preproc_min_tiles");
    refused("weir.vision.tile_size", {int64_t{35}}, "tiles of 35 pixels");
    refused("weir.vision.tile_size", {int64_t{4000}}, "tiles of 4000 pixels");
    refused("weir.vision.max_rows", {int64_t{3}}, "weir.vision.max_rows");
    return;
  }
  if (name == "mistral3_pixtral") {
    refused("clip.vision.spatial_merge_size", {int64_t{3}}, "mm.patch_merger.weight");
    refused("clip.use_gelu", {true}, "clip.use_silu");
    refused("clip.vision.image_size", {int64_t{4096}}, "patches");
    refused("clip.vision.attention.head_count", {int64_t{6}}, "heads of 6");
    return;
  }
  if (name == "pixtral") {
    refused("clip.vision.spatial_merge_size", {int64_t{2}}, "mm.patch_merger.weight");
    return;
  }
  if (name == "gemma3_vision") {
    refused("clip.vision.projector.scale_factor", {int64_t{4}}, "a row along each side");
    return;
  }
  if (name.starts_with("gemma4")) {
    refused("clip.vision.projector.scale_factor", {int64_t{17}}, "clip.vision.projector.scale_factor");
    refused("clip.vision.attention.head_count", {int64_t{6}}, "heads of 6");
    refused("weir.vision.max_rows", {int64_t{0}}, "weir.vision.max_rows");
    refused("weir.vision.max_rows", {int64_t{73}}, "a table of 216 positions along each side");
    refused("weir.vision.max_rows", {int64_t{8192}}, "patches");
    if (name == "gemma4_vision") {
      EditedModel crossed = Good();
      crossed.Tensor("v.blk.1.ffn_down.output_min").SetFloat(0, 9);
      ExpectRefused(crossed, "v.blk.1.ffn_down.output_min");
    }
    // Of an encoder of sound in the same file nothing is read.
    EditedModel sound = Good();
    EditedTensor extra = sound.tensors.back();
    extra.name = "a.blk.0.ffn_up.weight";
    sound.tensors.push_back(extra);
    EXPECT_TRUE(Load(sound).ok()) << Load(sound).message();
    return;
  }
  if (name == "minicpmv") {
    for (const int64_t size : {int64_t{0}, int64_t{1} << 40}) {
      refused("clip.vision.image_size", {size}, "clip.vision.image_size");
    }
    refused("clip.minicpmv_version", {int64_t{1}}, "clip.minicpmv_version 1");
    refused("clip.minicpmv_version", {int64_t{7}}, "clip.minicpmv_version 7");
    refused("clip.minicpmv_query_num", {int64_t{6}}, "resampler.query");
    refused("clip.minicpmv_query_num", {int64_t{1} << 20}, "clip.minicpmv_query_num");
    refused("weir.vision.max_slices", {int64_t{65}}, "weir.vision.max_slices");
    EditedModel without = Good();
    without.metadata.erase("clip.minicpmv_version");
    ExpectRefused(without, "clip.minicpmv_version");
    EditedModel edited = Good();
    EditedTensor& table = edited.Tensor("v.position_embd.weight");
    table.shape.front() -= 1;
    table.data.resize(table.data.size() / 49 * 48);
    ExpectRefused(edited, "a table of 48 positions");
    return;
  }
  if (name == "internvl") {
    const std::string most = "clip.vision.preproc_max_tiles", least = "clip.vision.preproc_min_tiles";
    refused(most, {int64_t{65}}, most);
    refused(least, {int64_t{7}}, least);
    refused("clip.vision.projector.scale_factor", {int64_t{4}}, "a row along each side");
    refused("clip.use_silu", {true}, "SiLU");
    return;
  }
  if (name.ends_with("vl_merger")) {
    const std::string least = "clip.vision.image_min_pixels", most = "clip.vision.image_max_pixels";
    refused(most, {int64_t{1} << 40}, most);
    refused(most, {int64_t{99}}, "in squares of");
    refused(least, {int64_t{1} << 20}, "in squares of");
    refused("clip.vision.spatial_merge_size", {int64_t{3}}, "squares of 3 x 3");
    refused("clip.vision.patch_size", {int64_t{257}}, "clip.vision.patch_size");
    if (name == "qwen25vl_merger") {
      refused("clip.vision.window_size", {int64_t{9}}, "clip.vision.window_size");
      for (const int64_t every : {int64_t{0}, int64_t{1} << 40}) {
        refused("clip.vision.n_wa_pattern", {every}, "clip.vision.n_wa_pattern");
      }
    } else {
      const std::string blocks = "clip.vision.is_deepstack_layers";
      refused(blocks, {std::vector<bool>{true}}, blocks);
      refused(blocks, {std::vector<int64_t>{1, 0, 1, 0}}, blocks);
      refused(blocks, {std::vector<bool>{true, true, true, false}}, "v.deepstack.1");
      refused(blocks, {std::vector<bool>{true, false, false, false}}, "v.deepstack.2");
      EditedModel edited = Good();
      EditedTensor& table = edited.Tensor("v.position_embd.weight");
      table.shape.front() -= 1;
      table.data.resize(table.data.size() * 48 / 49);
      ExpectRefused(edited, "a table of 48 positions");
    }
    return;
  }
  refused("clip.vision.feature_layer", {std::vector<int64_t>{99}}, "layer 99");
  refused("clip.vision.feature_layer", {std::vector<int64_t>{1, 2}}, "several layers");
  refused("clip.use_silu", {true}, "SiLU");
  refused("weir.vision.fit", {std::string("fold")}, "fold");
  if (name == "clip_next") {
    const std::string grids = "clip.vision.image_grid_pinpoints";
    refused(grids, {std::vector<int64_t>{37}}, grids);
    refused(grids, {std::vector<int64_t>{}}, grids);
    refused(grids, {std::vector<int64_t>{40, 40}}, "grid of 40 x 40");
    refused(grids, {std::vector<int64_t>{37 * 99, 37}}, "grid");
    refused("clip.vision.mm_patch_merge_type", {std::string("spiral")}, "spiral");
  }
}

INSTANTIATE_TEST_SUITE_P(Files, HostilePairs, ::testing::ValuesIn(Cases()),
                         [](const auto& info) { return std::string(info.param.name); });

}  // namespace
}  // namespace weir
