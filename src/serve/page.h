// SPDX-License-Identifier: Apache-2.0
// The page that `weir serve` shows at /: the files of src/serve/page, which the build writes into the program. They
// load each other and nothing else.
#pragma once

#include <span>
#include <string_view>

namespace weir {

struct PageFile {
  std::string_view name;  // as in the folder: "index.html"
  const char* type;       // its media type
  std::string_view body;
};

// In the order of their names.
std::span<const PageFile> PageFiles();

}  // namespace weir
