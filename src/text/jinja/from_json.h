// SPDX-License-Identifier: Apache-2.0
// A request's JSON as a value of templates.
#pragma once

#include "io/json.h"
#include "text/jinja/value.h"

namespace weir::jinja {

// `given`: its strings, keys included, come from a request.
// REQUIRES: the JSON passed ParseJsonObject(), so it is nested at most kMaxJsonDepth deep.
Value FromJson(const Json& json, bool given);

}  // namespace weir::jinja
