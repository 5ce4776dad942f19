// SPDX-License-Identifier: Apache-2.0
#include "recall/archive_io.h"

#include <fcntl.h>
#include <sys/stat.h>

#include <algorithm>
#include <cerrno>
#include <cstdlib>
#include <cstring>

namespace weir {

Status Failed(const char* what, const std::string& path) {
  return IoError("cannot {} {}: {}", what, path, std::strerror(errno));
}

int OpenFile(const std::string& path, int flags) {
  // Non-blocking: opening a pipe of that name would wait forever.
  const int fd = open(path.c_str(), flags | O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC);
  struct stat info {};
  if (fd >= 0 && (fstat(fd, &info) != 0 || !S_ISREG(info.st_mode))) {
    close(fd);
    errno = EINVAL;
    return -1;
  }
  return fd;
}

Result<int> CreateFile(const std::string& path) {
  const int fd = open(path.c_str(), O_RDWR | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC, 0600);
  if (fd < 0) return Failed("create", path);
  return fd;
}

Result<int> CreateUnnamed(const std::string& folder) {
  const int fd = open(folder.c_str(), O_TMPFILE | O_RDWR | O_CLOEXEC, 0600);
  if (fd >= 0) return fd;
  // Some file systems have no such files.
  std::string path = folder + "/weir-XXXXXX";
  const int named = mkostemp(path.data(), O_CLOEXEC);
  if (named < 0) return Failed("create a temporary file in", folder);
  unlink(path.c_str());
  return named;
}

Status WriteAt(int fd, int64_t at, std::span<const uint8_t> bytes, const std::string& path) {
  while (!bytes.empty()) {
    const ssize_t n = pwrite(fd, bytes.data(), bytes.size(), at);
    if (n < 0 && errno == EINTR) continue;
    if (n < 0) return Failed("write", path);
    if (n == 0) return IoError("cannot write {}: the system takes no more bytes", path);
    bytes = bytes.subspan(static_cast<size_t>(n));
    at += n;
  }
  return Status();
}

Status ReadFrom(int fd, int64_t at, std::span<uint8_t> to, const std::string& path) {
  while (!to.empty()) {
    const ssize_t n = pread(fd, to.data(), to.size(), at);
    if (n < 0 && errno == EINTR) continue;
    if (n < 0) return Failed("read", path);
    if (n == 0) return IoError("{} is shorter than it was", path);
    to = to.subspan(static_cast<size_t>(n));
    at += n;
  }
  return Status();
}

Status SyncFolder(const std::string& folder) {
  const OwnedFd directory(open(folder.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC));
  if (directory.fd() < 0 || fsync(directory.fd()) != 0) return Failed("sync", folder);
  return Status();
}

}  // namespace weir
