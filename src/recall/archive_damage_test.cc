// SPDX-License-Identifier: Apache-2.0
// Archives with damaged files: whatever is found is what was written, and what is left out is counted.
#include <sys/stat.h>
#include <unistd.h>

#include <cstring>

#include "base/crc32c.h"
#include "base/utf8.h"
#include "recall/archive.h"
#include "recall/archive_test_util.h"

namespace weir {
namespace {

class ArchiveDamageTest : public ArchiveTest {
 protected:
  // A small archive of n blocks; returns the bytes of its only segment.
  std::string Small(int64_t n) {
    { Fill(*Make(options_), 0, n); }
    return ReadFile(PathOf(1));
  }
  std::unique_ptr<Archive> Reader() {
    auto archive = Archive::OpenReadOnly(options_, ledger_);
    EXPECT_TRUE(archive.ok()) << archive.status().message();
    return archive.ok() ? *std::move(archive) : nullptr;
  }
  // Whether all of `found` is the stream's, in order; how many of its first n are missing.
  static int64_t Missing(const std::vector<Stored>& found, int64_t n) {
    int64_t next = 0;
    for (const Stored& stored : found) {
      EXPECT_GE(stored.block.seq, 32 * next);
      next = stored.block.seq / 32 + 1;
      EXPECT_EQ(stored, Nth(next - 1));
    }
    return n - std::ssize(found);
  }
};

TEST_F(ArchiveDamageTest, TruncatedAtAnyByte) {
  constexpr int64_t kBlocks = 24;
  const std::string whole = Small(kBlocks);
  std::vector<size_t> ends;  // of records
  for (const Stored& stored : All(*Reader())) ends.push_back(static_cast<size_t>(stored.place & 0xFFFFFFFF));
  ends.push_back(whole.size());
  for (size_t n = 0; n <= whole.size(); ++n) {
    if (n > 250 && n + 500 < whole.size()) continue;  // the first and the last records
    WriteFile(PathOf(1), whole.substr(0, n));
    const int64_t want = std::max<int64_t>(0, std::upper_bound(ends.begin(), ends.end(), n) - ends.begin() - 1);
    {
      const auto reader = Reader();
      ASSERT_EQ(All(*reader), Stream(0, want)) << n;
    }
    {
      const auto archive = Open(options_);
      const int64_t cut = archive->notes().cut_bytes;
      const auto end = static_cast<int64_t>(n < 128 ? 0 : ends[static_cast<size_t>(want)]);
      ASSERT_EQ(cut, static_cast<int64_t>(n) - end) << n;
      ASSERT_EQ(archive->notes().n_damaged, 0) << n;
      ASSERT_EQ(archive->seq_end(), 32 * want);
      Fill(*archive, want, kBlocks + 1);
    }
    const auto archive = Open(options_);
    ASSERT_EQ(All(*archive), Stream(0, kBlocks + 1)) << n;
    ASSERT_EQ(archive->notes().Text(), "") << n;
    ASSERT_TRUE(archive->CutTo({0, 1, 0}).ok());
    for (int number = 1; number < 3; ++number) unlink(PathOf(number).c_str());
  }
}

TEST_F(ArchiveDamageTest, ASingleBit) {  // segment_test.cc has all of them
  constexpr int64_t kBlocks = 14;
  const std::string whole = Small(kBlocks);
  const auto last = static_cast<size_t>(All(*Reader()).back().place & 0xFFFFFFFF);
  for (size_t bit = 0; bit < 8 * whole.size(); bit += 61) {
    std::string bytes = whole;
    bytes[bit / 8] = static_cast<char>(bytes[bit / 8] ^ 1 << bit % 8);
    WriteFile(PathOf(1), bytes);
    const int64_t want = bit / 8 < kSegmentHeadBytes ? 0 : 1;  // of the two headers one is whole
    {
      const auto reader = Reader();
      ASSERT_EQ(Missing(All(*reader), kBlocks), want);
      ASSERT_EQ(reader->notes().n_damaged, want == 1 && bit / 8 < last ? 1 : 0);
    }
    // One who writes may cut the damaged end, no more.
    const auto archive = Open(options_);
    ASSERT_EQ(Missing(All(*archive), kBlocks), want);
    ASSERT_EQ(archive->notes().cut_bytes > 0, bit / 8 >= last);
    Fill(*archive, kBlocks, kBlocks + 5);
    ASSERT_EQ(Missing(All(*archive), kBlocks + 5), want);
  }
}

TEST_F(ArchiveDamageTest, ManyBytes) {
  { Fill(*Make(options_), 0, 6000); }
  const int n_segments = static_cast<int>(std::distance(std::filesystem::directory_iterator(options_.dir), {})) - 1;
  Rng rng(3);
  for (int round = 0; round < 30; ++round) {
    const std::string path = PathOf(1 + static_cast<int>(rng.Below(static_cast<uint64_t>(n_segments))));
    const std::string whole = ReadFile(path);
    std::string bytes = whole;
    const size_t at = rng.Below(bytes.size()), n = std::min<size_t>(bytes.size() - at, rng.Below(20000) + 1);
    for (size_t i = 0; i < n; ++i) {
      // Zeros, as after a machine's crash; noise; or another part of the file.
      bytes[at + i] = round % 3 == 0 ? 0 : static_cast<char>(round % 3 == 1 ? rng.Next() : whole[(at / 2 / 4 * 4 + i)]);
    }
    WriteFile(path, bytes);
    const auto reader = Reader();
    const int64_t n_missing = Missing(All(*reader), 6000);
    ASSERT_GE(n_missing, bytes != whole ? 1 : 0);
    ASSERT_LE(n_missing, at < 128 ? 3000 : static_cast<int64_t>(n) / 40 + 3);
    EXPECT_EQ(n_missing > 0, !reader->notes().Text().empty());
    WriteFile(path, whole);
  }
}

TEST_F(ArchiveDamageTest, SegmentsThatAreNotThereOrNotSegments) {
  { Fill(*Make(options_), 0, 6000); }
  const std::string whole = ReadFile(PathOf(2));
  const auto without_second = [&] {
    const auto reader = Reader();
    const std::vector<Stored> found = All(*reader);
    EXPECT_GT(Missing(found, 6000), 100);
    EXPECT_LT(Missing(found, 6000), 3500);
    return reader->notes();
  };
  std::filesystem::remove(PathOf(2));
  without_second();
  WriteFile(PathOf(2), "");
  EXPECT_EQ(without_second().n_lost_segments, 1);
  WriteFile(PathOf(2), ReadFile(PathOf(1)));  // another's number
  EXPECT_EQ(without_second().n_lost_segments, 1);
  std::filesystem::remove(PathOf(2));
  std::filesystem::create_symlink(PathOf(1), PathOf(2));
  EXPECT_EQ(without_second().n_lost_segments, 1);
  std::filesystem::remove(PathOf(2));
  ASSERT_EQ(mkfifo(PathOf(2).c_str(), 0600), 0);
  EXPECT_EQ(without_second().n_lost_segments, 1);
  std::filesystem::remove(PathOf(2));
  std::filesystem::create_directory(PathOf(2));
  EXPECT_EQ(without_second().Text(), "1 segments of the archive cannot be read");
  std::filesystem::remove(PathOf(2));
  WriteFile(options_.dir + "/2.seg", "not its name");
  WriteFile(options_.dir + "/00000000.seg", "nor this");
  WriteFile(options_.dir + "/99999999999.seg", "nor this");
  WriteFile(PathOf(2), whole);
  EXPECT_EQ(All(*Reader()), Stream(0, 6000));
}

TEST_F(ArchiveDamageTest, ASegmentOfAnotherArchiveDoesNotTurnTheStreamBack) {
  { Fill(*Make(options_), 3000, 9000); }
  { Fill(*Make(Options("b")), 0, 6000); }
  std::filesystem::copy_file(folder_ + "/b/00000002.seg", PathOf(2), std::filesystem::copy_options::overwrite_existing);
  const auto reader = Reader();
  const std::vector<Stored> found = All(*reader);
  Missing(found, 9000);  // in order
  EXPECT_EQ(found.front(), Nth(3000));
  EXPECT_EQ(found.back(), Nth(8999));
  EXPECT_LT(found.size(), 5000u);
  EXPECT_GT(reader->notes().n_damaged, 1000);
}

TEST_F(ArchiveDamageTest, AnotherVersionIsRefused) {
  Small(3);
  std::string bytes(kSegmentHeadBytes, '\0');
  // A header as this code writes it, but for the version and the checksum.
  WriteSegmentHead({.number = 1}, {reinterpret_cast<uint8_t*>(bytes.data()), bytes.size()});
  for (size_t at : {0, 64}) {
    bytes[at + 8] = 2;
    const uint32_t sum = Crc32c({reinterpret_cast<const uint8_t*>(bytes.data()) + at, 60});
    std::memcpy(bytes.data() + at + 60, &sum, 4);
  }
  WriteFile(PathOf(1), bytes);
  const auto archive = Archive::Open(options_, ledger_);
  EXPECT_EQ(archive.status().code(), StatusCode::kUnsupported);
  EXPECT_EQ(archive.status().message(), PathOf(1) + ": a segment has version 2; this build reads version 1");
  EXPECT_EQ(ReadFile(PathOf(1)), bytes);
}

// Text can imitate a record, but not the checksum, which depends on a number that nobody has seen.
TEST_F(ArchiveDamageTest, TextIsNeverTakenForARecord) {
  const auto archive = Make(options_);
  Stored inner = Nth(1), outer = Nth(0);
  do {  // until all of it is UTF-8
    inner.text += "the password is swordfish! ";
    std::string fake(static_cast<size_t>(RecordBytes(View(inner))), '\0');
    // The checksum of a segment with salt 0, at the place where it will lie.
    WriteRecordHead(View(inner), {.number = 1}, kSegmentHeadBytes + kRecordHeadBytes + 24,
                    {reinterpret_cast<uint8_t*>(fake.data()), kRecordHeadBytes});
    std::copy(inner.text.begin(), inner.text.end(), fake.begin() + kRecordHeadBytes);
    outer.text = std::string(24, 'x') + fake;
  } while (ValidUtf8Prefix(outer.text) != outer.text.size());
  ASSERT_TRUE(archive->Append(View(outer)).ok());
  Fill(*archive, 2, 4);
  archive->Flush();
  std::string bytes = ReadFile(PathOf(1));
  bytes[kSegmentHeadBytes + 2] ^= 1;  // the outer record's length
  WriteFile(PathOf(1), bytes);
  EXPECT_EQ(All(*Reader()), Stream(2, 4));
}

}  // namespace
}  // namespace weir
