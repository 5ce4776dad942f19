// SPDX-License-Identifier: Apache-2.0
#include "io/snapshot.h"

#include <fcntl.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstdio>
#include <cstring>
#include <utility>

namespace weir {
namespace {

struct Header {
  char magic[8];
  uint32_t version, zero;
  uint64_t text_bytes, state_bytes;
  uint64_t checksum;
};
static_assert(sizeof(Header) == 40);
constexpr char kMagic[8] = {'w', 'e', 'i', 'r', 's', 'n', 'a', 'p'};
constexpr uint32_t kVersion = 1;
constexpr size_t kCoveredBytes = offsetof(Header, checksum);

std::span<const uint8_t> TextBytes(std::string_view text) {
  return {reinterpret_cast<const uint8_t*>(text.data()), text.size()};
}

// Of everything before the state.
Checksum Begun(const Header& header, std::string_view text) {
  Checksum sum;
  sum.Add({reinterpret_cast<const uint8_t*>(&header), kCoveredBytes});
  sum.End();
  sum.Add(TextBytes(text));
  sum.End();
  return sum;
}

class File {
 public:
  explicit File(int fd) : fd_(fd) {}
  ~File() {
    if (fd_ >= 0) close(fd_);
  }
  File(const File&) = delete;
  File& operator=(const File&) = delete;
  int fd() const { return fd_; }

 private:
  int fd_;
};

Status Failed(const char* what, const std::string& path) {
  return IoError("cannot {} {}: {}", what, path, std::strerror(errno));
}

Status WriteAll(int fd, std::span<const uint8_t> bytes, const std::string& path) {
  while (!bytes.empty()) {
    const ssize_t n = write(fd, bytes.data(), std::min<size_t>(bytes.size(), size_t{1} << 30));
    if (n < 0 && errno == EINTR) continue;
    if (n <= 0) return Failed("write", path);
    bytes = bytes.subspan(static_cast<size_t>(n));
  }
  return Status();
}

Status WriteAt(int fd, int64_t at, std::span<const uint8_t> bytes, const std::string& path) {
  while (!bytes.empty()) {
    const ssize_t n = pwrite(fd, bytes.data(), bytes.size(), at);
    if (n < 0 && errno == EINTR) continue;
    if (n <= 0) return Failed("write", path);
    bytes = bytes.subspan(static_cast<size_t>(n));
    at += n;
  }
  return Status();
}

Status ReadAt(int fd, int64_t at, std::span<uint8_t> to, const std::string& path) {
  while (!to.empty()) {
    const ssize_t n = pread(fd, to.data(), std::min<size_t>(to.size(), size_t{1} << 30), at);
    if (n < 0 && errno == EINTR) continue;
    if (n < 0) return Failed("read", path);
    if (n == 0) return Corrupt("{} ends early", path);
    to = to.subspan(static_cast<size_t>(n));
    at += n;
  }
  return Status();
}

// The part file, empty and locked. Between open and lock another writer may have renamed it, and writing would then
// damage a finished file: so check that the name still refers to the locked file.
Result<int> OpenPart(const std::string& part) {
  for (int attempt = 0; attempt < 100; ++attempt) {
    const int fd = open(part.c_str(), O_WRONLY | O_CREAT | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK, 0600);
    if (fd < 0) return Failed("create", part);
    struct stat mine {
    }, named{};
    if (flock(fd, LOCK_EX | LOCK_NB) != 0) {
      const Status failed =
          errno == EWOULDBLOCK ? OverBudget("another save of this file is under way") : Failed("lock", part);
      close(fd);
      return failed;
    }
    if (fstat(fd, &mine) == 0 && stat(part.c_str(), &named) == 0 && mine.st_ino == named.st_ino &&
        mine.st_dev == named.st_dev) {
      const bool regular = S_ISREG(mine.st_mode);
      if (regular && ftruncate(fd, 0) == 0) return fd;
      const Status failed = regular ? Failed("empty", part) : IoError("{} is no regular file", part);
      close(fd);
      return failed;
    }
    close(fd);
  }
  return OverBudget("other saves of this file are under way");
}

}  // namespace

// Eight bytes a step, each step a bijection of the sum: any change of a single word is detected.
void Checksum::Step(uint64_t word) {
  sum_ = (sum_ ^ word) * 0x9E3779B97F4A7C15u;
  sum_ ^= sum_ >> 29;
}

void Checksum::Add(std::span<const uint8_t> bytes) {
  const auto word = [](const uint8_t* from) {
    uint64_t out;
    std::memcpy(&out, from, 8);
    return out;
  };
  if (bytes.empty()) return;
  const size_t n_rest = n_ % 8;
  n_ += bytes.size();
  if (n_rest > 0) {
    const size_t n = std::min(8 - n_rest, bytes.size());
    std::memcpy(rest_ + n_rest, bytes.data(), n);
    bytes = bytes.subspan(n);
    if (n_rest + n < 8) return;
    Step(word(rest_));
  }
  for (; bytes.size() >= 8; bytes = bytes.subspan(8)) Step(word(bytes.data()));
  if (!bytes.empty()) std::memcpy(rest_, bytes.data(), bytes.size());
}

void Checksum::End() {
  uint64_t rest = 0;
  if (n_ % 8 > 0) std::memcpy(&rest, rest_, n_ % 8);
  Step(rest);
  Step(n_);
  n_ = 0;
}

Result<std::unique_ptr<SnapshotWriter>> SnapshotWriter::Begin(const std::string& path, std::string_view text,
                                                              int64_t state_bytes) {
  if (std::ssize(text) > kMaxSnapshotText) {
    return OverBudget("the text of snapshot {} has {} bytes, more than the {} that may be written", path, text.size(),
                      kMaxSnapshotText);
  }
  Header header = {};
  std::memcpy(header.magic, kMagic, sizeof(kMagic));
  header.version = kVersion;
  header.text_bytes = text.size();
  header.state_bytes = static_cast<uint64_t>(state_bytes);

  std::unique_ptr<SnapshotWriter> writer(new SnapshotWriter);
  writer->path_ = path;
  writer->part_ = path + ".part";
  writer->state_bytes_ = state_bytes;
  writer->checksum_ = Begun(header, text);
  WEIR_ASSIGN_OR_RETURN(writer->fd_, OpenPart(writer->part_));
  const std::span<const uint8_t> head(reinterpret_cast<const uint8_t*>(&header), sizeof(header));
  WEIR_RETURN_IF_ERROR(WriteAll(writer->fd_, head, writer->part_));
  WEIR_RETURN_IF_ERROR(WriteAll(writer->fd_, TextBytes(text), writer->part_));
  return writer;
}

SnapshotWriter::~SnapshotWriter() {
  if (fd_ < 0) return;
  unlink(part_.c_str());  // while it is locked: no other writer uses the name yet
  close(fd_);
}

Status SnapshotWriter::Write(std::span<const uint8_t> bytes) {
  if (std::ssize(bytes) > state_bytes_ - n_written_) return Internal("more bytes than the snapshot was begun for");
  checksum_.Add(bytes);
  WEIR_RETURN_IF_ERROR(WriteAll(fd_, bytes, part_));
  n_written_ += std::ssize(bytes);
  return Status();
}

Status SnapshotWriter::Finish(bool sync) {
  if (n_written_ != state_bytes_) return Internal("fewer bytes than the snapshot was begun for");
  checksum_.End();
  const uint64_t sum = checksum_.value();
  WEIR_RETURN_IF_ERROR(WriteAt(fd_, kCoveredBytes, {reinterpret_cast<const uint8_t*>(&sum), sizeof(sum)}, part_));
  if (sync && fsync(fd_) != 0) return Failed("write", part_);
  if (std::rename(part_.c_str(), path_.c_str()) != 0) return Failed("write", path_);
  close(std::exchange(fd_, -1));
  if (!sync) return Status();
  const size_t slash = path_.find_last_of('/');
  const std::string folder = slash == std::string::npos ? "." : slash == 0 ? "/" : path_.substr(0, slash);
  const File directory(open(folder.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC));
  if (directory.fd() < 0 || fsync(directory.fd()) != 0) return Failed("sync the folder of", path_);
  return Status();
}

Result<std::unique_ptr<SnapshotReader>> SnapshotReader::Open(const std::string& path, int64_t max_bytes) {
  std::unique_ptr<SnapshotReader> reader(new SnapshotReader);
  // Non-blocking: opening a pipe of that name would wait forever.
  const int fd = reader->fd_ = open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK);
  if (fd < 0) {
    if (errno == ENOENT) return NotFound("there is no snapshot {}", path);
    return Failed("read", path);
  }
  struct stat info {};
  if (fstat(fd, &info) != 0) return Failed("read", path);
  if (!S_ISREG(info.st_mode)) return IoError("{} is no regular file", path);
  if (info.st_size > max_bytes) {
    return OverBudget("snapshot {} has {} bytes, more than the {} that may be read", path, info.st_size, max_bytes);
  }
  const uint64_t n_bytes = static_cast<uint64_t>(info.st_size);
  Header header;
  const auto not_one = [&] { return Corrupt("{} is no snapshot of a session; name one, or a new file", path); };
  if (n_bytes < sizeof(header)) return not_one();
  WEIR_RETURN_IF_ERROR(ReadAt(fd, 0, {reinterpret_cast<uint8_t*>(&header), sizeof(header)}, path));
  if (std::memcmp(header.magic, kMagic, sizeof(kMagic)) != 0) return not_one();
  if (header.version != kVersion) {
    return Unsupported("snapshot {} has version {}; this build reads version {}", path, header.version, kVersion);
  }
  const uint64_t n_payload = n_bytes - sizeof(header);
  if (header.text_bytes > n_payload || header.state_bytes != n_payload - header.text_bytes) {
    return Corrupt("snapshot {} does not have the length it names", path);
  }
  if (header.text_bytes > uint64_t{kMaxSnapshotText}) {
    return OverBudget("the text of snapshot {} has {} bytes, more than the {} that may be read", path,
                      header.text_bytes, kMaxSnapshotText);
  }
  reader->path_ = path;
  reader->text_.resize(header.text_bytes);
  WEIR_RETURN_IF_ERROR(
      ReadAt(fd, sizeof(header), {reinterpret_cast<uint8_t*>(reader->text_.data()), reader->text_.size()}, path));
  reader->state_begin_ = static_cast<int64_t>(sizeof(header) + header.text_bytes);
  reader->state_bytes_ = static_cast<int64_t>(header.state_bytes);
  reader->changed_ = info.st_mtim;
  Checksum sum = Begun(header, reader->text_);
  std::array<uint8_t, 1 << 15> piece;
  while (reader->n_left() > 0) {
    const std::span<uint8_t> here(piece.data(), static_cast<size_t>(std::min(std::ssize(piece), reader->n_left())));
    WEIR_RETURN_IF_ERROR(reader->Read(here));
    sum.Add(here);
  }
  sum.End();
  if (sum.value() != header.checksum) return Corrupt("snapshot {} is damaged", path);
  reader->Rewind();
  return reader;
}

SnapshotReader::~SnapshotReader() {
  if (fd_ >= 0) close(fd_);
}

Status SnapshotReader::Read(std::span<uint8_t> to) {
  if (std::ssize(to) > n_left()) return EndsEarly();
  WEIR_RETURN_IF_ERROR(ReadAt(fd_, state_begin_ + at_, to, path_));
  at_ += std::ssize(to);
  if (n_left() > 0) return Status();
  struct stat now {};
  if (fstat(fd_, &now) != 0) return Failed("read", path_);
  if (now.st_mtim.tv_sec != changed_.tv_sec || now.st_mtim.tv_nsec != changed_.tv_nsec) {
    return Corrupt("{} was written to while it was read", path_);
  }
  return Status();
}

Status SnapshotReader::Skip(int64_t n) {
  if (n < 0 || n > n_left()) return EndsEarly();
  at_ += n;
  return Status();
}

}  // namespace weir
