// SPDX-License-Identifier: Apache-2.0
// The progress line of long reads: tokens read, how much of the whole and how long the rest will take where the whole
// is known, rate, pot fill, memory. On a terminal it redraws itself and stays within the line; in a pipe it is silent,
// unless --progress asks for plain lines.
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
  // Sets the size of the whole text in bytes; n_tokens (see Update()) were read before it. n_bytes <= 0: unknown.
  void SetTotal(int64_t n_bytes, int64_t n_tokens = 0);
  // The next n_bytes of it became n_tokens, which are about to be read.
  void NextPiece(int64_t n_bytes, int64_t n_tokens);
  // n_tokens: read so far in this call.
  void Update(int64_t n_tokens, const Session& session);
  // Ends the line. Rates are measured up to the last Update().
  void Done();
  double tokens_per_s() const { return seconds_ > 0 ? static_cast<double>(n_tokens_) / seconds_ : 0; }

 private:
  // "4% of 1.2 MiB, about 20 min 05 s left, "; empty where the whole is not known.
  std::string ShareText() const;
  std::string what_;
  bool terminal_, lines_;
  Clock::time_point start_ = Clock::now(), shown_{};
  int64_t n_tokens_ = 0;
  double seconds_ = 0;
  int64_t total_bytes_ = 0;
  // Totals before the current piece, and that piece.
  int64_t bytes_before_ = 0, tokens_before_ = 0, piece_bytes_ = 0, piece_tokens_ = 0;
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
  // Bytes there were to read when it was opened; -1 for a pipe, whose length is unknown.
  int64_t total_bytes() const { return total_bytes_; }

 private:
  TextSource() = default;
  std::string path_;
  int fd_ = -1;
  int64_t total_bytes_ = -1;
};

}  // namespace weir::app
