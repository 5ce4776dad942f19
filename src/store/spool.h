// SPDX-License-Identifier: Apache-2.0
// A folder of this process for files on their way to and from a store on another machine. It ends with the process;
// what a process that was killed left is deleted when the next one makes its own.
#pragma once

#include <memory>
#include <string>

#include "base/status.h"
#include "store/stores/store.h"

namespace weir {

class Spool {
 public:
  // Makes a folder in `dir` that only this user can enter. kIo.
  static Result<std::unique_ptr<Spool>> Make(const std::string& dir);
  ~Spool();
  Spool(const Spool&) = delete;
  Spool& operator=(const Spool&) = delete;

  // A new, empty file. kIo.
  Result<LocalFile> NewFile() const;

 private:
  Spool(std::string path, int lock) : path_(std::move(path)), lock_(lock) {}
  const std::string path_;
  const int lock_;
};

}  // namespace weir
