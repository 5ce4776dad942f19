// SPDX-License-Identifier: Apache-2.0
#include "progress.h"

#include <fcntl.h>
#include <poll.h>
#include <sys/ioctl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <fmt/core.h>
#include <algorithm>
#include <cerrno>
#include <cstdio>
#include <cstring>
#include <utility>

#include "common.h"
#include "print.h"

namespace weir::app {
namespace {

// Of the terminal that standard error is; where it does not say, as wide as the line.
size_t TerminalColumns() {
  winsize size{};
  return ioctl(STDERR_FILENO, TIOCGWINSZ, &size) == 0 && size.ws_col > 1 ? size.ws_col - 1u : std::string::npos;
}

}  // namespace

Progress::Progress(const char* what, Mode mode)
    : what_(what), terminal_(mode == kAuto && isatty(STDERR_FILENO)), lines_(mode == kLines) {}

void Progress::SetTotal(int64_t n_bytes, int64_t n_tokens) {
  total_bytes_ = n_bytes;
  tokens_before_ = n_tokens;
}

void Progress::NextPiece(int64_t n_bytes, int64_t n_tokens) {
  bytes_before_ += std::exchange(piece_bytes_, n_bytes);
  tokens_before_ += std::exchange(piece_tokens_, n_tokens);
}

std::string Progress::ShareText() const {
  if (total_bytes_ <= 0) return "";
  const double in_piece =
      piece_tokens_ > 0 ? static_cast<double>(n_tokens_ - tokens_before_) / static_cast<double>(piece_tokens_) : 1;
  const double done =
      static_cast<double>(bytes_before_) + std::clamp(in_piece, 0.0, 1.0) * static_cast<double>(piece_bytes_);
  const double share = std::min(done / static_cast<double>(total_bytes_), 1.0);
  std::string out = fmt::format("{:.0f}% of {}, ", 100 * share, BytesText(total_bytes_));
  if (share > 0) out += "about " + DurationText(seconds_ * (1 - share) / share) + " left, ";
  return out;
}

void Progress::Update(int64_t n_tokens, const Session& session) {
  const Clock::time_point now = Clock::now();
  n_tokens_ = n_tokens;
  seconds_ = Seconds(now - start_);
  if (!terminal_ && !lines_) return;
  if (now - shown_ < (terminal_ ? std::chrono::milliseconds(200) : std::chrono::milliseconds(3000))) return;
  shown_ = now;
  const SessionCounters counters = session.counters();
  std::string line =
      fmt::format("{} {} tokens, {}{:.0f} tokens/s, pot {}/{}, dropped {}, session {}, process {}", what_,
                  CountText(n_tokens), ShareText(), tokens_per_s(), session.pot().n_used(), session.plan().pot_slots,
                  CountText(counters.dropped), BytesText(session.ledger().used_bytes()), BytesText(ResidentBytes()));
  // A longer line would wrap, and "\r" does not return to the line before.
  if (terminal_) line.resize(std::min(line.size(), TerminalColumns()));
  Print(stderr, "{}{}{}", terminal_ ? "\r" : "", line, terminal_ ? "\033[K" : "\n");
  std::fflush(stderr);
  dirty_ = terminal_;
}

void Progress::Done() {
  if (dirty_) Print(stderr, "\n");
  dirty_ = false;
}

Result<TextSource> TextSource::Open(const std::string& path) {
  TextSource out;
  out.path_ = path;
  out.fd_ = path == "-" ? STDIN_FILENO : open(path.c_str(), O_RDONLY | O_CLOEXEC);
  if (out.fd_ < 0) return IoError("cannot read {}: {}", path, std::strerror(errno));
  struct stat info {};
  if (fstat(out.fd_, &info) != 0) return out;
  if (S_ISDIR(info.st_mode)) return IoError("cannot read {}: it is a directory", path);
  if (S_ISREG(info.st_mode)) out.total_bytes_ = info.st_size - std::max<off_t>(0, lseek(out.fd_, 0, SEEK_CUR));
  return out;
}

TextSource::TextSource(TextSource&& other) noexcept
    : path_(std::move(other.path_)), fd_(std::exchange(other.fd_, -1)), total_bytes_(other.total_bytes_) {}

TextSource::~TextSource() {
  if (fd_ > STDIN_FILENO) close(fd_);
}

Result<bool> TextSource::Read(std::string* piece) {
  constexpr size_t kPieceBytes = 1 << 16;
  for (piece->clear();;) {
    if (StopFlag()) return Cancelled("stopped while reading {}", path_);
    // A wait with an end: a Ctrl-C that comes between the question above and read() is seen at the next turn.
    pollfd ready{fd_, POLLIN, 0};
    const int n_ready = poll(&ready, 1, 200);
    if (n_ready == 0 || (n_ready < 0 && errno == EINTR)) continue;
    piece->resize(kPieceBytes);
    const ssize_t n = read(fd_, piece->data(), piece->size());
    piece->resize(n > 0 ? static_cast<size_t>(n) : 0);
    if (n >= 0) return n > 0;
    if (errno != EINTR) return IoError("cannot read {}: {}", path_, std::strerror(errno));
  }
}

}  // namespace weir::app
