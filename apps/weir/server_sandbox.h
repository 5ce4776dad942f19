// SPDX-License-Identifier: Apache-2.0
// What `weir serve --sandbox` may reach: the files and folders that its flags name, the system's programs and
// libraries, and the network.
#pragma once

#include <string>
#include <vector>

#include "base/sandbox.h"

namespace weir::app {

struct ServerPaths {
  std::vector<std::string> read;   // files; folders with all below
  std::vector<std::string> write;  // likewise. Of a file that is not there yet, its folder
};
Sandbox ServerSandbox(const ServerPaths& paths);

}  // namespace weir::app
