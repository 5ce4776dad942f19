// SPDX-License-Identifier: Apache-2.0
// Bytes as a file without a place: what a stranger's request brought, handed to a decoder that wants a file it can seek
// in.
//
// Of such files only formats are read that cannot name other files (media/source.cc): a playlist or a script of ffmpeg
// would show the stranger what else is on this machine.
#pragma once

#include <string>
#include <string_view>

#include "base/status.h"

namespace weir {

class MemoryFile {
 public:
  // kIo when the system gives no memory or no descriptor for it.
  static Result<MemoryFile> Make(std::string_view bytes);
  MemoryFile(MemoryFile&& other) noexcept;
  MemoryFile& operator=(MemoryFile&&) = delete;
  ~MemoryFile();

  // A path that this process can open while the object lives; a source for media/media.h.
  const std::string& path() const { return path_; }
  // Whether a path is that of such a file, of this process.
  static bool Names(const std::string& path);

 private:
  explicit MemoryFile(int fd);
  int fd_ = -1;
  std::string path_;
};

}  // namespace weir
