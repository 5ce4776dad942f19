// SPDX-License-Identifier: Apache-2.0
// Answers for a server whose model is still being loaded: it is alive (/livez) and not ready (503 for all the rest).
#pragma once

#include <memory>
#include <string>

#include "base/status.h"

namespace weir {

class LoadingDoor {
 public:
  // Listens from now on. kIo if the port cannot be had: an error that shows before minutes of loading.
  static Result<std::unique_ptr<LoadingDoor>> Open(const std::string& address, int port);
  // Frees the port, after the answers under way.
  ~LoadingDoor();

  int port() const;

 private:
  class Impl;
  explicit LoadingDoor(std::unique_ptr<Impl> impl);
  std::unique_ptr<Impl> impl_;
};

}  // namespace weir
