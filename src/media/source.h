// SPDX-License-Identifier: Apache-2.0
// Resolves a user's name for a source to an open descriptor and ffmpeg's input arguments.
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
  bool once = false;                   // can be read only once
  bool live = false;                   // arrives in real time
  std::vector<std::string> arguments;  // up to and including -i INPUT
};

// A source as messages show it.
std::string WithoutPassword(const std::string& source);

// Whether such a name is that of a camera or a stream, which may come back after it ended.
bool IsLiveSource(const std::string& source);

// kNotFound, kInvalidArgument (a directory, a socket; with `again` set, a source that can be read only once), kIo.
// Opening a named pipe waits for its writer.
Result<OpenSource> OpenMediaSource(const std::string& source, bool again = false);

}  // namespace weir
