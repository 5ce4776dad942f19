// SPDX-License-Identifier: Apache-2.0
// The stores of keys and values inside an archive's folder: cut, copied, deleted and bounded with it; damaged, and left
// behind by processes that were killed.
#include <fcntl.h>
#include <gtest/gtest.h>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <string>
#include <thread>
#include <vector>

#include "base/rng.h"
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
  // `may_be_others`: records of another store are passed over, as those who use them do.
  static int64_t Count(Archive& archive, BlockBody body, int64_t add, bool may_be_others = false) {
    int64_t n = 0;
    EXPECT_TRUE(archive
                    .Scan(archive.begin(),
                          [&](BlockPlace, const Block& block) {
                            if (block.body != body && may_be_others) return true;
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

TEST_F(ArchiveStoresTest, WhatAKillLeftOfThemAloneIsDeleted) {
  for (const int64_t n : {0, 50}) {
    auto archive = std::move(Archive::Make(Options("a"), ledger_)).value();
    Fill(*archive, 0, n);
    {  // Their buffers are smaller than what one block has: they reach the disk before the words do.
      const auto ahead = std::move(Archive::Make(Options("ahead"), ledger_)).value();
      Fill(*ahead, 0, n + 10);
    }
    archive.reset();
    for (const char* store : {"/keys", "/kv"}) {
      std::filesystem::remove_all(folder_ + "/a" + store);
      std::filesystem::copy(folder_ + "/ahead" + store, folder_ + "/a" + store);
    }
    archive = std::move(Archive::Open(Options("a"), ledger_)).value();
    EXPECT_EQ(archive->seq_end(), 32 * n);
    ExpectBlocks(*archive, n);
    Fill(*archive, n, n + 20);
    ExpectBlocks(*archive, n + 20);
    EXPECT_TRUE(archive->Remove().ok());
    EXPECT_TRUE(Archive::Delete(folder_ + "/ahead").ok());
  }
}

// They would be keys and values of what was taken back.
TEST_F(ArchiveStoresTest, TheyAreDeletedWhereTheyCannotBeCut) {
  ArchiveOptions plain = Options("a");
  plain.key_numbers = plain.kv_numbers = 0;
  auto archive = std::move(Archive::Make(Options("a"), ledger_)).value();
  Fill(*archive, 0, 50);
  const ArchivePoint early = archive->SavePoint();
  Fill(*archive, 50, 100);
  const ArchivePoint late = archive->SavePoint();
  archive.reset();
  archive = std::move(Archive::Open(plain, ledger_)).value();
  ASSERT_TRUE(archive->CutTo(late).ok());
  archive.reset();
  archive = std::move(Archive::Open(Options("a"), ledger_)).value();
  ExpectBlocks(*archive, 100);  // nothing was cut
  archive.reset();
  archive = std::move(Archive::Open(plain, ledger_)).value();
  ASSERT_TRUE(archive->CutTo(early).ok());
  EXPECT_FALSE(std::filesystem::exists(folder_ + "/a/keys"));
  EXPECT_FALSE(std::filesystem::exists(folder_ + "/a/kv"));
  archive.reset();
  archive = std::move(Archive::Open(Options("a"), ledger_)).value();
  ExpectBlocks(*archive, 0);
  Fill(*archive, 50, 60);
  ExpectBlocks(*archive, 10);
}

TEST_F(ArchiveStoresTest, AStoreThatIsOffIsSaid) {
  const auto archive = std::move(Archive::Make(Options("a"), ledger_)).value();
  Fill(*archive, 0, 50);
  EXPECT_TRUE(archive->stores_state().ok());
  std::filesystem::remove_all(folder_ + "/a/kv");  // its folder cannot be synced any more
  archive->SavePoint();
  EXPECT_TRUE(archive->state().ok());
  EXPECT_EQ(archive->stores_state().message().rfind("no more keys and values are kept for recall: cannot ", 0), 0u)
      << archive->stores_state().message();
}

// Files that were cut short, changed, swapped or deleted: what is found is what was written.
TEST_F(ArchiveStoresTest, AThousandVariants) {
  constexpr int64_t kBlocks = 40;
  const std::vector<std::string> stores = {"", "/keys", "/kv"};
  const auto path = [&](const std::string& store, int number) {
    return folder_ + "/a" + store + "/0000000" + std::to_string(number) + ".seg";
  };
  {
    const auto archive = std::move(Archive::Make(Options("a"), ledger_)).value();
    Fill(*archive, 0, kBlocks);
  }
  std::vector<std::string> whole;
  for (const std::string& store : stores) {
    std::ifstream file(path(store, 1), std::ios::binary);
    whole.emplace_back(std::istreambuf_iterator<char>(file), std::istreambuf_iterator<char>());
    ASSERT_GT(whole.back().size(), 1000u);
  }
  Rng rng(17);
  const auto below = [&](size_t n) { return static_cast<size_t>(rng.Below(n)); };
  int64_t n_opened = 0, n_less = 0;
  for (int round = 0; round < 1000; ++round) {
    std::vector<std::string> files = whole;
    for (size_t n = below(3) + 1; n > 0; --n) {
      std::string& bytes = files[below(3)];
      const std::string& other = whole[below(3)];
      if (bytes.empty()) continue;
      const size_t at = below(bytes.size()), length = std::min(bytes.size() - at, below(5000) + 1);
      switch (below(6)) {
        case 0:
          bytes.resize(at);
          break;
        case 1:
          for (size_t bits = below(8) + 1; bits > 0; --bits)
            bytes[below(bytes.size())] ^= static_cast<char>(1 << below(8));
          break;
        case 2:
          std::fill_n(bytes.begin() + static_cast<ptrdiff_t>(at), length, '\0');
          break;
        case 3:  // records at another place
          bytes.replace(at / 4 * 4, length, other.substr(below(other.size()) / 4 * 4, length));
          break;
        case 4:
          bytes += bytes.substr(at / 4 * 4);
          break;
        case 5:
          bytes = below(2) == 0 ? "" : other;
      }
    }
    for (size_t i = 0; i < stores.size(); ++i) {
      for (int number = 2; number < 4; ++number) std::filesystem::remove(path(stores[i], number));
      std::ofstream(path(stores[i], 1), std::ios::binary) << files[i];
      if (below(20) == 0) std::ofstream(path(stores[i], 2), std::ios::binary) << whole[i];
    }
    SCOPED_TRACE(round);
    for (int again = 0; again < 2; ++again) {
      auto opened = Archive::Open(Options("a"), ledger_);
      EXPECT_TRUE(opened.ok() || opened.status().message().find('\n') == std::string::npos);
      if (!opened.ok()) break;
      Archive& archive = **opened;
      n_opened += again == 0;
      const int64_t n = archive.seq_end() / 32;
      ASSERT_LE(n, kBlocks + again);
      int64_t n_found = 0;
      ASSERT_TRUE(archive
                      .Scan(archive.begin(),
                            [&](BlockPlace, const Block& block) {
                              EXPECT_EQ(block.text, "block " + std::to_string(block.seq / 32));
                              return ++n_found > 0;
                            })
                      .ok());
      n_less += again == 0 && n_found < kBlocks;
      EXPECT_LE(Count(*archive.keys(), BlockBody::kOneRow, 0, true), n);
      EXPECT_LE(Count(*archive.kv(), BlockBody::kRowEach, 1, true), n);
      EXPECT_EQ(archive.notes().Text().find('\n'), std::string::npos);
      if (again == 0) Fill(archive, n, n + 1);
    }
    if (HasFailure()) return;
  }
  EXPECT_GT(n_opened, 900);
  EXPECT_GT(n_less, 300);
}

// A session that goes on at its end, or back at a point, and is killed: keys and values are those of the words that are
// there, never of words that were taken back. WEIR_KILLS: how often, 20 unless set.
TEST_F(ArchiveStoresTest, AKillLeavesNothingOfAnotherPast) {
  struct Told {
    int64_t n = 0;  // blocks
    ArchivePoint point;
    bool cut = false;  // to its point; nothing was added yet
  };
  const char* const kills = std::getenv("WEIR_KILLS");
  const int n_kills = kills == nullptr ? 20 : std::atoi(kills);
  const ArchiveOptions options = Options("a", 16 << 20);
  const auto append = [](Archive& archive, int64_t i, int round) {
    const std::string text = fmt::format("block {} round {}", i, round);
    std::vector<uint16_t> keys(kKeyNumbers, static_cast<uint16_t>(round));
    std::vector<uint16_t> kv(size_t{32} * kKvNumbers, static_cast<uint16_t>(round));
    Block block = {.seq = 32 * i, .n_tokens = 32, .body = BlockBody::kRowEach};
    block.rows = kv;  // in the order of a session: keys and values as rows come, then the words, then the keys
    bool good = archive.kv()->Append(block).ok();
    block.body = BlockBody::kContent;
    block.rows = {};
    block.text = text;
    good = good && archive.Append(block).ok();
    block.text = {};
    block.body = BlockBody::kOneRow;
    block.rows = keys;
    return good && archive.keys()->Append(block).ok() && archive.state().ok() && archive.stores_state().ok();
  };
  Rng rng(5);
  std::vector<int> rounds;   // of the blocks that were acknowledged
  std::vector<Told> points;  // to go back to
  int64_t n_ahead = 0, n_back = 0, n_most = 0;
  for (int round = 1; round <= n_kills; ++round) {
    const bool back = !points.empty() && rng.Below(3) == 0;
    const Told to = back ? points[rng.Below(points.size())] : Told();
    int ends[2];
    ASSERT_EQ(pipe2(ends, O_CLOEXEC), 0);
    const pid_t child = fork();
    ASSERT_GE(child, 0);
    if (child == 0) {
      auto opened = Archive::Exists(options.dir) ? Archive::Open(options, ledger_) : Archive::Make(options, ledger_);
      if (!opened.ok()) _exit(1);
      Archive& archive = **opened;
      const auto tell = [&](const Told& told) {
        if (write(ends[1], &told, sizeof(told)) != sizeof(told)) _exit(3);
      };
      if (back) {
        if (!archive.CutTo(to.point).ok()) _exit(4);
        tell({to.n, to.point, true});
      }
      Rng mine(static_cast<uint64_t>(round));
      for (int64_t i = archive.seq_end() / 32;;) {
        for (auto n = mine.Below(20) + 1; n > 0; --n, ++i) {
          if (!append(archive, i, round)) _exit(2);
        }
        archive.Flush();
        tell({i, archive.Point(), false});
      }
    }
    close(ends[1]);
    std::this_thread::sleep_for(std::chrono::microseconds(rng.Below(25000)));
    kill(child, SIGKILL);
    int status = 0;
    ASSERT_EQ(waitpid(child, &status, 0), child);
    ASSERT_TRUE(WIFSIGNALED(status)) << "the child ended with " << WEXITSTATUS(status) << " in round " << round;
    int64_t n_sure = back ? to.n : std::ssize(rounds), n_old = std::ssize(rounds);
    for (Told told; read(ends[0], &told, sizeof(told)) == sizeof(told);) {
      if (told.cut) {
        n_old = told.n;
      } else {
        points.push_back(told);
      }
      n_sure = told.n;
    }
    close(ends[0]);
    if (!Archive::Exists(options.dir)) {
      ASSERT_EQ(n_sure, 0);
      std::filesystem::remove_all(options.dir);
      continue;
    }
    const auto opened = Archive::Open(options, ledger_);
    ASSERT_TRUE(opened.ok()) << opened.status().message();
    Archive& archive = **opened;
    const int64_t first = archive.seq_begin() / 32, n = archive.seq_end() / 32;
    ASSERT_GE(n, n_sure) << round;
    const int64_t n_before = std::ssize(rounds);
    rounds.resize(static_cast<size_t>(n));
    int64_t next = first;
    ASSERT_TRUE(archive
                    .Scan(archive.begin(),
                          [&](BlockPlace, const Block& block) {
                            int64_t i = 0;
                            int of = 0;
                            EXPECT_EQ(std::sscanf(std::string(block.text).c_str(), "block %ld round %d", &i, &of), 2);
                            EXPECT_EQ(i, next);
                            EXPECT_EQ(block.seq, 32 * next);
                            // What was there before the round stayed, unless the round took it back.
                            const bool old = i < std::min(n_old, n_before) && (!back || i < to.n);
                            if (old) EXPECT_EQ(of, rounds[static_cast<size_t>(i)]) << i;
                            if (!old && i >= n_before) EXPECT_EQ(of, round) << i;
                            rounds[static_cast<size_t>(i)] = of;
                            return ++next > 0;
                          })
                    .ok());
    ASSERT_EQ(next, n);
    // A kill may have come behind a cut that nobody was told of: then what was there is no past any more.
    if (points.size() > 20) points.erase(points.begin(), points.end() - 20);
    std::erase_if(points, [&](const Told& one) { return one.n > n || !*archive.Has(one.point); });
    for (Archive* store : {archive.keys(), archive.kv()}) {
      ASSERT_LE(store->seq_end(), archive.seq_end());
      int64_t n_stored = 0;
      ASSERT_TRUE(store
                      ->Scan(store->begin(),
                             [&](BlockPlace, const Block& block) {
                               const auto i = static_cast<size_t>(block.seq / 32);
                               if (block.seq / 32 < first) return true;
                               EXPECT_EQ(block.rows.front(), rounds[i]) << i;
                               EXPECT_EQ(block.rows.back(), rounds[i]) << i;
                               return ++n_stored > 0;
                             })
                      .ok());
      EXPECT_LE(n_stored, n - first);
      n_ahead += store->notes().cut_bytes > 0;
    }
    ASSERT_EQ(archive.notes().n_damaged + archive.notes().n_lost_segments, 0) << archive.notes().Text();
    if (HasFailure()) return;
    n_back += back;
    n_most = std::max(n_most, n);
  }
  printf("%d kills, %ld of them after going back, %ld blocks, an unfinished end of a store %ld times\n", n_kills,
         static_cast<long>(n_back), static_cast<long>(n_most), static_cast<long>(n_ahead));
  EXPECT_GT(n_most, 0);
}

}  // namespace
}  // namespace weir
