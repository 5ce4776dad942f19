// SPDX-License-Identifier: Apache-2.0
#include "io/mmap.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <utility>

namespace weir {
namespace {

class FileDescriptor {
 public:
  explicit FileDescriptor(int fd) : fd_(fd) {}
  ~FileDescriptor() {
    if (fd_ >= 0) ::close(fd_);
  }
  FileDescriptor(const FileDescriptor&) = delete;
  FileDescriptor& operator=(const FileDescriptor&) = delete;
  int get() const { return fd_; }

 private:
  int fd_;
};

void Unmap(std::span<const uint8_t> bytes) {
  if (!bytes.empty()) ::munmap(const_cast<uint8_t*>(bytes.data()), bytes.size());
}

}  // namespace

MappedFile::~MappedFile() { Unmap(bytes_); }

MappedFile::MappedFile(MappedFile&& other) noexcept
    : bytes_(std::exchange(other.bytes_, {})), changed_ns_(other.changed_ns_) {}

MappedFile& MappedFile::operator=(MappedFile&& other) noexcept {
  if (this != &other) {
    Unmap(bytes_);
    bytes_ = std::exchange(other.bytes_, {});
    changed_ns_ = other.changed_ns_;
  }
  return *this;
}

Result<MappedFile> MappedFile::Open(const std::string& path) {
  const FileDescriptor file(::open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK));
  if (file.get() < 0) {
    const int error = errno;
    if (error == ENOENT || error == ENOTDIR) return NotFound("{}: no such file", path);
    return IoError("{}: cannot open: {}", path, std::strerror(error));
  }
  struct stat info;
  if (::fstat(file.get(), &info) != 0) return IoError("{}: cannot stat: {}", path, std::strerror(errno));
  if (S_ISDIR(info.st_mode)) return IoError("{}: is a directory, not a file", path);
  if (!S_ISREG(info.st_mode)) return IoError("{}: not an ordinary file", path);
  if (info.st_size == 0) return Corrupt("{}: the file is empty", path);
  const size_t size = static_cast<size_t>(info.st_size);
  void* address = ::mmap(nullptr, size, PROT_READ, MAP_PRIVATE, file.get(), 0);
  if (address == MAP_FAILED) {
    return IoError("{}: cannot map {} bytes: {}", path, size, std::strerror(errno));
  }
  MappedFile mapped;
  mapped.bytes_ = {static_cast<const uint8_t*>(address), size};
  mapped.changed_ns_ = int64_t{info.st_mtim.tv_sec} * 1'000'000'000 + info.st_mtim.tv_nsec;
  return mapped;
}

void MappedFile::ReleasePages() const {
  if (!bytes_.empty()) ::madvise(const_cast<uint8_t*>(bytes_.data()), bytes_.size(), MADV_DONTNEED);
}

}  // namespace weir
