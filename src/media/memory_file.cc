// SPDX-License-Identifier: Apache-2.0
#include "media/memory_file.h"

#include <sys/mman.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <utility>

namespace weir {

namespace {
constexpr const char* kFolder = "/proc/self/fd/";
}  // namespace

MemoryFile::MemoryFile(int fd) : fd_(fd), path_(kFolder + std::to_string(fd)) {}

bool MemoryFile::Names(const std::string& path) { return path.starts_with(kFolder); }

MemoryFile::MemoryFile(MemoryFile&& other) noexcept
    : fd_(std::exchange(other.fd_, -1)), path_(std::move(other.path_)) {}

MemoryFile::~MemoryFile() {
  if (fd_ >= 0) close(fd_);
}

Result<MemoryFile> MemoryFile::Make(std::string_view bytes) {
  const int fd = memfd_create("weir-media", MFD_CLOEXEC);
  if (fd < 0) return IoError("cannot make a file in memory: {}", std::strerror(errno));
  MemoryFile out(fd);
  while (!bytes.empty()) {
    const ssize_t n = write(fd, bytes.data(), bytes.size());
    if (n < 0 && errno == EINTR) continue;
    if (n <= 0) return IoError("cannot write a file in memory: {}", std::strerror(errno));
    bytes.remove_prefix(static_cast<size_t>(n));
  }
  return out;
}

}  // namespace weir
