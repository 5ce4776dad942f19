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
#include <cerrno>
#include <cstring>
#include <span>
#include <system_error>

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

// Removes what killed processes left: a file that is being written is locked.
void RemoveLeftovers(const std::string& folder, const std::string& prefix) {
  DIR* const dir = opendir(folder.c_str());
  if (dir == nullptr) return;
  while (const dirent* entry = readdir(dir)) {
    if (std::strncmp(entry->d_name, prefix.c_str(), prefix.size()) != 0) continue;
    const std::string path = folder + "/" + entry->d_name;
    const int fd = open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK);
    if (fd < 0) continue;
    if (flock(fd, LOCK_EX | LOCK_NB) == 0) unlink(path.c_str());
    close(fd);
  }
  closedir(dir);
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

PackedFile::~PackedFile() {
  if (finisher_.joinable()) finisher_.join();
  if (mapped_ != nullptr) munmap(mapped_, mapped_bytes_);
  for (const auto& [data, bytes] : pieces_) munmap(data, bytes);
  if (fd_ >= 0) {
    unlink(part_.c_str());
    close(fd_);
  }
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
  RemoveLeftovers(folder, prefix);
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

PackedFile::Piece PackedFile::Next(uint64_t print, int64_t bytes) {
  if (over_ || bytes <= 0) return {};
  const auto n = static_cast<uint64_t>(bytes);
  if (mapped_ != nullptr) {
    if (next_ == table_.size() || table_[next_].print != print || table_[next_].bytes != n) {
      GiveUp(path_ + " holds other matrices; remove it, and the next start makes it anew");
      return {};
    }
    return {mapped_ + table_[next_++].offset, true};
  }
  if (table_.size() == kMaxPieces) {
    GiveUp("too many matrices for a file of packed weights");
    return {};
  }
  // Blocks are given now: a disk that is full when pages are written would end the process.
  const int error = posix_fallocate(fd_, static_cast<off_t>(end_), static_cast<off_t>(ToPage(n)));
  void* const data = error != 0
                         ? MAP_FAILED
                         : mmap(nullptr, ToPage(n), PROT_READ | PROT_WRITE, MAP_SHARED, fd_, static_cast<off_t>(end_));
  if (data == MAP_FAILED) {
    GiveUp("cannot write packed weights to " + path_ + ": " + std::strerror(error != 0 ? error : errno));
    return {};
  }
  pieces_.emplace_back(static_cast<uint8_t*>(data), ToPage(n));
  table_.push_back({end_, n, print});
  end_ += ToPage(n);
  return {pieces_.back().first, false};
}

void PackedFile::Finish(bool ok) {
  if (over_) return;
  over_ = true;
  if (mapped_ != nullptr) return;
  if (!ok || table_.empty()) return GiveUp("");
  for (const auto& [data, bytes] : pieces_) mprotect(data, bytes, PROT_READ);
  try {
    finisher_ = std::thread([this] { Complete(); });
  } catch (const std::system_error&) {
    Complete();
  }
}

void PackedFile::Complete() {
  const auto table = BytesOf(table_.data(), table_.size());
  Header header = {{'W', 'E', 'I', 'R', 'P', 'A', 'C', 'K'},
                   kVersion,
                   0,
                   static_cast<uint32_t>(key_.size()),
                   static_cast<uint32_t>(table_.size()),
                   end_,
                   end_ + table.size()};
  header.checksum = ChecksumOf(header, key_, table);
  bool done = WriteAll(fd_, end_, table) && WriteAll(fd_, sizeof(header), BytesOf(key_.data(), key_.size())) &&
              WriteAll(fd_, 0, BytesOf(&header, 1)) && fsync(fd_) == 0 && rename(part_.c_str(), path_.c_str()) == 0;
  if (!done) unlink(part_.c_str());
  close(fd_);
  fd_ = -1;
  if (!done) return;
  const int folder = open(path_.substr(0, path_.find_last_of('/')).c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC);
  if (folder >= 0) {
    fsync(folder);
    close(folder);
  }
}

}  // namespace weir
