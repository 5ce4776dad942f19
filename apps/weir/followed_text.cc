// SPDX-License-Identifier: Apache-2.0
#include "followed_text.h"

#include <fcntl.h>
#include <poll.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <utility>

#include "common.h"

namespace weir::app {

Result<FollowedText> FollowedText::Open(const std::string& path, bool whole) {
  FollowedText out;
  out.path_ = path;
  out.fd_ = path == "-" ? STDIN_FILENO : open(path.c_str(), O_RDONLY | O_CLOEXEC);
  if (out.fd_ < 0) {
    return errno == ENOENT ? NotFound("{}: no such file", path) : IoError("{}: {}", path, std::strerror(errno));
  }
  struct stat info {};
  if (fstat(out.fd_, &info) != 0) return IoError("{}: {}", path, std::strerror(errno));
  if (S_ISDIR(info.st_mode)) return InvalidArgument("{} is a folder, not a text", path);
  out.follows_ = S_ISREG(info.st_mode) && !whole && path != "-";
  if (out.follows_) out.at_ = lseek(out.fd_, 0, SEEK_END);
  return out;
}

FollowedText::FollowedText(FollowedText&& other) noexcept
    : path_(std::move(other.path_)),
      fd_(std::exchange(other.fd_, -1)),
      follows_(other.follows_),
      at_(other.at_),
      n_skipped_(other.n_skipped_),
      to_line_end_(other.to_line_end_),
      replaced_(other.replaced_) {}

FollowedText::~FollowedText() {
  if (fd_ > STDIN_FILENO) close(fd_);
}

Status FollowedText::LookAgain() {
  struct stat here {
  }, named{};
  if (fstat(fd_, &here) != 0) return IoError("{}: {}", path_, std::strerror(errno));
  // Until a file has the name again, the old one may grow.
  const bool replaced =
      stat(path_.c_str(), &named) == 0 && (named.st_ino != here.st_ino || named.st_dev != here.st_dev);
  // What was written between the last read and the replacement is read first: the second look at the end of the old
  // file is after it.
  const bool leaves = replaced && std::exchange(replaced_, replaced);
  if (leaves) {
    const int fd = open(path_.c_str(), O_RDONLY | O_CLOEXEC);
    if (fd < 0) return Status();  // it is gone already
    close(fd_);
    fd_ = fd;
    replaced_ = false;
  }
  if (leaves || here.st_size < at_) {
    at_ = 0;
    to_line_end_ = false;
    if (lseek(fd_, 0, SEEK_SET) < 0) return IoError("{}: {}", path_, std::strerror(errno));
  }
  return Status();
}

Status FollowedText::CatchUp() {
  struct stat info {};
  if (fstat(fd_, &info) != 0) return IoError("{}: {}", path_, std::strerror(errno));
  if (info.st_size - at_ <= kMostBehind) return Status();
  const off_t to = info.st_size - kMostBehind / 4;
  n_skipped_ += to - at_;
  at_ = lseek(fd_, to, SEEK_SET);
  to_line_end_ = true;
  return at_ < 0 ? IoError("{}: {}", path_, std::strerror(errno)) : Status();
}

Result<FollowedText::Got> FollowedText::Read(int wait_ms, std::string* piece) {
  constexpr size_t kPieceBytes = 1 << 16;
  constexpr int kLookMs = 50;
  piece->clear();
  for (int waited = 0;; waited += kLookMs) {
    if (StopFlag()) return Got::kNothing;
    const int wait = std::min(kLookMs, wait_ms - waited);
    if (!follows_) {
      pollfd ready{fd_, POLLIN, 0};
      const int n_ready = poll(&ready, 1, std::max(wait, 0));
      if (n_ready == 0 || (n_ready < 0 && errno == EINTR)) {
        if (waited + kLookMs >= wait_ms) return Got::kNothing;
        continue;
      }
    } else {
      WEIR_RETURN_IF_ERROR(CatchUp());
    }
    piece->resize(kPieceBytes);
    const ssize_t n = read(fd_, piece->data(), piece->size());
    if (n < 0 && errno != EINTR) return IoError("cannot read {}: {}", path_, std::strerror(errno));
    piece->resize(n > 0 ? static_cast<size_t>(n) : 0);
    if (n > 0) {
      at_ += n;
      if (to_line_end_) {
        const size_t end = piece->find('\n');
        n_skipped_ += static_cast<int64_t>(end == std::string::npos ? piece->size() : end + 1);
        to_line_end_ = end == std::string::npos;
        piece->erase(0, end == std::string::npos ? end : end + 1);
        if (piece->empty()) continue;
      }
      return Got::kText;
    }
    if (n == 0 && !follows_) return Got::kEnd;
    if (follows_) WEIR_RETURN_IF_ERROR(LookAgain());
    if (waited + kLookMs >= wait_ms) return Got::kNothing;
    if (follows_) usleep(static_cast<useconds_t>(1000 * std::max(wait, 1)));
  }
}

}  // namespace weir::app
