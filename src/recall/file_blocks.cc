// SPDX-License-Identifier: Apache-2.0
#include "recall/file_blocks.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <string_view>

#include "base/utf8.h"

namespace weir {
namespace {

constexpr size_t kBlockBytes = 128;     // a block ends at the first white space after as many
constexpr size_t kMaxBlockBytes = 256;  // and here in any case
constexpr size_t kReadBytes = 1 << 16;
constexpr size_t kRepairedBytes = 3 * kMaxBlockBytes;  // every byte became U+FFFD

// The length of the first block of `text`; 0 if more of the text has to be known.
size_t BlockLength(std::string_view text, bool at_end) {
  const size_t most = std::min(text.size(), kMaxBlockBytes);
  for (size_t i = kBlockBytes; i < most; ++i) {
    if (text[i] == ' ' || text[i] == '\n') return i;
  }
  if (text.size() < kMaxBlockBytes) return at_end ? text.size() : 0;
  size_t cut = kMaxBlockBytes;  // never inside a character
  while (cut > kMaxBlockBytes - 4 && (static_cast<uint8_t>(text[cut - 1]) & 0xC0) == 0x80) --cut;
  return cut > 1 && (static_cast<uint8_t>(text[cut - 1]) & 0xC0) == 0xC0 ? cut - 1 : kMaxBlockBytes;
}

}  // namespace

Result<std::unique_ptr<FileBlocks>> FileBlocks::Open(const std::string& path) {
  std::unique_ptr<FileBlocks> out(new FileBlocks);
  out->path_ = path;
  out->fd_ = open(path.c_str(), O_RDONLY | O_CLOEXEC);
  if (out->fd_ < 0) return IoError("cannot read {}: {}", path, std::strerror(errno));
  struct stat info;
  if (fstat(out->fd_, &info) != 0 || !S_ISREG(info.st_mode)) {
    return InvalidArgument("{} is not a regular file: its text cannot be read again", path);
  }
  out->buffer_.resize(kReadBytes);
  out->repaired_.reserve(kRepairedBytes);
  out->points_[0] = {0, 0};
  out->n_points_ = 1;
  return out;
}

int64_t FileBlocks::MemoryBytes() { return sizeof(FileBlocks) + kReadBytes + kRepairedBytes; }

FileBlocks::~FileBlocks() {
  if (fd_ >= 0) close(fd_);
}

void FileBlocks::ReadTo(int64_t byte, int64_t seq) {
  byte_end_ = byte;
  seq_end_ = seq;
  if (byte == 0) points_[0] = {0, seq};
  if (byte - points_[n_points_ - 1].first < every_) return;
  if (n_points_ == kMaxPoints) {
    for (size_t i = 1; i < kMaxPoints / 2; ++i) points_[i] = points_[2 * i];
    n_points_ = kMaxPoints / 2;
    every_ = std::max<int64_t>(2 * every_, 2 * byte / static_cast<int64_t>(kMaxPoints));
    if (byte - points_[n_points_ - 1].first < every_) return;
  }
  points_[n_points_++] = {byte, seq};
}

int64_t FileBlocks::SeqAt(int64_t byte) const {
  const auto end = points_.begin() + static_cast<ptrdiff_t>(n_points_);
  const auto after =
      std::upper_bound(points_.begin(), end, byte,
                       [](int64_t at, const std::pair<int64_t, int64_t>& point) { return at < point.first; });
  const auto [byte_0, seq_0] = *(after - 1);
  const auto [byte_1, seq_1] = after == end ? std::pair(byte_end_, seq_end_) : *after;
  if (byte_1 <= byte_0) return seq_0;
  return seq_0 + (byte - byte_0) * (seq_1 - seq_0) / (byte_1 - byte_0);
}

Status FileBlocks::Scan(BlockPlace from, const Visit& visit) {
  size_t n = 0;       // bytes in the buffer
  int64_t at = from;  // of its first byte in the file
  for (bool more = true; more;) {
    const int64_t wanted =
        std::min<int64_t>(static_cast<int64_t>(kReadBytes - n), byte_end_ - at - static_cast<int64_t>(n));
    const ssize_t got =
        wanted > 0 ? pread(fd_, buffer_.data() + n, static_cast<size_t>(wanted), at + static_cast<int64_t>(n)) : 0;
    if (got < 0 && errno == EINTR) continue;
    if (got < 0) return IoError("cannot read {} again: {}", path_, std::strerror(errno));
    more = got > 0;
    n += static_cast<size_t>(got);
    size_t done = 0;
    while (done < n) {
      const std::string_view rest(buffer_.data() + done, n - done);
      const size_t length = BlockLength(rest, !more);
      if (length == 0) break;
      const int64_t begin = at + static_cast<int64_t>(done);
      Block block = {.seq = SeqAt(begin), .text = rest.substr(0, length)};
      block.n_tokens =
          static_cast<int32_t>(std::max<int64_t>(1, SeqAt(begin + static_cast<int64_t>(length)) - block.seq));
      if (ValidUtf8Prefix(block.text) != block.text.size()) {
        repaired_ = SanitizeUtf8(block.text, nullptr);
        block.text = repaired_;
      }
      if (!visit(begin, block)) return Status();
      done += length;
    }
    std::memmove(buffer_.data(), buffer_.data() + done, n - done);
    n -= done;
    at += static_cast<int64_t>(done);
  }
  return Status();
}

}  // namespace weir
