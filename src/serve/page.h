// SPDX-License-Identifier: Apache-2.0
// The page that `weir serve` shows at /: one HTML document that loads nothing else. The build assembles it from
// src/serve/page.
#pragma once

#include <string_view>

namespace weir {

extern const std::string_view kPage;

}  // namespace weir
