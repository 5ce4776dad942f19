// SPDX-License-Identifier: Apache-2.0
// The bytes of a segment, the unit of an archive (recall/archive.h): a header, twice, then records, one after another.
// Files come from anywhere: nothing in them is believed before it is checked.
//
// Little-endian. Header, 64 bytes: magic "weirarch", u32 version, i32 number, u64 model hash, u64 tokenizer hash, i64
// first seq, i32 width of a picture's rows, u32 salt, 12 bytes zero, u32 CRC-32C of what precedes it.
// Record, a multiple of 4 bytes: u32 length of the payload, u32 checksum, payload. Payload: i64 seq, i64 t_ms,
// i32 n_tokens, i32 columns, u32 bytes of text, u8 body (BlockBody), u8 role, u8 modality, u8 zero, then the text or
// the rows, then zeros. The checksum is the CRC-32C of length and payload, begun with the segment's salt and the
// record's place: text that looks like a record, and a record in a wrong place, are none.
#pragma once

#include <cstdint>
#include <functional>
#include <span>

#include "base/status.h"
#include "recall/block.h"

namespace weir {

struct SegmentHeader {
  int32_t number = 0;
  int32_t n_embd = 0;
  uint64_t model_hash = 0, tokenizer_hash = 0;
  int64_t first_seq = 0;
  uint32_t salt = 0;  // random
};

inline constexpr int64_t kSegmentHeadBytes = 128;  // both copies of the header
inline constexpr int64_t kRecordHeadBytes = 40;    // of a record, what precedes text and rows
inline constexpr int64_t kMaxSegmentBytes = int64_t{1} << 30;
inline constexpr int32_t kMaxBlockTokens = 1 << 16;

// Writes both copies. REQUIRES: to.size() is kSegmentHeadBytes.
void WriteSegmentHead(const SegmentHeader& header, std::span<uint8_t> to);
// From the first copy that is whole. kCorrupt; kUnsupported for another version.
Result<SegmentHeader> ReadSegmentHead(std::span<const uint8_t> bytes);

// Bytes of a block's record.
int64_t RecordBytes(const Block& block);
// Its first kRecordHeadBytes bytes, when it is written at `at`. REQUIRES: CheckBlock().
void WriteRecordHead(const Block& block, const SegmentHeader& header, int64_t at, std::span<uint8_t> to);
// The checksum in them.
uint32_t SumOfRecord(std::span<const uint8_t> head);
// What follows them, before the zeros.
std::span<const uint8_t> RecordBody(const Block& block);
// kInvalidArgument for a block that no record can hold: counts, times, text that is not UTF-8, a text with rows.
Status CheckBlock(const Block& block, int32_t n_embd);

// What a walk reads. kText: of pictures the heads only; their checksums are compared where what follows them is in
// doubt.
enum class Bodies { kAll, kText };

// Walks over the records of a segment, through a buffer.
class RecordWalk {
 public:
  using ReadFn = std::function<Status(int64_t at, std::span<uint8_t> to)>;
  // From `at` to `end`, which is not behind the segment's last byte. REQUIRES: `at` is a multiple of 4; `buffer` is
  // aligned to 4 bytes and has at least kSegmentHeadBytes.
  RecordWalk(const SegmentHeader& header, ReadFn read, int64_t at, int64_t end, std::span<uint8_t> buffer,
             Bodies bodies = Bodies::kAll)
      : header_(header), read_(std::move(read)), at_(at), end_(end), buffer_(buffer), bodies_(bodies) {}

  // The next whole record; false at the end. Damaged bytes are passed over, up to the next record that is whole. The
  // block is valid until the next call. Errors of `read`.
  Result<bool> Next(Block* block, int64_t* at);
  // Records whose tokens end at `seq` or before are passed over from now on, by what their heads say: their bodies are
  // neither read nor checked.
  void PassOverTo(int64_t seq) { pass_to_ = seq; }

  int64_t n_damaged() const { return n_damaged_; }      // places with damaged bytes
  int64_t n_too_large() const { return n_too_large_; }  // whole records that exceed the buffer, passed over
  int64_t good_end() const { return good_end_; }        // behind the last whole record; 0: none yet
  int64_t seq_end() const { return seq_; }              // behind its last token
  uint32_t sum() const { return sum_; }                 // its checksum

 private:
  Status Fill(int64_t n);
  Result<bool> IsWhole(int64_t n);
  Result<bool> LeadsOn(int64_t seq_end, int64_t n);

  const SegmentHeader header_;
  const ReadFn read_;
  int64_t at_, end_;
  const std::span<uint8_t> buffer_;
  const Bodies bodies_;
  int sparse_ = 0;  // above 0: a picture came a few records ago, and the next may be near: little is read at once
  int64_t held_at_ = 0, n_held_ = 0;  // the buffer's bytes
  int64_t seq_ = 0, pass_to_ = 0;
  uint32_t sum_ = 0;
  int64_t n_summed_ = 0;  // bytes whose checksum was wrong
  int64_t n_damaged_ = 0, n_too_large_ = 0, good_end_ = 0;
  bool in_damage_ = false;
};

}  // namespace weir
