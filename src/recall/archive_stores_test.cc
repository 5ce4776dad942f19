// SPDX-License-Identifier: Apache-2.0
// The stores of keys and values inside an archive's folder: cut, copied, deleted and bounded with it.
#include <gtest/gtest.h>
#include <unistd.h>

#include <filesystem>
#include <string>
#include <vector>

#include "recall/archive.h"

namespace weir {
namespace {

constexpr int32_t kKeyNumbers = 9, kKvNumbers = 50;

class ArchiveStoresTest : public ::testing::Test {
 protected:
  void SetUp() override {
    folder_ = ::testing::TempDir() + "stores_" + std::to_string(getpid());
    std::filesystem::remove_all(folder_);
    std::filesystem::create_directories(folder_);
  }
  void TearDown() override { std::filesystem::remove_all(folder_); }

  ArchiveOptions Options(const std::string& name, int64_t disk_bytes = 64 << 20) const {
    ArchiveOptions out;
    if (!name.empty()) out.dir = folder_ + "/" + name;
    out.temp_dir = folder_;
    out.disk_bytes = disk_bytes;
    out.model_hash = 7;
    out.tokenizer_hash = 8;
    out.key_numbers = kKeyNumbers;
    out.kv_numbers = kKvNumbers;
    out.kv_tokens = 64;
    return out;
  }
  // Blocks [from, to) of 32 tokens, with keys and values.
  static void Fill(Archive& archive, int64_t from, int64_t to) {
    std::vector<uint16_t> keys(kKeyNumbers), kv(32 * kKvNumbers);
    for (int64_t i = from; i < to; ++i) {
      const std::string text = "block " + std::to_string(i);
      Block block = {.seq = 32 * i, .n_tokens = 32, .text = text};
      ASSERT_TRUE(archive.Append(block).ok());
      block.text = {};
      block.body = BlockBody::kOneRow;
      for (uint16_t& one : keys) one = static_cast<uint16_t>(i);
      block.rows = keys;
      ASSERT_TRUE(archive.keys()->Append(block).ok());
      block.body = BlockBody::kRowEach;
      for (uint16_t& one : kv) one = static_cast<uint16_t>(i + 1);
      block.rows = kv;
      ASSERT_TRUE(archive.kv()->Append(block).ok());
    }
    archive.Flush();
  }
  static int64_t Count(Archive& archive, BlockBody body, int64_t add) {
    int64_t n = 0;
    EXPECT_TRUE(archive
                    .Scan(archive.begin(),
                          [&](BlockPlace, const Block& block) {
                            EXPECT_EQ(block.body, body);
                            EXPECT_EQ(block.rows.size(),
                                      body == BlockBody::kOneRow ? size_t{kKeyNumbers} : size_t{32} * kKvNumbers);
                            for (const uint16_t one : block.rows) EXPECT_EQ(one, block.seq / 32 + add);
                            ++n;
                            return true;
                          })
                    .ok());
    return n;
  }
  static void ExpectBlocks(Archive& archive, int64_t n) {
    EXPECT_EQ(Count(*archive.keys(), BlockBody::kOneRow, 0), n);
    EXPECT_EQ(Count(*archive.kv(), BlockBody::kRowEach, 1), n);
  }

  std::string folder_;
  Ledger ledger_;
};

TEST_F(ArchiveStoresTest, TheyAreKeptOpenedCutAndDeletedWithIt) {
  const int64_t planned = std::move(Archive::MemoryBytes(Options("a"))).value();
  auto archive = std::move(Archive::Make(Options("a"), ledger_)).value();
  EXPECT_EQ(ledger_.used_bytes(), planned);
  Fill(*archive, 0, 100);
  ExpectBlocks(*archive, 100);
  const ArchivePoint point = archive->SavePoint();
  Fill(*archive, 100, 150);
  archive.reset();
  archive = std::move(Archive::Open(Options("a"), ledger_)).value();
  ExpectBlocks(*archive, 150);
  EXPECT_GT(archive->disk_bytes(), 150 * 32 * kKvNumbers * 2);
  ASSERT_TRUE(archive->CutTo(point).ok());
  ExpectBlocks(*archive, 100);
  Fill(*archive, 100, 120);
  ExpectBlocks(*archive, 120);
  // Also when the session that deletes it does not use them.
  archive.reset();
  ArchiveOptions plain = Options("a");
  plain.key_numbers = plain.kv_numbers = 0;
  archive = std::move(Archive::Open(plain, ledger_)).value();
  EXPECT_EQ(archive->keys(), nullptr);
  ASSERT_TRUE(archive->Remove().ok());
  EXPECT_FALSE(std::filesystem::exists(folder_ + "/a"));
}

TEST_F(ArchiveStoresTest, AForkHasItsOwn) {
  for (const char* from : {"", "from"}) {
    for (const char* to : {"", "to"}) {
      auto archive = std::move(Archive::Make(Options(from), ledger_)).value();
      Fill(*archive, 0, 50);
      const std::string dir = *to == '\0' ? "" : folder_ + "/" + to;
      auto made = archive->Fork(dir, ledger_);
      ASSERT_TRUE(made.ok()) << made.status().message();
      std::unique_ptr<Archive> fork = *std::move(made);
      Fill(*archive, 50, 60);
      Fill(*fork, 50, 80);
      ExpectBlocks(*archive, 60);
      ExpectBlocks(*fork, 80);
      EXPECT_TRUE(fork->Remove().ok());
      ExpectBlocks(*archive, 60);
      EXPECT_TRUE(archive->Remove().ok());
    }
  }
  EXPECT_TRUE(std::filesystem::is_empty(folder_));
}

TEST_F(ArchiveStoresTest, TextStaysLongestWithinTheQuota) {
  constexpr int64_t kQuota = 16 << 20;
  auto archive = std::move(Archive::Make(Options("a", kQuota), ledger_)).value();
  Fill(*archive, 0, 6000);
  EXPECT_LE(archive->disk_bytes(), kQuota);
  EXPECT_EQ(archive->notes().removed_to_seq, 0);
  EXPECT_GT(archive->kv()->notes().removed_to_seq, 0);
  // What is left is the newest, and is found by its tokens without a walk from the beginning.
  int64_t n = 0;
  ASSERT_TRUE(archive->kv()
                  ->ScanRange({32 * 5990 + 5, 32 * 5992},
                              [&](BlockPlace, const Block& block) {
                                EXPECT_EQ(block.seq, 32 * (5990 + n));
                                ++n;
                                return true;
                              })
                  .ok());
  EXPECT_EQ(n, 2);
  n = 0;
  ASSERT_TRUE(archive->kv()->ScanRange({0, 64}, [&](BlockPlace, const Block&) { return ++n > 0; }).ok());
  EXPECT_EQ(n, 0);
}

TEST_F(ArchiveStoresTest, AQuotaThatIsTooSmallIsSaid) {
  const auto made = Archive::Make(Options("a", 1 << 20), ledger_);
  EXPECT_EQ(made.status().code(), StatusCode::kInvalidArgument) << made.status().message();
  EXPECT_FALSE(std::filesystem::exists(folder_ + "/a"));
}

}  // namespace
}  // namespace weir
