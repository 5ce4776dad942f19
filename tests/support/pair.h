// SPDX-License-Identifier: Apache-2.0
// A tiny language model with its encoder and a session, and what is checked of every such pair: a talk about pictures
// against the reference's logits, the coordinates of all rows, and a stream of pictures through a small pot under every
// policy.
#pragma once

#include <gtest/gtest.h>

#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <functional>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "chat/probe.h"
#include "engine/loaded_encoder.h"
#include "engine/picture_reader.h"
#include "kv/axes.h"
#include "media/media.h"
#include "policy/policy.h"
#include "support/encoder.h"
#include "support/picture.h"
#include "support/tiny.h"

namespace weir::testing {

// Calls see(name's rest, picture, entry) for each entry KIND.WxH; gives how many there were.
inline int ForEachPicture(
    const Golden& golden, const std::string& kind,
    const std::function<void(const std::string& size, const RgbView& image, const GoldenEntry& want)>& see) {
  int n = 0;
  for (const auto& [name, want] : golden) {
    int width = 0, height = 0;
    if (std::sscanf(name.c_str(), (kind + ".%dx%d").c_str(), &width, &height) != 2) continue;
    SCOPED_TRACE(name);
    ++n;
    const std::vector<uint8_t> rgb = Picture(static_cast<uint32_t>(width), static_cast<uint32_t>(height));
    see(std::to_string(width) + "x" + std::to_string(height), {rgb.data(), width, height}, want);
  }
  return n;
}

// Calls see(picture, entry) for each entry KIND.FILE, of files in images/ of the test data; skips the test without it.
inline void ForEachFile(const std::string& golden,
                        const std::function<void(const RgbView& image, const GoldenEntry& want)>& see) {
  const char* data = std::getenv("WEIR_DATA");
  if (data == nullptr || !std::filesystem::is_directory(std::filesystem::path(data) / "images")) {
    GTEST_SKIP() << "needs images/ in the folder that WEIR_DATA names";
  }
  const Golden files = ReadGolden(VisionDir() + golden);
  ASSERT_GE(files.size(), 4u);
  for (const auto& [name, want] : files) {
    SCOPED_TRACE(name);
    Ledger ledger;
    const std::string file = name.substr(name.find('.') + 1);
    const auto image = DecodeImage((std::filesystem::path(data) / "images" / file).string(), ledger);
    if (image.status().code() == StatusCode::kNotFound) GTEST_SKIP() << image.status().message();
    ASSERT_TRUE(image.ok()) << image.status().message();
    see({image->rgb(), image->width, image->height}, want);
  }
}

struct Pair {
  struct How {
    std::string policy = "full";
    int32_t pot = 256;
    std::string device = "cpu";
    DType kv = DType::kF32;
  };
  std::unique_ptr<LoadedModel> model;
  std::unique_ptr<LoadedEncoder> encoder;
  std::unique_ptr<Session> session;
  std::unique_ptr<PictureReader> reader;

  Pair(const std::string& model_file, const std::string& encoder_file, const How& how) {
    LoadModelOptions load;
    load.path = VisionDir() + model_file;
    load.device = how.device;
    load.n_threads = 2;
    model = std::move(LoadedModel::Load(load)).value();
    auto loaded = LoadedEncoder::Load(VisionDir() + encoder_file, *model);
    EXPECT_TRUE(loaded.ok()) << loaded.status().message();
    encoder = std::move(loaded).value();
    PictureRoom room;
    room.Include(100, 100);
    SessionOptions options;
    options.policy = std::move(ParsePolicySpec(how.policy)).value();
    options.pot_slots = how.pot;
    options.k_type = options.v_type = how.kv;
    EXPECT_TRUE(PrepareProbe(model->tokenizer(), nullptr, "", &options).ok());
    options.beside = std::move(PictureReader::Plan(encoder->encoder(), room)).value();
    auto made = Session::Make(model->model(), model->backend(), options);
    EXPECT_TRUE(made.ok()) << made.status().message();
    session = std::move(made).value();
    reader = std::move(PictureReader::Make(encoder->encoder(), *session, room)).value();
  }
  void Show(int32_t width, int32_t height) const {
    const std::vector<uint8_t> rgb = Picture(static_cast<uint32_t>(width), static_cast<uint32_t>(height));
    const Status read = reader->ReadPixels({rgb.data(), width, height}, Modality::kImage, {});
    ASSERT_TRUE(read.ok()) << read.message();
  }
  void Say(const std::vector<int32_t>& tokens) const { ASSERT_TRUE(session->Append(tokens).ok()); }
};

// The rows of n pictures.
inline void ExpectRows(const std::string& encoder, const Golden& golden, int n) {
  TinyEncoder tiny(encoder, MakeCpuBackend(2));
  ASSERT_NE(tiny.encoder, nullptr);
  Ledger ledger;
  auto images = std::move(ImageEncoder::Make(*tiny.encoder, ledger)).value();
  EXPECT_EQ(ledger.used_bytes(), ImageEncoder::Bytes(*tiny.encoder));
  const auto check = [&](const std::string&, const RgbView& image, const GoldenEntry& want) {
    const auto rows = images->Encode(image);
    ASSERT_TRUE(rows.ok()) << rows.status().message();
    ASSERT_EQ(rows->size(), want.data.size());
    EXPECT_LT(RelativeError(rows->data(), want.data.data(), want.data.size()), 1e-4);
    int64_t n_rows = 0;
    for (const PicturePart& part : images->parts()) n_rows += part.n_rows;
    EXPECT_EQ(n_rows, want.rows);
    EXPECT_LE(want.rows, tiny.encoder->config().max_rows());
  };
  EXPECT_EQ(ForEachPicture(golden, "rows", check), n);
  EXPECT_EQ(images->Encode({nullptr, 0, 0}).status().code(), StatusCode::kInvalidArgument);
}

// The words and pictures of `talk.ids` and `talk.pictures`, the logits after each of `talk.logits`, at most `most` of
// the largest apart; every row is held at the end. Where pictures have a word before and after them, those are the
// encoder's.
inline void ExpectTalk(const Golden& golden, const Pair& pair, double most = 1e-3) {
  const GoldenEntry &ids = golden.at("talk.ids"), &want = golden.at("talk.logits"),
                    &pictures = golden.at("talk.pictures");
  const PictureWords& shown = pair.reader->config().words;
  const int64_t n_opening = shown.open >= 0 ? std::ssize(shown.tokens[static_cast<size_t>(shown.open)]) : 0;
  int64_t row = 0;
  size_t picture = 0;
  while (row < want.rows) {
    const int64_t first = row + n_opening;
    if (first < want.rows && ids.data[first] < 0) {
      pair.Show(static_cast<int32_t>(pictures.data[picture]), static_cast<int32_t>(pictures.data[picture + 1]));
      picture += 2;
      row = pair.session->counters().seen;
    } else {
      pair.Say({static_cast<int32_t>(ids.data[row])});
      ++row;
    }
    const std::vector<float> logits = LogitsOf(*pair.session);
    EXPECT_LT(RelativeError(logits.data(), &want.data[(row - 1) * want.cols], logits.size()), most)
        << "row " << row - 1;
  }
  EXPECT_EQ(row, want.rows);
  const std::span<const SlotMeta> held = pair.session->pot().meta(0);
  ASSERT_EQ(std::ssize(held), want.rows);
  if (const auto pos = golden.find("talk.pos"); pos != golden.end()) {
    std::vector<int32_t> got(held.size() * 4);
    HeldPositions(held, &got[held.size() * 3], got.data(), std::ssize(held));
    for (size_t i = 0; i < pos->second.data.size(); ++i) EXPECT_EQ(got[i], pos->second.data[i]) << "coordinate " << i;
  }
  EXPECT_LE(pair.session->ledger().peak_bytes(), pair.session->plan().total_bytes);
}

// A pot of 48 slots, far too small for what comes: never exceeded, coordinates always within it, the same bytes after a
// restore. `twin` is made as `pair`.
inline void ExpectStream(const Pair& pair, const Pair& twin) {
  const auto walk = [](const Pair& p, int32_t from, int32_t to) {
    for (int32_t i = from; i < to; ++i) {
      p.Say({10 + i, 11 + 2 * i, 12 + 3 * i});
      p.Show(20 + 7 * i % 60, 30 + 11 * i % 50);
      const PotShape& shape = p.session->pot().shape();
      int64_t n_used = 0;
      for (int32_t head = 0; head < shape.n_heads_total(); ++head) {
        n_used += p.session->pot().n_used(head / shape.n_kv_heads, head % shape.n_kv_heads);
      }
      ASSERT_LE(n_used, shape.n_heads_total() * 48) << "heads may share what all of them have";
      for (int32_t group = 0; group < shape.n_groups(); ++group) {
        const std::span<const SlotMeta> held = p.session->pot().meta(group);
        std::vector<int32_t> pos(held.size() * 4);
        HeldPositions(held, &pos[held.size() * 3], pos.data(), std::ssize(held));
        for (size_t k = 0; k < 3 * held.size(); ++k) ASSERT_LT(pos[k], std::ssize(held));
      }
    }
  };
  walk(pair, 0, 6);
  std::vector<uint8_t> saved;
  ASSERT_TRUE(pair.session->Save(&saved).ok());
  ASSERT_TRUE(twin.session->Restore(saved).ok());
  walk(pair, 6, 9);
  walk(twin, 6, 9);
  EXPECT_EQ(LogitsOf(*pair.session), LogitsOf(*twin.session));
  for (const float x : LogitsOf(*pair.session)) ASSERT_TRUE(std::isfinite(x));
  EXPECT_GT(pair.session->counters().dropped, 0);
  EXPECT_LE(pair.session->ledger().peak_bytes(), pair.session->plan().total_bytes);
  EXPECT_EQ(Held(*pair.session), Held(*twin.session));
}

// All policies but `full`.
inline std::vector<std::string> EvictingPolicies() {
  std::vector<std::string> out;
  for (const PolicyInfo* info : AllPolicyInfos()) {
    if (std::string(info->name) != "full") out.push_back(info->name);
  }
  return out;
}

}  // namespace weir::testing
