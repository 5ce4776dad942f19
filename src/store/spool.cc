// SPDX-License-Identifier: Apache-2.0
#include "store/spool.h"

#include <fcntl.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <system_error>

namespace weir {
namespace {

constexpr std::string_view kName = "weir-spool-";
constexpr int kMostAttempts = 50;

// The locked file of a spool; -1: another process has it, or it cannot be made.
int Lock(const std::string& folder, bool create) {
  const int flags = O_RDWR | O_CLOEXEC | O_NOFOLLOW | (create ? O_CREAT : 0);
  const int fd = open((folder + "/lock").c_str(), flags, 0600);
  if (fd >= 0 && flock(fd, LOCK_EX | LOCK_NB) == 0) return fd;
  if (fd >= 0) close(fd);
  return -1;
}

void Sweep(const std::string& dir) {
  std::error_code error;
  for (std::filesystem::directory_iterator at(dir, error), end; !error && at != end; at.increment(error)) {
    struct stat info {};
    const std::string path = at->path();
    if (!at->path().filename().string().starts_with(kName)) continue;
    if (lstat(path.c_str(), &info) != 0 || !S_ISDIR(info.st_mode) || info.st_uid != geteuid()) continue;
    const int lock = Lock(path, false);
    if (lock < 0) continue;
    std::error_code failed;
    std::filesystem::remove_all(path, failed);
    close(lock);
  }
}

}  // namespace

Result<std::unique_ptr<Spool>> Spool::Make(const std::string& dir) {
  Sweep(dir);
  // Another process that sweeps may take a folder for one that was left, until it is locked: then a new one is made.
  for (int attempt = 1;; ++attempt) {
    std::string path = dir + "/" + std::string(kName) + "XXXXXX";
    if (mkdtemp(path.data()) == nullptr) {
      return IoError("cannot make a folder in {} for files on their way: {}; TMPDIR names another place", dir,
                     std::strerror(errno));
    }
    const int lock = Lock(path, true);
    struct stat info {};
    if (lock >= 0 && fstat(lock, &info) == 0 && info.st_nlink > 0) {
      return std::unique_ptr<Spool>(new Spool(std::move(path), lock));
    }
    const int error = errno;
    if (lock >= 0) close(lock);
    std::error_code failed;
    std::filesystem::remove_all(path, failed);
    if (attempt == kMostAttempts) return IoError("cannot lock a file in {}: {}", path, std::strerror(error));
  }
}

Spool::~Spool() {
  std::error_code failed;
  std::filesystem::remove_all(path_, failed);
  close(lock_);
}

Result<LocalFile> Spool::NewFile() const {
  std::string path = path_ + "/XXXXXX";
  const int fd = mkostemp(path.data(), O_CLOEXEC);
  if (fd < 0) return IoError("cannot make a file in {}: {}", path_, std::strerror(errno));
  close(fd);
  return LocalFile(std::move(path), true);
}

}  // namespace weir
