// SPDX-License-Identifier: Apache-2.0
// A text that grows: a log file, followed as `tail -F` does, or standard input.
#pragma once

#include <sys/types.h>

#include <cstdint>
#include <string>

#include "base/status.h"

namespace weir::app {

class FollowedText {
 public:
  // A file is read from its end on, and goes on where another file takes its name or it begins anew. `whole`: from its
  // start to its end, once. "-" and pipes are read to their end.
  // kNotFound, kIo; directories are refused.
  static Result<FollowedText> Open(const std::string& path, bool whole);
  FollowedText(FollowedText&& other) noexcept;
  FollowedText& operator=(FollowedText&&) = delete;
  ~FollowedText();

  enum class Got { kText, kNothing, kEnd };
  // Replaces *piece by the next bytes, at most 64 KiB; kNothing if none came within wait_ms or the program is being
  // stopped. A followed file that grows faster than it is read is not read whole: where more than kMostBehind bytes
  // wait, all but the newest of them are left out, to the end of a line, and counted.
  Result<Got> Read(int wait_ms, std::string* piece);
  static constexpr int64_t kMostBehind = 256 << 10;

  int64_t n_skipped_bytes() const { return n_skipped_; }

 private:
  FollowedText() = default;
  // Another file has the name, or this one is shorter than it was.
  Status LookAgain();
  Status CatchUp();

  std::string path_;
  int fd_ = -1;
  bool follows_ = false;
  off_t at_ = 0;
  int64_t n_skipped_ = 0;
  bool to_line_end_ = false;  // the rest of a line whose beginning was left out
  bool replaced_ = false;     // another file had the name; this one is read to its end
};

}  // namespace weir::app
