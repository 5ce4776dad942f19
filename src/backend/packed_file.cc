// SPDX-License-Identifier: Apache-2.0
#include "backend/packed_file.h"

#include <dirent.h>
#include <fcntl.h>
#include <sys/file.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <unistd.h>

#include <fmt/core.h>
#include <algorithm>
#include <cerrno>
#include <cstring>
#include <span>
#include <utility>

#include "base/crc32c.h"
#include "base/memory.h"

namespace weir {
namespace {

// Rises when a layout of weights changes (backend/cpu/pack_test.cc detects it), or what a piece's print is made of.
constexpr uint32_t kVersion = 3;
constexpr uint32_t kMaxPieces = 1 << 20;

struct Header {
  char magic[8];
  uint32_t version, checksum, key_bytes, n_pieces;
  uint64_t table, file_bytes;
};
static_assert(sizeof(Header) == 40);
static_assert(sizeof(Header) + PackedFile::kMaxKey <= static_cast<size_t>(kPageBytes));

uint64_t ToPage(uint64_t bytes) { return static_cast<uint64_t>(PageRound(static_cast<int64_t>(bytes))); }

template <typename T>
std::span<const uint8_t> BytesOf(const T* at, size_t n) {
  return {reinterpret_cast<const uint8_t*>(at), n * sizeof(T)};
}

uint32_t ChecksumOf(Header header, const std::string& key, std::span<const uint8_t> table) {
  header.checksum = 0;
  return Crc32c(table, Crc32c(BytesOf(key.data(), key.size()), Crc32c(BytesOf(&header, 1))));
}

bool WriteAll(int fd, uint64_t at, std::span<const uint8_t> bytes) {
  while (!bytes.empty()) {
    const ssize_t n = pwrite(fd, bytes.data(), bytes.size(), static_cast<off_t>(at));
    if (n < 0 && errno == EINTR) continue;
    if (n <= 0) return false;
    at += static_cast<uint64_t>(n);
    bytes = bytes.subspan(static_cast<size_t>(n));
  }
  return true;
}

// Removes what killed processes left. False if a process is writing such a file: then it is locked.
bool RemoveLeftovers(const std::string& folder, const std::string& prefix) {
  DIR* const dir = opendir(folder.c_str());
  if (dir == nullptr) return true;
  bool none = true;
  while (const dirent* entry = readdir(dir)) {
    if (std::strncmp(entry->d_name, prefix.c_str(), prefix.size()) != 0) continue;
    const std::string path = folder + "/" + entry->d_name;
    const int fd = open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK);
    if (fd < 0) continue;
    if (flock(fd, LOCK_EX | LOCK_NB) == 0) {
      unlink(path.c_str());
    } else {
      none = false;
    }
    close(fd);
  }
  closedir(dir);
  return none;
}

}  // namespace

std::unique_ptr<PackedFile> PackedFile::Open(const std::string& folder, const std::string& name, const std::string& key,
                                             int64_t bytes_about) {
  std::unique_ptr<PackedFile> out(new PackedFile);
  out->path_ = folder + "/" + name + ".packed";
  if (key.size() > kMaxKey) {
    out->GiveUp("the key of packed weights is too long");
  } else if (!out->Read(key)) {
    out->Begin(folder, key, bytes_about);
  }
  return out;
}

std::unique_ptr<PackedFile> PackedFile::None() { return std::unique_ptr<PackedFile>(new PackedFile); }

PackedFile::~PackedFile() {
  if (mapped_ != nullptr) munmap(mapped_, mapped_bytes_);
  GiveUp("");
}

bool PackedFile::Read(const std::string& key) {
  const int fd = open(path_.c_str(), O_RDONLY | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK);
  if (fd < 0) return false;
  struct stat info;
  void* data = MAP_FAILED;
  const bool ours = fstat(fd, &info) == 0 && S_ISREG(info.st_mode) && info.st_uid == geteuid() &&
                    (info.st_mode & (S_IWGRP | S_IWOTH)) == 0 && info.st_size >= kPageBytes;
  const uint64_t n_bytes = ours ? static_cast<uint64_t>(info.st_size) : 0;
  if (ours) data = mmap(nullptr, n_bytes, PROT_READ, MAP_SHARED, fd, 0);
  close(fd);
  if (data == MAP_FAILED) return false;
  mapped_ = static_cast<uint8_t*>(data);
  mapped_bytes_ = n_bytes;

  Header header;
  std::memcpy(&header, mapped_, sizeof(header));
  const uint64_t table_bytes = header.n_pieces * uint64_t{sizeof(Entry)};
  bool fits = std::memcmp(header.magic, "WEIRPACK", 8) == 0 && header.version == kVersion &&
              header.file_bytes == n_bytes && header.key_bytes == key.size() && header.n_pieces <= kMaxPieces &&
              header.table >= static_cast<uint64_t>(kPageBytes) && header.table <= n_bytes &&
              table_bytes == n_bytes - header.table &&
              std::memcmp(mapped_ + sizeof(header), key.data(), key.size()) == 0 &&
              header.checksum == ChecksumOf(header, key, {mapped_ + header.table, table_bytes});
  if (fits) {
    table_.resize(header.n_pieces);
    std::memcpy(table_.data(), mapped_ + header.table, table_bytes);
  }
  for (const Entry& entry : table_) {
    fits = fits && entry.offset % static_cast<uint64_t>(kPageBytes) == 0 && entry.offset <= header.table &&
           entry.bytes <= header.table - entry.offset;
  }
  if (fits) return true;
  munmap(mapped_, mapped_bytes_);
  mapped_ = nullptr;
  table_.clear();
  return false;
}

void PackedFile::Begin(const std::string& folder, const std::string& key, int64_t bytes_about) {
  if (mkdir(folder.c_str(), 0700) != 0 && errno != EEXIST) {
    return GiveUp("cannot make the folder " + folder + ": " + std::strerror(errno));
  }
  struct stat old;
  if (lstat(path_.c_str(), &old) == 0 && !S_ISREG(old.st_mode) && !S_ISLNK(old.st_mode)) {
    return GiveUp(path_ + " is no file; remove it, and the next start keeps packed weights there");
  }
  const std::string prefix = path_.substr(folder.size() + 1) + ".part-";
  if (!RemoveLeftovers(folder, prefix)) return GiveUp("another program is writing " + path_);
  struct statvfs disk;
  const auto needed = static_cast<uint64_t>(bytes_about);
  if (statvfs(folder.c_str(), &disk) == 0 && uint64_t{disk.f_bavail} * disk.f_frsize < needed) {
    return GiveUp(fmt::format("packed weights need about {} bytes in {}, which has {} left", needed, folder,
                              uint64_t{disk.f_bavail} * disk.f_frsize));
  }
  part_ = folder + "/" + prefix + "XXXXXX";
  fd_ = mkostemp(part_.data(), O_CLOEXEC);  // 0600
  if (fd_ < 0) return GiveUp("cannot write packed weights to " + folder + ": " + std::strerror(errno));
  flock(fd_, LOCK_EX | LOCK_NB);
  key_ = key;
  end_ = static_cast<uint64_t>(kPageBytes);
}

void PackedFile::GiveUp(std::string why) {
  if (note_.empty()) note_ = std::move(why);
  over_ = true;
  if (fd_ < 0) return;
  unlink(part_.c_str());
  close(fd_);
  fd_ = -1;
}

const uint8_t* PackedFile::Next(uint64_t print, int64_t bytes) {
  if (over_ || bytes <= 0 || mapped_ == nullptr) return nullptr;
  if (next_ == table_.size() || table_[next_].print != print || table_[next_].bytes != static_cast<uint64_t>(bytes)) {
    GiveUp(path_ + " holds other matrices; remove it, and the next start makes it anew");
    return nullptr;
  }
  return mapped_ + table_[next_++].offset;
}

void PackedFile::Keep(uint64_t print, uint8_t* data, int64_t bytes) {
  if (finished_) return;
  kept_.push_back({data, bytes});
  if (over_ || fd_ < 0) return;
  if (table_.size() == kMaxPieces) return GiveUp("too many matrices for a file of packed weights");
  const auto n = static_cast<uint64_t>(bytes);
  table_.push_back({end_, n, print});
  end_ += ToPage(n);
}

void PackedFile::Finish(bool ok) {
  if (finished_) return;
  over_ = finished_ = true;
  if (mapped_ != nullptr || fd_ < 0) return;
  if (!ok || table_.empty()) GiveUp("");
}

bool PackedFile::WriteSome() {
  if (!writing()) return false;
  const bool first = next_ == 0 && next_at_ == 0;
  if ((first && !Allocate()) || !(next_ == table_.size() ? Complete() : WriteNext())) {
    GiveUp("cannot write packed weights to " + path_ + ": " + std::strerror(errno));
  }
  return writing();
}

// Takes all blocks, in one piece: a disk that is too small is known before anything is written.
bool PackedFile::Allocate() {
  return fallocate(fd_, 0, 0, static_cast<off_t>(end_)) == 0 || errno == EOPNOTSUPP || errno == ENOSYS;
}

// Some of the next piece. The disk is kept as far behind as it can follow, so that the last sync is short and other
// programs find no queue.
bool PackedFile::WriteNext() {
  constexpr uint64_t kStep = uint64_t{1} << 20, kBehind = uint64_t{32} << 20;
  const Entry& entry = table_[next_];
  const uint64_t n = std::min(kStep, entry.bytes - next_at_), at = entry.offset + next_at_;
  if (!WriteAll(fd_, at, {kept_[next_].data + next_at_, n})) return false;
  next_at_ += n;
  if (next_at_ == entry.bytes) {
    ++next_;
    next_at_ = 0;
  }
  if (at + n < synced_ + kBehind) return true;
  // Only hints; fsync() follows.
  if (synced_ >= kBehind) {
    sync_file_range(fd_, static_cast<off_t>(synced_ - kBehind), static_cast<off_t>(kBehind),
                    SYNC_FILE_RANGE_WAIT_BEFORE | SYNC_FILE_RANGE_WRITE | SYNC_FILE_RANGE_WAIT_AFTER);
  }
  sync_file_range(fd_, static_cast<off_t>(synced_), static_cast<off_t>(kBehind), SYNC_FILE_RANGE_WRITE);
  synced_ += kBehind;
  return true;
}

// The file gets its name.
bool PackedFile::Complete() {
  const auto table = BytesOf(table_.data(), table_.size());
  Header header = {{'W', 'E', 'I', 'R', 'P', 'A', 'C', 'K'},
                   kVersion,
                   0,
                   static_cast<uint32_t>(key_.size()),
                   static_cast<uint32_t>(table_.size()),
                   end_,
                   end_ + table.size()};
  header.checksum = ChecksumOf(header, key_, table);
  if (!WriteAll(fd_, end_, table) || !WriteAll(fd_, sizeof(header), BytesOf(key_.data(), key_.size())) ||
      !WriteAll(fd_, 0, BytesOf(&header, 1)) || fsync(fd_) != 0 || rename(part_.c_str(), path_.c_str()) != 0) {
    return false;
  }
  close(fd_);
  fd_ = -1;
  const int folder = open(path_.substr(0, path_.find_last_of('/')).c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC);
  if (folder >= 0) {
    fsync(folder);
    close(folder);
  }
  return true;
}

}  // namespace weir
