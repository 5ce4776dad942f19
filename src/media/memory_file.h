// SPDX-License-Identifier: Apache-2.0
// An anonymous in-memory file: bytes from an untrusted request for a decoder that needs a seekable file.
//
// Only formats that cannot refer to other files are accepted from such a file (media/source.cc): a playlist or an
// ffmpeg script would expose other files on this machine.
#pragma once

#include <string>
#include <string_view>

#include "base/status.h"

namespace weir {

class MemoryFile {
 public:
  // kIo when the system cannot provide memory or a descriptor.
  static Result<MemoryFile> Make(std::string_view bytes);
  MemoryFile(MemoryFile&& other) noexcept;
  MemoryFile& operator=(MemoryFile&&) = delete;
  ~MemoryFile();

  // A path that this process can open while the object lives; a source for media/media.h.
  const std::string& path() const { return path_; }
  // Whether a path refers to such a file of this process.
  static bool Names(const std::string& path);

 private:
  explicit MemoryFile(int fd);
  int fd_ = -1;
  std::string path_;
};

}  // namespace weir
