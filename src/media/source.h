// SPDX-License-Identifier: Apache-2.0
// What a user's name for a source becomes: an open descriptor and ffmpeg's input arguments.
#pragma once

#include <string>
#include <vector>

#include "base/status.h"

namespace weir {

// Owns the descriptor.
struct OpenSource {
  OpenSource() = default;
  OpenSource(OpenSource&& other) noexcept;
  OpenSource& operator=(OpenSource&&) = delete;
  ~OpenSource();

  int fd = -1;  // the child's standard input; -1: none
  bool owned = false;
  bool once = false;                   // its bytes can be read once only
  bool live = false;                   // comes at its own pace
  std::vector<std::string> arguments;  // up to and including -i INPUT
};

// kNotFound, kInvalidArgument (a directory, a socket; with `again` set, what can be read only once), kIo. A named pipe
// is opened when its writer is.
Result<OpenSource> OpenMediaSource(const std::string& source, bool again = false);

}  // namespace weir
