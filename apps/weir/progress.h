// The progress line of long reads: tokens read, rate, pot fill, memory. On a terminal it redraws itself; in a pipe it
// is silent, unless --progress asks for plain lines.
#pragma once

#include <cstdint>
#include <memory>
#include <string>

#include "base/clock.h"
#include "base/status.h"
#include "engine/session.h"

namespace weir::app {

class Progress {
 public:
  enum Mode { kAuto, kLines, kOff };
  Progress(const char* what, Mode mode);
  // n_tokens: read so far in this call.
  void Update(int64_t n_tokens, const Session& session);
  // Ends the line. Rates are measured up to the last Update().
  void Done();
  double tokens_per_s() const { return seconds_ > 0 ? static_cast<double>(n_tokens_) / seconds_ : 0; }

 private:
  std::string what_;
  bool terminal_, lines_;
  Clock::time_point start_ = Clock::now(), shown_{};
  int64_t n_tokens_ = 0;
  double seconds_ = 0;
  bool dirty_ = false;
};

// A text file, standard input or pipe, read in pieces: never whole.
class TextSource {
 public:
  // kIo for what cannot be opened, directories included. "-" is standard input.
  static Result<TextSource> Open(const std::string& path);
  TextSource(TextSource&& other) noexcept;
  TextSource& operator=(TextSource&&) = delete;
  ~TextSource();
  // Replaces *piece by the next bytes, as many as there are: a slow pipe is read as it fills. False at the end, *piece
  // is then empty. kCancelled when Ctrl-C was pressed.
  Result<bool> Read(std::string* piece);

 private:
  TextSource() = default;
  std::string path_;
  int fd_ = -1;
};

}  // namespace weir::app
