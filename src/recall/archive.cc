// SPDX-License-Identifier: Apache-2.0
// An archive that is open: adding, finding, the quota. What makes, opens, copies and deletes one is in
// archive_files.cc.
#include "recall/archive.h"

#include <fcntl.h>
#include <sys/random.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <limits>
#include <utility>

#include "recall/archive_io.h"

namespace weir {

std::string ArchiveNotes::Text() const {
  std::string out;
  const auto add = [&](int64_t n, const char* what) {
    if (n > 0) out += fmt::format("{}{} {}", out.empty() ? "" : "; ", n, what);
  };
  add(n_damaged, "damaged places in the archive, left out");
  add(n_lost_segments, "segments of the archive cannot be read");
  add(n_foreign_pictures, "pictures that another model had encoded, left out");
  add(n_too_large, "blocks larger than the buffers, left out");
  add(cut_bytes, "bytes of an unfinished write at the archive's end, left out");
  add(removed_to_seq, "tokens at the beginning of the stream removed to stay within the archive's size");
  add(missing_tokens, "tokens that the session had read are missing from the archive's end");
  add(n_not_kept, "blocks not kept");
  return out;
}

Archive::~Archive() {
  Flush();
  for (const Segment& segment : segments()) {
    if (segment.fd >= 0) close(segment.fd);
  }
  if (lock_ >= 0) close(lock_);
}

void Archive::TurnOff(const Status& why) {
  writing_ = false;
  if (state_.ok()) state_ = Status(why.code(), fmt::format("{} kept for recall: {}", what_, why.message()));
}

Status Archive::stores_state() const {
  for (const Archive* store : {keys_.get(), kv_.get()}) {
    if (store != nullptr && !store->state().ok()) return store->state();
  }
  return Status();
}

// Where the buffer's bytes are written to, the newest segment's end, is behind whole records only: what a failed write
// leaves there is cut off, or, should that fail too, no record.
Status Archive::WriteOut() {
  if (n_buffered_ == 0) return Status();
  const Status status = Put(write_.first(static_cast<size_t>(n_buffered_)));
  if (!status.ok()) return status;
  n_buffered_ = 0;
  sum_ = buffered_sum_;
  return status;
}

Status Archive::Put(std::span<const uint8_t> bytes) {
  Segment& segment = newest();
  const Status status = WriteAt(segment.fd, segment.bytes, bytes, PathOf(segment.header.number));
  if (!status.ok()) {
    (void)!ftruncate(segment.fd, segment.bytes);
    return status;
  }
  segment.bytes += std::ssize(bytes);
  bytes_written_ += std::ssize(bytes);
  return status;
}

void Archive::Flush() {
  if (keys_ != nullptr) keys_->Flush();
  if (kv_ != nullptr) kv_->Flush();
  if (!state_.ok()) return;
  if (const Status status = WriteOut(); !status.ok()) TurnOff(status);
}

Status Archive::CloseSegment() {
  WEIR_RETURN_IF_ERROR(WriteOut());
  writing_ = false;
  if (!named()) return Status();
  Segment& segment = newest();
  const std::string path = PathOf(segment.header.number);
  if (fdatasync(segment.fd) != 0) return Failed("write", path);
  close(std::exchange(segment.fd, -1));
  return SyncFolder(options_.dir);
}

Status Archive::RemoveOldest() {
  Segment& oldest = segments_[0];
  if (oldest.fd >= 0) close(std::exchange(oldest.fd, -1));
  const std::string path = PathOf(oldest.header.number);
  if (named() && unlink(path.c_str()) != 0 && errno != ENOENT) return Failed("delete", path);
  std::move(segments_ + 1, segments_ + n_segments_, segments_);
  if (--n_segments_ == 0) writing_ = false;
  notes_.removed_to_seq = std::max(notes_.removed_to_seq, n_segments_ > 0 ? segments_[0].header.first_seq : seq_end_);
  return Status();
}

// Deletes the oldest segments until there is room for one more.
Status Archive::MakeRoom() {
  WEIR_RETURN_IF_ERROR(RemoveSurplus());
  while (n_segments_ > 0 && (n_segments_ == sizes_.n_segments || OwnDiskBytes() + sizes_.segment > sizes_.disk)) {
    WEIR_RETURN_IF_ERROR(RemoveOldest());
  }
  return Status();
}

Status Archive::BeginSegment(int64_t first_seq) {
  WEIR_RETURN_IF_ERROR(MakeRoom());
  if (next_number_ == std::numeric_limits<int32_t>::max()) return Internal("the archive has no more numbers");
  Segment segment;
  segment.header = {next_number_, options_.n_embd, options_.model_hash, options_.tokenizer_hash, first_seq, 0};
  if (getrandom(&segment.header.salt, sizeof(segment.header.salt), 0) != sizeof(segment.header.salt)) {
    return IoError("the system gives no random numbers: {}", std::strerror(errno));
  }
  WEIR_ASSIGN_OR_RETURN(segment.fd, named() ? CreateFile(PathOf(next_number_)) : CreateUnnamed(options_.temp_dir));
  ++next_number_;
  segments_[n_segments_++] = segment;
  WriteSegmentHead(segment.header, write_.first(kSegmentHeadBytes));
  n_buffered_ = kSegmentHeadBytes;
  sum_ = buffered_sum_ = 0;
  writing_ = true;
  return Status();
}

Status Archive::Add(const Block& block) {
  const int64_t n = RecordBytes(block);
  if (untrimmed_) WEIR_RETURN_IF_ERROR(Trim());
  if (writing_ && newest().bytes + n_buffered_ + n > sizes_.segment) WEIR_RETURN_IF_ERROR(CloseSegment());
  if (!writing_) WEIR_RETURN_IF_ERROR(BeginSegment(block.seq));
  if (n_buffered_ + n > std::ssize(write_)) WEIR_RETURN_IF_ERROR(WriteOut());
  const SegmentHeader& header = newest().header;
  const int64_t at = newest().bytes + n_buffered_;
  newest_place_ = int64_t{header.number} << 32 | at;
  const std::span<const uint8_t> body = RecordBody(block);
  const int64_t n_zeros = n - kRecordHeadBytes - std::ssize(body);
  if (n <= std::ssize(write_)) {
    const std::span<uint8_t> to = write_.subspan(static_cast<size_t>(n_buffered_), static_cast<size_t>(n));
    WriteRecordHead(block, header, at, to.first(kRecordHeadBytes));
    std::fill_n(std::copy(body.begin(), body.end(), to.begin() + kRecordHeadBytes), n_zeros, uint8_t{0});
    n_buffered_ += n;
    buffered_sum_ = SumOfRecord(to);
    return Status();
  }
  // Larger than the buffer: the head, then the caller's own memory.
  Segment& segment = newest();
  const std::string path = PathOf(header.number);
  uint8_t head[kRecordHeadBytes];
  const uint8_t zeros[4] = {};
  WriteRecordHead(block, header, at, head);
  Status status = WriteAt(segment.fd, at, head, path);
  if (status.ok()) status = WriteAt(segment.fd, at + kRecordHeadBytes, body, path);
  if (status.ok()) status = WriteAt(segment.fd, at + n - n_zeros, {zeros, static_cast<size_t>(n_zeros)}, path);
  if (!status.ok()) {
    (void)!ftruncate(segment.fd, segment.bytes);
    return status;
  }
  segment.bytes += n;
  bytes_written_ += n;
  sum_ = buffered_sum_ = SumOfRecord(head);
  return Status();
}

Status Archive::Append(const Block& block) {
  const Status status = Take(block);
  if (!status.ok()) ++notes_.n_not_kept;
  return status;
}

Status Archive::Take(const Block& block) {
  WEIR_RETURN_IF_ERROR(CheckBlock(block, options_.n_embd));
  const bool fits = block.body == BlockBody::kOneRow || block.rows.empty() || block.n_tokens <= options_.max_rows;
  if (std::ssize(block.text) > options_.max_text_bytes || !fits) {
    return InvalidArgument("a block of {} tokens and {} bytes of text is larger than the archive was made for",
                           block.n_tokens, block.text.size());
  }
  if (block.seq < seq_end_) return InvalidArgument("a block begins at seq {}, before {}", block.seq, seq_end_);
  if (state_.ok()) {
    if (const Status status = Add(block); !status.ok()) TurnOff(status);
  }
  if (state_.ok()) {
    seq_end_ = block.seq_end();
  } else {
    ++notes_.n_not_kept;
  }
  return Status();
}

int64_t Archive::OwnDiskBytes() const {
  int64_t n = n_buffered_;
  for (const Segment& segment : segments()) n += segment.bytes;
  return n;
}

int64_t Archive::disk_bytes() const {
  return OwnDiskBytes() + (keys_ == nullptr ? 0 : keys_->disk_bytes()) + (kv_ == nullptr ? 0 : kv_->disk_bytes());
}

int64_t Archive::seq_begin() const {
  for (const Segment& segment : segments()) {
    if (!segment.lost) return segment.header.first_seq;
  }
  return seq_end_;
}

ArchiveNotes Archive::notes() const {
  ArchiveNotes out = notes_;
  out.n_lost_segments += n_unreadable_;
  out.n_damaged += n_unordered_;
  for (const Segment& segment : segments()) {
    out.n_damaged += segment.n_damaged;
    out.n_too_large += segment.n_too_large;
    out.n_lost_segments += segment.lost;
  }
  return out;
}

bool Archive::Foreign(const Segment& segment) const {
  if (read_only_) return false;
  return segment.header.model_hash != options_.model_hash || segment.header.n_embd != options_.n_embd;
}

BlockPlace Archive::begin() const {
  const int64_t number = n_segments_ > 0 ? segments_[0].header.number : next_number_;
  return number << 32 | kSegmentHeadBytes;
}

Status Archive::ReadAt(const Segment& segment, int fd, int64_t at, std::span<uint8_t> to) const {
  const int64_t n_file = std::clamp<int64_t>(segment.bytes - at, 0, std::ssize(to));
  if (n_file > 0) {
    WEIR_RETURN_IF_ERROR(ReadFrom(fd, at, to.first(static_cast<size_t>(n_file)), PathOf(segment.header.number)));
  }
  // Only the newest segment has more.
  const int64_t from = at + n_file - segment.bytes;
  if (n_file < std::ssize(to)) std::copy_n(write_.begin() + from, std::ssize(to) - n_file, to.begin() + n_file);
  return Status();
}

Result<int64_t> Archive::WalkSegment(Segment& segment, int64_t at, int64_t end,
                                     const std::function<bool(const Block&, int64_t at, const RecordWalk&)>& visit,
                                     Bodies bodies, int64_t pass_to) {
  const OwnedFd own(segment.fd >= 0 ? -1 : OpenFile(PathOf(segment.header.number), O_RDONLY));
  const int fd = segment.fd >= 0 ? segment.fd : own.fd();
  if (fd < 0) return Failed("read", PathOf(segment.header.number));
  RecordWalk walk(
      segment.header, [&](int64_t from, std::span<uint8_t> to) { return ReadAt(segment, fd, from, to); }, at, end,
      read_, bodies);
  walk.PassOverTo(pass_to);
  Block block;
  bool more = true;
  while (more) {
    WEIR_ASSIGN_OR_RETURN(more, walk.Next(&block, &at));
    if (more) more = visit(block, at, walk);
  }
  segment.n_damaged = std::max(segment.n_damaged, walk.n_damaged());
  segment.n_too_large = std::max(segment.n_too_large, walk.n_too_large());
  return walk.seq_end();
}

int64_t Archive::EndOf(const Segment& segment) const {
  return segment.bytes + (&segment == &newest() ? n_buffered_ : 0);
}

Status Archive::ScanRange(SeqRange seqs, const Visit& visit) {
  BlockPlace from = begin();
  for (const Segment& segment : segments()) {
    if (!segment.lost && segment.header.first_seq <= seqs.begin) {
      from = int64_t{segment.header.number} << 32 | kSegmentHeadBytes;
    }
  }
  const Visit in_range = [&](BlockPlace place, const Block& block) {
    if (block.seq >= seqs.end) return false;
    return block.seq_end() <= seqs.begin || visit(place, block);
  };
  return ScanBlocks(from, in_range, Bodies::kAll, seqs.begin);
}

Status Archive::ScanBlocks(BlockPlace from, const Visit& visit, Bodies bodies, int64_t pass_to) {
  const int64_t number = from >> 32, at = (from & 0xFFFFFFFF) / 4 * 4;
  notes_.n_foreign_pictures = n_unreadable_ = n_unordered_ = 0;
  Status failed;
  bool more = true;
  int64_t n_read = 0, seq_end = 0;
  for (Segment& segment : segments()) {
    if (segment.header.number < number || segment.lost) continue;
    const int64_t begin = segment.header.number == number ? std::max(at, kSegmentHeadBytes) : kSegmentHeadBytes;
    const auto walked = WalkSegment(
        segment, begin, EndOf(segment),
        [&](const Block& block, int64_t here, auto&) {
          // Segments of two archives in one folder.
          if (block.seq < seq_end) return ++n_unordered_ > 0;
          seq_end = block.seq_end();
          if ((block.modality != Modality::kText || !block.rows.empty()) && Foreign(segment)) {
            ++notes_.n_foreign_pictures;
            return true;
          }
          more = visit(int64_t{segment.header.number} << 32 | here, block);
          return more;
        },
        bodies, pass_to);
    if (!more) return Status();
    if (walked.ok()) {
      ++n_read;
    } else {
      ++n_unreadable_;
      failed = walked.status();
    }
  }
  return n_read == 0 ? failed : Status();
}

}  // namespace weir
