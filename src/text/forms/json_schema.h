// SPDX-License-Identifier: Apache-2.0
// JSON schemas (draft 2020-12, with what earlier drafts wrote otherwise) as networks: the texts that are valid JSON and
// valid under the schema, or some of them where all cannot be held. docs/forms.md lists what is held and how.
#pragma once

#include <cstdint>
#include <string_view>

#include "base/status.h"
#include "text/forms/form.h"
#include "text/forms/network.h"

namespace weir::forms {

// Adds rules for the schema and returns the one to begin with. kInvalidArgument names the keyword and its JSON pointer.
Result<int32_t> AddJsonSchema(std::string_view text, const JsonFormOptions& options, NetworkBuilder* network);

}  // namespace weir::forms
