// SPDX-License-Identifier: Apache-2.0
// The system calls of an archive, with errors as one line.
#pragma once

#include <unistd.h>

#include <cstdint>
#include <span>
#include <string>

#include "base/status.h"

namespace weir {

class OwnedFd {
 public:
  explicit OwnedFd(int fd) : fd_(fd) {}
  ~OwnedFd() {
    if (fd_ >= 0) close(fd_);
  }
  OwnedFd(const OwnedFd&) = delete;
  OwnedFd& operator=(const OwnedFd&) = delete;
  int fd() const { return fd_; }

 private:
  int fd_;
};

// kIo, of errno.
Status Failed(const char* what, const std::string& path);

// A regular file, without following a link of that name; -1 with errno.
int OpenFile(const std::string& path, int flags);
// A new file of that name, to read and write, 0600. kIo, also when there is one.
Result<int> CreateFile(const std::string& path);
// A file without a name in a folder.
Result<int> CreateUnnamed(const std::string& folder);

Status WriteAt(int fd, int64_t at, std::span<const uint8_t> bytes, const std::string& path);
// kIo too when the file ends before the bytes do.
Status ReadFrom(int fd, int64_t at, std::span<uint8_t> to, const std::string& path);
Status SyncFolder(const std::string& folder);

}  // namespace weir
