// SPDX-License-Identifier: Apache-2.0
#include "recall/segment.h"

#include <gtest/gtest.h>

#include <cstring>

#include "base/crc32c.h"
#include "recall/archive_test_util.h"

namespace weir {
namespace {

using Bytes = std::vector<uint8_t>;

constexpr SegmentHeader kHeader = {7, kWidth, 1, 2, 0, 0x12345678};

// A segment with the stream's blocks [from, to), and where they begin.
Bytes Segment(int64_t from, int64_t to, std::vector<int64_t>* places = nullptr) {
  Bytes out(kSegmentHeadBytes);
  WriteSegmentHead(kHeader, out);
  for (int64_t i = from; i < to; ++i) {
    const Stored stored = Nth(i);
    const Block block = View(stored);
    if (places != nullptr) places->push_back(std::ssize(out));
    const size_t at = out.size();
    out.resize(at + static_cast<size_t>(RecordBytes(block)));
    const std::span<uint8_t> to_bytes = std::span(out).subspan(at);
    WriteRecordHead(block, kHeader, static_cast<int64_t>(at), to_bytes);
    const auto body = RecordBody(block);
    std::copy(body.begin(), body.end(), to_bytes.begin() + kRecordHeadBytes);
  }
  return out;
}

struct Walked {
  std::vector<Stored> blocks;
  std::vector<int64_t> places;
  int64_t n_damaged = 0, n_too_large = 0, good_end = 0, seq_end = 0;
  int64_t n_read = 0;  // bytes
};

Walked Walk(const Bytes& bytes, size_t n_buffer = 4096, Bodies bodies = Bodies::kAll) {
  Walked out;
  const std::unique_ptr<uint32_t[]> buffer(new uint32_t[n_buffer / 4]);
  RecordWalk walk(
      kHeader,
      [&](int64_t at, std::span<uint8_t> to) {
        if (at < 0 || at + std::ssize(to) > std::ssize(bytes)) return Internal("reads beyond the end");
        std::copy_n(bytes.begin() + at, to.size(), to.begin());
        out.n_read += std::ssize(to);
        return Status();
      },
      kSegmentHeadBytes, std::ssize(bytes), {reinterpret_cast<uint8_t*>(buffer.get()), n_buffer / 4 * 4}, bodies);
  Block block;
  for (int64_t at = 0;;) {
    const auto more = walk.Next(&block, &at);
    EXPECT_TRUE(more.ok()) << more.status().message();
    if (!more.ok() || !*more) break;
    out.blocks.push_back({block, std::string(block.text), {block.rows.begin(), block.rows.end()}, at});
    out.places.push_back(at);
  }
  out.n_damaged = walk.n_damaged();
  out.n_too_large = walk.n_too_large();
  out.good_end = walk.good_end();
  out.seq_end = walk.seq_end();
  return out;
}

TEST(Segment, AnyBuffer) {
  std::vector<int64_t> places;
  const Bytes bytes = Segment(0, 40, &places);
  for (size_t n = 1024; n < 1700; n += 4) {
    const Walked walked = Walk(bytes, n);
    ASSERT_EQ(walked.blocks, Stream(0, 40));
    ASSERT_EQ(walked.places, places);
    ASSERT_EQ(walked.n_damaged, 0);
    ASSERT_EQ(walked.good_end, std::ssize(bytes));
    ASSERT_EQ(walked.seq_end, 32 * 40);
  }
  const Walked texts = Walk(bytes, 400);  // pictures have 424 bytes
  EXPECT_EQ(texts.n_too_large, 4);
  EXPECT_EQ(texts.blocks.size(), 36u);
  EXPECT_EQ(texts.n_damaged, 0);
}

TEST(Segment, AnySingleBitCostsOneBlock) {
  std::vector<int64_t> places;
  const Bytes whole = Segment(3, 12, &places);
  places.push_back(std::ssize(whole));
  for (const size_t n_buffer : {size_t{512}, size_t{8192}}) {
    for (size_t bit = 8 * kSegmentHeadBytes; bit < 8 * whole.size(); ++bit) {
      Bytes bytes = whole;
      bytes[bit / 8] ^= static_cast<uint8_t>(1 << bit % 8);
      const Walked walked = Walk(bytes, n_buffer);
      const int64_t hit =
          std::upper_bound(places.begin(), places.end(), static_cast<int64_t>(bit / 8)) - places.begin() - 1;
      std::vector<Stored> want = Stream(3, 12);
      want.erase(want.begin() + hit);
      ASSERT_EQ(walked.blocks, want) << bit;
      ASSERT_EQ(walked.n_damaged, 1) << bit;
    }
  }
}

// The bits of a picture's rows are not looked at; those of its head cost the picture, of a text the text.
TEST(Segment, AnySingleBitCostsOneBlockOfAWalkOverTexts) {
  std::vector<int64_t> places;
  const Bytes whole = Segment(3, 12, &places);
  places.push_back(std::ssize(whole));
  const Walked all = Walk(whole, 8192, Bodies::kText);
  ASSERT_EQ(all.blocks.size(), 9u);
  EXPECT_TRUE(all.blocks[6].rows.empty());
  for (size_t bit = 8 * kSegmentHeadBytes; bit < 8 * whole.size(); ++bit) {
    Bytes bytes = whole;
    bytes[bit / 8] ^= static_cast<uint8_t>(1 << bit % 8);
    const Walked walked = Walk(bytes, 8192, Bodies::kText);
    const int64_t hit =
        std::upper_bound(places.begin(), places.end(), static_cast<int64_t>(bit / 8)) - places.begin() - 1;
    std::vector<Stored> got = walked.blocks, want = all.blocks;
    const auto drop = [](std::vector<Stored>* list, int64_t seq) {
      std::erase_if(*list, [&](const Stored& one) { return one.block.seq == seq; });
    };
    if (hit == 6) {
      std::erase_if(got, [](const Stored& one) { return one.block.modality != Modality::kText; });
      drop(&want, 32 * 9);
    } else {
      drop(&want, 32 * (3 + hit));
      ASSERT_EQ(walked.n_damaged, 1) << bit;
    }
    ASSERT_EQ(got, want) << bit;
  }
}

// Where pictures lie, few bytes are read.
TEST(Segment, AWalkOverTextsReadsLittle) {
  SegmentHeader header = kHeader;
  header.n_embd = 512;
  Bytes bytes(kSegmentHeadBytes);
  WriteSegmentHead(header, bytes);
  const std::vector<uint16_t> rows(256 * 512, 7);
  Block block = {.n_tokens = 256};
  for (int i = 0; i < 20; ++i) {
    block.text = i % 2 == 0 ? "between" : "";
    block.modality = i % 2 == 0 ? Modality::kText : Modality::kImage;
    block.rows = i % 2 == 0 ? std::span<const uint16_t>() : rows;
    const int64_t at = std::ssize(bytes);
    bytes.resize(static_cast<size_t>(at + RecordBytes(block)));
    WriteRecordHead(block, header, at, std::span(bytes).subspan(static_cast<size_t>(at), kRecordHeadBytes));
    std::ranges::copy(RecordBody(block), bytes.begin() + at + kRecordHeadBytes);
    block.seq = block.seq_end();
  }
  const auto n_read_of = [&](Bodies bodies) {
    int64_t n = 0, n_blocks = 0, at = 0;
    std::vector<uint32_t> buffer(1 << 17);
    RecordWalk walk(
        header,
        [&](int64_t from, std::span<uint8_t> to) {
          n += std::ssize(to);
          std::copy_n(bytes.begin() + from, to.size(), to.begin());
          return Status();
        },
        kSegmentHeadBytes, std::ssize(bytes), {reinterpret_cast<uint8_t*>(buffer.data()), 4 * buffer.size()}, bodies);
    while (*walk.Next(&block, &at)) ++n_blocks;
    EXPECT_EQ(n_blocks, 20);
    EXPECT_EQ(walk.n_damaged(), 0);
    return n;
  };
  EXPECT_GE(n_read_of(Bodies::kAll), 10 * 256 * 1024);
  // The buffer at the beginning, and the last picture, behind which nothing says that its head is right.
  EXPECT_LT(n_read_of(Bodies::kText), 4 * 512 * 1024);
}

TEST(Segment, AnyTwoBytesSwapped) {
  const Bytes whole = Segment(3, 12);
  for (size_t at = kSegmentHeadBytes; at + 1 < whole.size(); ++at) {
    Bytes bytes = whole;
    std::swap(bytes[at], bytes[at + 1]);
    const Walked walked = Walk(bytes);
    if (bytes == whole) {
      ASSERT_EQ(walked.blocks, Stream(3, 12));
      continue;
    }
    ASSERT_GE(walked.blocks.size(), 7u);
    for (const Stored& stored : walked.blocks) ASSERT_EQ(stored, Nth(stored.block.seq / 32));
  }
}

TEST(Segment, HeadersAreWholeOrNone) {
  const Bytes whole = Segment(0, 0);
  for (size_t bit = 0; bit < 8 * whole.size(); ++bit) {
    Bytes bytes = whole;
    bytes[bit / 8] ^= static_cast<uint8_t>(1 << bit % 8);
    const auto header = ReadSegmentHead(bytes);
    ASSERT_TRUE(header.ok()) << bit;
    ASSERT_EQ(header->number, kHeader.number);
    ASSERT_EQ(header->salt, kHeader.salt);
    bytes[(bit / 8 + 64) % 128] ^= 0x10;  // the other one too
    ASSERT_FALSE(ReadSegmentHead(bytes).ok());
  }
  for (size_t n = 0; n < 64; ++n) EXPECT_FALSE(ReadSegmentHead(std::span(whole).first(n)).ok());
}

TEST(Segment, RecordsOfAnotherSegmentOrPlaceAreNone) {
  const Bytes bytes = Segment(0, 8);
  Bytes moved = bytes;
  moved.insert(moved.begin() + kSegmentHeadBytes, 4, 0);
  EXPECT_TRUE(Walk(moved).blocks.empty());
  Bytes twice = bytes;
  twice.insert(twice.end(), bytes.begin() + kSegmentHeadBytes, bytes.end());
  EXPECT_EQ(Walk(twice).blocks, Stream(0, 8));
  EXPECT_EQ(Walk(twice).n_damaged, 1);
  EXPECT_EQ(Walk(Bytes(10000, 0)).n_damaged, 1);
}

// Work is bounded: every 40th place of a megabyte claims to begin a record that fills the rest.
TEST(Segment, BytesThatPretend) {
  const Bytes one = Segment(0, 1);
  Bytes bytes(1 << 20);
  for (size_t at = kSegmentHeadBytes; at + 400 < bytes.size(); at += 40) {
    std::copy_n(one.begin() + kSegmentHeadBytes, 40, bytes.begin() + static_cast<int64_t>(at));
    const uint32_t n = 8 + 32 + 300 * 1024 - 8;
    std::memcpy(bytes.data() + at, &n, 4);
    const uint32_t text = 300 * 1024;
    std::memcpy(bytes.data() + at + 32, &text, 4);
  }
  const Walked walked = Walk(bytes, 1 << 19);
  EXPECT_TRUE(walked.blocks.empty());
  EXPECT_EQ(walked.n_damaged, 1);
  EXPECT_LT(walked.n_read, 32 * std::ssize(bytes));
}

}  // namespace
}  // namespace weir
