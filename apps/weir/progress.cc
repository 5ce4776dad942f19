#include "progress.h"

#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>

#include "common.h"

namespace weir::app {

Progress::Progress(const char* what, Mode mode)
    : what_(what), terminal_(mode == kAuto && isatty(STDERR_FILENO)), lines_(mode == kLines) {}

void Progress::Update(int64_t n_tokens, const Session& session) {
  const Clock::time_point now = Clock::now();
  n_tokens_ = n_tokens;
  seconds_ = std::chrono::duration<double>(now - start_).count();
  if (!terminal_ && !lines_) return;
  if (now - shown_ < (terminal_ ? std::chrono::milliseconds(200) : std::chrono::milliseconds(3000))) return;
  shown_ = now;
  const SessionCounters counters = session.counters();
  std::fprintf(stderr, "%s%s %s tokens, %.0f tokens/s, pot %d/%d, dropped %s, session %s, process %s%s", terminal_ ? "\r" : "",
               what_.c_str(), CountText(n_tokens).c_str(), tokens_per_s(), session.pot().n_used(), session.plan().pot.n_slots,
               CountText(counters.dropped).c_str(), BytesText(session.ledger().used_bytes()).c_str(),
               BytesText(ResidentBytes()).c_str(), terminal_ ? "\033[K" : "\n");
  std::fflush(stderr);
  dirty_ = terminal_;
}

void Progress::Done() {
  if (dirty_) std::fprintf(stderr, "\n");
  dirty_ = false;
}

Result<TextSource> TextSource::Open(const std::string& path) {
  TextSource out;
  out.path_ = path;
  out.file_ = path == "-" ? stdin : std::fopen(path.c_str(), "rb");
  if (out.file_ == nullptr) return IoError("cannot read %s: %s", path.c_str(), std::strerror(errno));
  struct stat info {};
  if (fstat(fileno(out.file_), &info) == 0 && S_ISDIR(info.st_mode)) return IoError("cannot read %s: it is a directory", path.c_str());
  return out;
}

TextSource::TextSource(TextSource&& other) noexcept : path_(std::move(other.path_)), file_(std::exchange(other.file_, nullptr)) {}

TextSource::~TextSource() {
  if (file_ != nullptr && file_ != stdin) std::fclose(file_);
}

Result<bool> TextSource::Read(std::string* piece) {
  piece->resize(1 << 16);
  const size_t n = std::fread(piece->data(), 1, piece->size(), file_);
  piece->resize(n);
  if (n == 0 && std::ferror(file_) != 0) return IoError("cannot read %s: %s", path_.c_str(), std::strerror(errno));
  return n > 0;
}

}  // namespace weir::app
