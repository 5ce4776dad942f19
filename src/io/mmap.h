// SPDX-License-Identifier: Apache-2.0
// A file mapped read-only into memory, unmapped by the destructor. Move-only.
//
// The bytes are the file's: when another process shortens the file while it is mapped, touching the lost pages kills
// this process (SIGBUS). Replace model files by renaming a new file over them, never by rewriting them in place.
#pragma once

#include <cstdint>
#include <span>
#include <string>

#include "base/status.h"

namespace weir {

class MappedFile {
 public:
  MappedFile() = default;
  ~MappedFile();
  MappedFile(MappedFile&& other) noexcept;
  MappedFile& operator=(MappedFile&& other) noexcept;

  // kNotFound when nothing is there, kIo when it cannot be opened or is not an ordinary file (directory, pipe, device),
  // kCorrupt when it is empty. Never blocks on a pipe.
  static Result<MappedFile> Open(const std::string& path);

  // Empty for a default-constructed or moved-from object.
  std::span<const uint8_t> bytes() const { return bytes_; }

  // Gives resident pages back to the system; a later read brings them back from the file.
  void ReleasePages() const;

 private:
  std::span<const uint8_t> bytes_;
};

}  // namespace weir
