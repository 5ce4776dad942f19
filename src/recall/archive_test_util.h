// SPDX-License-Identifier: Apache-2.0
// A stream to archive, and a folder to archive it in: for tests.
#pragma once

#include <gtest/gtest.h>
#include <stdlib.h>

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <memory>
#include <string>
#include <vector>

#include "base/rng.h"
#include "recall/archive.h"

namespace weir {

inline constexpr int32_t kWidth = 6;

// A block of the test's stream, with what it owns.
struct Stored {
  Block block;
  std::string text;
  std::vector<uint16_t> rows;
  BlockPlace place = 0;

  friend bool operator==(const Stored& a, const Stored& b) {
    return a.block.seq == b.block.seq && a.block.n_tokens == b.block.n_tokens && a.block.t_ms == b.block.t_ms &&
           a.block.role == b.block.role && a.block.modality == b.block.modality && a.text == b.text &&
           a.rows == b.rows && a.block.columns == b.block.columns;
  }
};
inline void PrintTo(const Stored& stored, std::ostream* to) {
  *to << "seq " << stored.block.seq << " '" << stored.text << "'";
}

// The i-th block of a stream: every tenth is a picture, the others are texts of some 30 to 150 bytes, 32 tokens each.
inline Stored Nth(int64_t i) {
  Rng rng(static_cast<uint64_t>(i) + 1);
  Stored out;
  out.block.n_tokens = 32;
  out.block.seq = 32 * i;
  out.block.t_ms = 100 * i;
  if (i % 10 == 9) {
    out.block.modality = i % 20 == 19 ? Modality::kVideo : Modality::kImage;
    out.block.columns = 8;
    for (int32_t k = 0; k < 32 * kWidth; ++k) out.rows.push_back(static_cast<uint16_t>(rng.Next()));
  } else {
    out.block.role = static_cast<Role>(rng.Below(3));
    out.text = "block " + std::to_string(i);
    for (auto n = static_cast<int>(rng.Below(20)); n > 0; --n) out.text += " Ébène " + std::to_string(rng.Below(100));
  }
  return out;
}

inline Block View(const Stored& stored) {
  Block out = stored.block;
  out.text = stored.text;
  out.rows = stored.rows;
  return out;
}

inline std::vector<Stored> All(Archive& archive, BlockPlace from) {
  std::vector<Stored> out;
  const Status status = archive.Scan(from, [&](BlockPlace place, const Block& block) {
    out.push_back({block, std::string(block.text), {block.rows.begin(), block.rows.end()}, place});
    out.back().block.text = {};
    out.back().block.rows = {};
    return true;
  });
  EXPECT_TRUE(status.ok()) << status.message();
  return out;
}
inline std::vector<Stored> All(Archive& archive) { return All(archive, archive.begin()); }

inline std::vector<Stored> Stream(int64_t from, int64_t to) {
  std::vector<Stored> out;
  for (int64_t i = from; i < to; ++i) out.push_back(Nth(i));
  return out;
}

class ArchiveTest : public testing::Test {
 protected:
  void SetUp() override {
    std::string folder = (std::filesystem::temp_directory_path() / "weir-archive-XXXXXX").string();
    ASSERT_NE(mkdtemp(folder.data()), nullptr);
    folder_ = folder;
    options_ = Options("a");
  }
  void TearDown() override { std::filesystem::remove_all(folder_); }

  ArchiveOptions Options(const std::string& name) const {
    ArchiveOptions out;
    out.dir = name.empty() ? "" : folder_ + "/" + name;
    out.temp_dir = folder_;
    out.disk_bytes = 4 << 20;
    out.model_hash = 11;
    out.tokenizer_hash = 12;
    out.n_embd = kWidth;
    out.max_rows = 64;
    return out;
  }
  std::unique_ptr<Archive> Make(const ArchiveOptions& options) {
    auto archive = Archive::Make(options, ledger_);
    EXPECT_TRUE(archive.ok()) << archive.status().message();
    return archive.ok() ? *std::move(archive) : nullptr;
  }
  std::unique_ptr<Archive> Open(const ArchiveOptions& options) {
    auto archive = Archive::Open(options, ledger_);
    EXPECT_TRUE(archive.ok()) << archive.status().message();
    return archive.ok() ? *std::move(archive) : nullptr;
  }
  static void Fill(Archive& archive, int64_t from, int64_t to) {
    for (int64_t i = from; i < to; ++i) {
      const Stored stored = Nth(i);
      const Status status = archive.Append(View(stored));
      ASSERT_TRUE(status.ok()) << status.message();
    }
  }

  std::string PathOf(int number) const { return fmt::format("{}/{:08}.seg", options_.dir, number); }
  static std::string ReadFile(const std::string& path) {
    std::ifstream file(path, std::ios::binary);
    return {std::istreambuf_iterator<char>(file), {}};
  }
  static void WriteFile(const std::string& path, const std::string& bytes) {
    std::ofstream(path, std::ios::binary) << bytes;
  }

  std::string folder_;
  ArchiveOptions options_;
  Ledger ledger_;
};

}  // namespace weir
