// SPDX-License-Identifier: Apache-2.0
// A file mapped read-only into memory, unmapped by the destructor. Move-only.
//
// The mapping shares the file: if another process truncates the file, accessing the lost pages kills this process
// (SIGBUS). Replace model files by renaming a new file over them, never by rewriting them in place.
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

  // kNotFound when the file does not exist, kIo when it cannot be opened or is not a regular file (directory, pipe,
  // device), kCorrupt when it is empty. Never blocks on a pipe.
  static Result<MappedFile> Open(const std::string& path);

  // Empty for a default-constructed or moved-from object.
  std::span<const uint8_t> bytes() const { return bytes_; }

  // When the file was last changed, in nanoseconds since 1970.
  int64_t changed_ns() const { return changed_ns_; }

  // Releases resident pages; a later read loads them from the file again.
  void ReleasePages() const;

 private:
  std::span<const uint8_t> bytes_;
  int64_t changed_ns_ = 0;
};

}  // namespace weir
