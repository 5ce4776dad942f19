// SPDX-License-Identifier: Apache-2.0
// A file is read again in blocks that hold all of it, once, and never half a character.
#include "recall/file_blocks.h"

#include <gtest/gtest.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cmath>
#include <filesystem>
#include <fstream>
#include <string>
#include <vector>

#include "base/rng.h"
#include "base/utf8.h"

namespace weir {
namespace {

struct SeenBlock {
  BlockPlace place;
  int64_t seq, seq_end;
  std::string text;
};

class FileBlocksTest : public ::testing::Test {
 protected:
  void SetUp() override { path_ = ::testing::TempDir() + "file_blocks_" + std::to_string(getpid()) + ".txt"; }
  void TearDown() override { std::filesystem::remove(path_); }
  std::unique_ptr<FileBlocks> Open(const std::string& bytes) {
    std::ofstream(path_, std::ios::binary) << bytes;
    auto out = FileBlocks::Open(path_);
    EXPECT_TRUE(out.ok());
    return *std::move(out);
  }
  static std::vector<SeenBlock> All(FileBlocks& file, BlockPlace from = 0) {
    std::vector<SeenBlock> out;
    EXPECT_TRUE(file.Scan(from,
                          [&](BlockPlace place, const Block& block) {
                            EXPECT_EQ(ValidUtf8Prefix(block.text), block.text.size());
                            EXPECT_GE(block.n_tokens, 1);
                            out.push_back({place, block.seq, block.seq_end(), std::string(block.text)});
                            return true;
                          })
                    .ok());
    return out;
  }
  static std::string Joined(const std::vector<SeenBlock>& blocks) {
    std::string out;
    for (const SeenBlock& block : blocks) out += block.text;
    return out;
  }
  std::string path_;
};

// Words of 1 to 12 characters of 1 to 4 bytes, some texts without any space.
std::string SomeText(size_t n_bytes, bool spaces, uint64_t seed) {
  Rng rng(seed);
  std::string out;
  while (out.size() < n_bytes) {
    for (auto n = 1 + rng.Below(12); n > 0; --n) {
      AppendUtf8(static_cast<char32_t>(rng.Below(2) != 0   ? 'a' + rng.Below(26)
                                       : rng.Below(2) != 0 ? 0xE0 + rng.Below(20)
                                       : rng.Below(2) != 0 ? 0x4E00 + rng.Below(99)
                                                           : 0x1F600 + rng.Below(40)),
                 &out);
    }
    if (spaces) out += rng.Below(5) == 0 ? "\n" : " ";
  }
  return out;
}

TEST_F(FileBlocksTest, BlocksAreTheFile) {
  for (const bool spaces : {true, false}) {
    for (const size_t n :
         {size_t{1}, size_t{127}, size_t{128}, size_t{129}, size_t{256}, size_t{65'530}, size_t{200'000}}) {
      const std::string text = SomeText(n, spaces, n);
      auto file = Open(text);
      file->ReadTo(0, 10);
      file->ReadTo(std::ssize(text), 10 + std::ssize(text) / 4);
      const std::vector<SeenBlock> blocks = All(*file);
      ASSERT_EQ(Joined(blocks), text) << n;
      int64_t at = 0, seq = 10;
      for (const SeenBlock& block : blocks) {
        EXPECT_EQ(block.place, at);
        at += std::ssize(block.text);
        EXPECT_LE(block.text.size(), 256u);
        EXPECT_GE(block.seq, seq);
        seq = block.seq;
        if (&block != &blocks.back()) {
          EXPECT_GE(block.text.size(), spaces ? 128u : 252u);
          // Between words, wherever the text has any.
          if (spaces) {
            EXPECT_TRUE(blocks[static_cast<size_t>(&block - blocks.data()) + 1].text.find_first_of(" \n") == 0);
          }
        }
      }
      // From a place in the middle, the same blocks.
      const size_t middle = blocks.size() / 2;
      const std::vector<SeenBlock> rest = All(*file, blocks[middle].place);
      ASSERT_EQ(rest.size(), blocks.size() - middle);
      EXPECT_EQ(rest[0].text, blocks[middle].text);
    }
  }
}

TEST_F(FileBlocksTest, OnlyWhatWasReadAndNoFurtherThanAsked) {
  std::string text;
  for (int i = 0; i < 700; ++i) text += "word" + std::to_string(i) + " ";
  auto file = Open(text);
  EXPECT_TRUE(All(*file).empty());
  file->ReadTo(0, 0);
  file->ReadTo(1000, 250);
  EXPECT_EQ(Joined(All(*file)), text.substr(0, 1000));
  int n = 0;
  EXPECT_TRUE(file->Scan(0, [&](BlockPlace, const Block&) { return ++n < 3; }).ok());
  EXPECT_EQ(n, 3);
}

// A session whose text is cut inside a character has read up to the last whole one.
TEST_F(FileBlocksTest, BytesThatAreNoTextAreReplaced) {
  auto file = Open("one \xff\xfe two \xe4\xb8");
  file->ReadTo(0, 0);
  file->ReadTo(13, 5);
  EXPECT_EQ(Joined(All(*file)), "one \uFFFD\uFFFD two \uFFFD");
  auto raw = Open(std::string(3000, '\x80'));  // not one place where it could be cut
  raw->ReadTo(0, 0);
  raw->ReadTo(3000, 3000);
  EXPECT_EQ(All(*raw).size(), 12u);
}

TEST_F(FileBlocksTest, PlacesInTheStreamStayTrueHoweverOftenItIsTold) {
  const std::string text = SomeText(600'000, true, 5);
  auto file = Open(text);
  // The tokens become ever longer: 2 bytes at the beginning, 10 at the end.
  const auto seq_at = [&](int64_t byte) {
    const double x = static_cast<double>(byte) / static_cast<double>(text.size());
    return 100 + static_cast<int64_t>(static_cast<double>(byte) * (0.5 - 0.2 * x));
  };
  file->ReadTo(0, 100);
  for (int64_t byte = 1; byte < std::ssize(text); byte += 41) file->ReadTo(byte, seq_at(byte));
  file->ReadTo(std::ssize(text), seq_at(std::ssize(text)));
  int64_t before = 100;
  for (const SeenBlock& block : All(*file)) {
    EXPECT_NEAR(static_cast<double>(block.seq), static_cast<double>(seq_at(block.place)), 2);
    EXPECT_GE(block.seq, before);
    before = block.seq;
  }
}

TEST_F(FileBlocksTest, AFileThatShrankHasLess) {
  const std::string text = SomeText(100'000, true, 6);
  auto file = Open(text);
  file->ReadTo(0, 0);
  file->ReadTo(100'000, 25'000);
  std::filesystem::resize_file(path_, 30'000);
  const std::string left = Joined(All(*file));
  EXPECT_EQ(left.substr(0, 29'990), text.substr(0, 29'990));
  EXPECT_LE(left.size(), 30'003u);
  EXPECT_TRUE(All(*file, 60'000).empty());
}

TEST_F(FileBlocksTest, WhatCannotBeReadAgainIsRefused) {
  EXPECT_EQ(FileBlocks::Open(path_ + ".none").status().code(), StatusCode::kIo);
  EXPECT_EQ(FileBlocks::Open(::testing::TempDir()).status().code(), StatusCode::kInvalidArgument);
  EXPECT_EQ(FileBlocks::Open("/dev/null").status().code(), StatusCode::kInvalidArgument);
}

}  // namespace
}  // namespace weir
