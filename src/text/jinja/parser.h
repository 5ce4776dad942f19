// SPDX-License-Identifier: Apache-2.0
// A template's source -> its tree. The language is Jinja2's with the extensions that chat templates get: `break`,
// `continue` and `generation`. What needs other files (`include`, `import`, `extends`) is an error.
#pragma once

#include <string_view>

#include "base/status.h"
#include "text/jinja/ast.h"

namespace weir::jinja {

inline constexpr size_t kMaxSourceBytes = 1 << 18;  // the longest in use have 20 KiB
inline constexpr size_t kMaxParameters = 256;       // of a macro, and keywords of a call

// A kBlock. kInvalidArgument names the line; also for a filter or a test that does not exist, unless it stands in a
// condition's branch: Jinja2 finds those only where they are reached.
Result<NodePtr> ParseTemplate(std::string_view source);

}  // namespace weir::jinja
