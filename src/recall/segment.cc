// SPDX-License-Identifier: Apache-2.0
#include "recall/segment.h"

#include <algorithm>
#include <bit>
#include <cstddef>
#include <cstring>

#include "base/crc32c.h"
#include "base/utf8.h"

namespace weir {
namespace {

static_assert(std::endian::native == std::endian::little);

constexpr char kMagic[8] = {'w', 'e', 'i', 'r', 'a', 'r', 'c', 'h'};
constexpr uint32_t kVersion = 1;
constexpr int kSparseRecords = 16;
constexpr int64_t kSparseBytes = 4096;            // that are read at once between pictures
constexpr int64_t kMaxNumber = int64_t{1} << 59;  // of tokens and milliseconds: sums of two stay in range

struct RawHeader {
  char magic[8];
  uint32_t version;
  int32_t number;
  uint64_t model_hash, tokenizer_hash;
  int64_t first_seq;
  int32_t n_embd;
  uint32_t salt;
  uint8_t zero[12];
  uint32_t sum;
};
static_assert(sizeof(RawHeader) == 64 && 2 * sizeof(RawHeader) == kSegmentHeadBytes);

struct RawRecord {
  uint32_t length, sum;
  // The payload.
  int64_t seq, t_ms;
  int32_t n_tokens, columns;
  uint32_t text_bytes;
  uint8_t body, role, modality, zero;
};
static_assert(sizeof(RawRecord) == kRecordHeadBytes);
constexpr int64_t kPayloadAt = offsetof(RawRecord, seq);

template <typename T>
T Load(const uint8_t* from) {
  T out;
  std::memcpy(&out, from, sizeof(T));
  return out;
}

// 16-bit numbers of a block's rows.
int64_t NumbersOf(BlockBody body, Modality modality, int64_t n_tokens, int64_t n_embd) {
  switch (body) {
    case BlockBody::kContent:
      return modality == Modality::kText ? 0 : n_tokens * n_embd;
    case BlockBody::kOneRow:
      return n_embd;
    case BlockBody::kRowEach:
      return n_tokens * n_embd;
  }
  return 0;
}

constexpr int64_t RoundTo4(int64_t n) { return (n + 3) / 4 * 4; }

uint32_t SumOf(const RawHeader& raw) {
  return Crc32c({reinterpret_cast<const uint8_t*>(&raw), offsetof(RawHeader, sum)});
}

// Of a record's length, with what makes it one of this segment and this place.
uint32_t SumBegun(const SegmentHeader& header, int64_t at, uint32_t length) {
  const uint32_t words[] = {header.salt, static_cast<uint32_t>(header.number), static_cast<uint32_t>(at), length};
  return Crc32c({reinterpret_cast<const uint8_t*>(words), sizeof(words)});
}

// Bytes of the record, or 0 when this cannot be the head of one.
int64_t Plausible(const RawRecord& raw, int64_t n_left, int32_t n_embd) {
  const int64_t n = int64_t{raw.length} + kPayloadAt;
  if (n < kRecordHeadBytes || n > n_left || n % 4 != 0 || raw.zero != 0) return 0;
  if (raw.body < 1 || raw.body > static_cast<uint8_t>(BlockBody::kRowEach)) return 0;
  if (raw.role > static_cast<uint8_t>(Role::kAnswer) || raw.modality >= kNumModalities) return 0;
  if (raw.seq < 0 || raw.seq > kMaxNumber || raw.t_ms < 0 || raw.t_ms > kMaxNumber) return 0;
  if (raw.n_tokens < 1 || raw.n_tokens > kMaxBlockTokens || raw.columns < 1 || raw.columns > raw.n_tokens) return 0;
  const auto body = static_cast<BlockBody>(raw.body);
  const auto modality = static_cast<Modality>(raw.modality);
  const bool text = body == BlockBody::kContent && modality == Modality::kText;
  if (!text && raw.text_bytes != 0) return 0;
  const int64_t n_rows = 2 * NumbersOf(body, modality, raw.n_tokens, n_embd);
  return n == kRecordHeadBytes + RoundTo4(n_rows + raw.text_bytes) ? n : 0;
}

}  // namespace

void WriteSegmentHead(const SegmentHeader& header, std::span<uint8_t> to) {
  RawHeader raw = {};
  std::memcpy(raw.magic, kMagic, sizeof(kMagic));
  raw.version = kVersion;
  raw.number = header.number;
  raw.model_hash = header.model_hash;
  raw.tokenizer_hash = header.tokenizer_hash;
  raw.first_seq = header.first_seq;
  raw.n_embd = header.n_embd;
  raw.salt = header.salt;
  raw.sum = SumOf(raw);
  std::memcpy(to.data(), &raw, sizeof(raw));
  std::memcpy(to.data() + sizeof(raw), &raw, sizeof(raw));
}

Result<SegmentHeader> ReadSegmentHead(std::span<const uint8_t> bytes) {
  for (size_t at = 0; at + sizeof(RawHeader) <= std::min<size_t>(bytes.size(), kSegmentHeadBytes);
       at += sizeof(RawHeader)) {
    const auto raw = Load<RawHeader>(bytes.data() + at);
    if (std::memcmp(raw.magic, kMagic, sizeof(kMagic)) != 0 || raw.sum != SumOf(raw)) continue;
    if (raw.version != kVersion) {
      return Unsupported("a segment has version {}; this build reads version {}", raw.version, kVersion);
    }
    if (raw.number < 1 || raw.n_embd < 0 || raw.n_embd > 1 << 20 || raw.first_seq < 0 || raw.first_seq > kMaxNumber) {
      continue;
    }
    return SegmentHeader{raw.number, raw.n_embd, raw.model_hash, raw.tokenizer_hash, raw.first_seq, raw.salt};
  }
  return Corrupt("a segment has no whole header");
}

std::span<const uint8_t> RecordBody(const Block& block) {
  if (block.body == BlockBody::kContent && block.modality == Modality::kText) {
    return {reinterpret_cast<const uint8_t*>(block.text.data()), block.text.size()};
  }
  return {reinterpret_cast<const uint8_t*>(block.rows.data()), block.rows.size_bytes()};
}

int64_t RecordBytes(const Block& block) { return kRecordHeadBytes + RoundTo4(std::ssize(RecordBody(block))); }

void WriteRecordHead(const Block& block, const SegmentHeader& header, int64_t at, std::span<uint8_t> to) {
  RawRecord raw = {};
  raw.length = static_cast<uint32_t>(RecordBytes(block) - kPayloadAt);
  raw.seq = block.seq;
  raw.t_ms = block.t_ms;
  raw.n_tokens = block.n_tokens;
  raw.columns = block.columns;
  raw.text_bytes = static_cast<uint32_t>(block.text.size());
  raw.body = static_cast<uint8_t>(block.body);
  raw.role = static_cast<uint8_t>(block.role);
  raw.modality = static_cast<uint8_t>(block.modality);
  const auto* bytes = reinterpret_cast<const uint8_t*>(&raw);
  const std::span<const uint8_t> body = RecordBody(block);
  const uint8_t zeros[4] = {};
  uint32_t sum = Crc32c({bytes + kPayloadAt, sizeof(raw) - kPayloadAt}, SumBegun(header, at, raw.length));
  sum = Crc32c(body, sum);
  raw.sum = Crc32c({zeros, static_cast<size_t>(RoundTo4(std::ssize(body)) - std::ssize(body))}, sum);
  std::memcpy(to.data(), &raw, sizeof(raw));
}

uint32_t SumOfRecord(std::span<const uint8_t> head) { return Load<uint32_t>(head.data() + offsetof(RawRecord, sum)); }

Status CheckBlock(const Block& block, int32_t n_embd) {
  if (block.seq < 0 || block.seq > kMaxNumber || block.t_ms < 0 || block.t_ms > kMaxNumber) {
    return InvalidArgument("a block at seq {} and {} ms is out of range", block.seq, block.t_ms);
  }
  if (block.n_tokens < 1 || block.n_tokens > kMaxBlockTokens || block.columns < 1 || block.columns > block.n_tokens) {
    return InvalidArgument("a block of {} tokens in {} columns is out of range", block.n_tokens, block.columns);
  }
  const bool text = block.body == BlockBody::kContent && block.modality == Modality::kText;
  if (std::ssize(block.rows) != NumbersOf(block.body, block.modality, block.n_tokens, n_embd) ||
      (!text && !block.text.empty())) {
    return InvalidArgument("a block of {} tokens has {} numbers and {} bytes of text", block.n_tokens,
                           block.rows.size(), block.text.size());
  }
  if (ValidUtf8Prefix(block.text) != block.text.size()) return InvalidArgument("the text of a block is not UTF-8");
  return Status();
}

// Makes the buffer hold the n bytes from at_ on. REQUIRES: they end at end_ or before, and fit the buffer.
Status RecordWalk::Fill(int64_t n) {
  if (at_ >= held_at_ && at_ + n <= held_at_ + n_held_) return Status();
  const int64_t most = sparse_ > 0 ? std::max<int64_t>(n, kSparseBytes) : std::ssize(buffer_);
  const int64_t n_read = std::min({most, std::ssize(buffer_), end_ - at_});
  n_held_ = 0;
  WEIR_RETURN_IF_ERROR(read_(at_, buffer_.first(static_cast<size_t>(n_read))));
  held_at_ = at_;
  n_held_ = n_read;
  return Status();
}

// Whether the checksum of the n bytes from at_ on is right. Leaves them in the buffer if they fit it.
Result<bool> RecordWalk::IsWhole(int64_t n) {
  if (n <= std::ssize(buffer_)) {
    WEIR_RETURN_IF_ERROR(Fill(n));
    const uint8_t* const bytes = buffer_.data() + (at_ - held_at_);
    const uint32_t sum = SumBegun(header_, at_, Load<uint32_t>(bytes));
    return Crc32c({bytes + kPayloadAt, static_cast<size_t>(n - kPayloadAt)}, sum) == Load<uint32_t>(bytes + 4);
  }
  WEIR_RETURN_IF_ERROR(Fill(kRecordHeadBytes));
  const uint8_t* const head = buffer_.data() + (at_ - held_at_);
  const auto want = Load<uint32_t>(head + 4);
  uint32_t sum = SumBegun(header_, at_, Load<uint32_t>(head));
  n_held_ = 0;
  for (int64_t done = kPayloadAt; done < n;) {
    const auto piece = buffer_.first(static_cast<size_t>(std::min(std::ssize(buffer_), n - done)));
    WEIR_RETURN_IF_ERROR(read_(at_ + done, piece));
    sum = Crc32c(piece, sum);
    done += std::ssize(piece);
  }
  return sum == want;
}

// Whether a record follows the one at at_, which has n bytes and says that its tokens end at seq_end: then its head is
// right about both, or wrong about nothing that matters to others.
Result<bool> RecordWalk::LeadsOn(int64_t seq_end, int64_t n) {
  const int64_t here = at_, n_left = end_ - at_ - n;
  if (n_left < kRecordHeadBytes) return false;
  at_ += n;
  Status status = Fill(kRecordHeadBytes);
  bool leads = false;
  if (status.ok()) {
    const auto next = Load<RawRecord>(buffer_.data() + (at_ - held_at_));
    const int64_t n_next = Plausible(next, n_left, header_.n_embd);
    leads = n_next > 0 && next.seq >= seq_end;
    if (leads && next.modality == static_cast<uint8_t>(Modality::kText)) {
      auto whole = IsWhole(n_next);
      status = whole.status();
      leads = whole.ok() && *whole;
      if (!leads) n_summed_ += n_next;
    }
  }
  at_ = here;
  WEIR_RETURN_IF_ERROR(status);
  return leads;
}

Result<bool> RecordWalk::Next(Block* block, int64_t* at) {
  while (end_ - at_ >= kRecordHeadBytes) {
    WEIR_RETURN_IF_ERROR(Fill(kRecordHeadBytes));
    const auto raw = Load<RawRecord>(buffer_.data() + (at_ - held_at_));
    const int64_t n = Plausible(raw, end_ - at_, header_.n_embd);
    const bool fits = n <= std::ssize(buffer_);
    const uint8_t* body = nullptr;
    std::string_view text;
    bool whole = n > 0 && raw.seq >= seq_;
    if (whole && raw.seq + raw.n_tokens <= pass_to_ && n < end_ - at_) {
      seq_ = raw.seq + raw.n_tokens;
      at_ += n;
      continue;
    }
    const bool picture = raw.modality != static_cast<uint8_t>(Modality::kText);
    bool skipped = false;
    if (whole && bodies_ == Bodies::kText && picture && fits) {
      sparse_ = kSparseRecords;
      WEIR_ASSIGN_OR_RETURN(skipped, LeadsOn(raw.seq + raw.n_tokens, n));
    } else if (whole) {
      sparse_ = std::max(0, sparse_ - 1);
    }
    if (whole && !skipped) {
      WEIR_ASSIGN_OR_RETURN(whole, IsWhole(n));
      if (!whole) n_summed_ += n;
      if (fits) {
        body = buffer_.data() + (at_ - held_at_) + kRecordHeadBytes;
        text = {reinterpret_cast<const char*>(body), raw.text_bytes};
        whole = whole && ValidUtf8Prefix(text) == text.size();
      }
    }
    if (!whole) {
      if (!in_damage_) ++n_damaged_;
      in_damage_ = true;
      // Bytes made to look like many long records must not cost the square of their number.
      at_ = n_summed_ > 8 * end_ ? end_ : at_ + 4;
      continue;
    }
    in_damage_ = false;
    *at = at_;
    at_ += n;
    good_end_ = at_;
    seq_ = raw.seq + raw.n_tokens;
    sum_ = raw.sum;
    if (!fits) {
      ++n_too_large_;
      continue;
    }
    *block = Block();
    block->seq = raw.seq;
    block->n_tokens = raw.n_tokens;
    block->t_ms = raw.t_ms;
    block->role = static_cast<Role>(raw.role);
    block->modality = static_cast<Modality>(raw.modality);
    block->columns = raw.columns;
    block->body = static_cast<BlockBody>(raw.body);
    block->text = text;
    const int64_t n_numbers = NumbersOf(block->body, block->modality, raw.n_tokens, header_.n_embd);
    if (n_numbers > 0 && bodies_ == Bodies::kAll) {
      block->rows = {reinterpret_cast<const uint16_t*>(body), static_cast<size_t>(n_numbers)};
    }
    return true;
  }
  if (at_ < end_ && !in_damage_) ++n_damaged_;  // too few bytes for a record
  at_ = end_;
  return false;
}

}  // namespace weir
