// SPDX-License-Identifier: Apache-2.0
// Python's two ways to put values into a string: "%s" % value and "{}".format(value).
#pragma once

#include "text/jinja/machine.h"

namespace weir::jinja {

// `value`: a tuple of values, a dict for %(name)s, or one value.
Value FormatPercent(Machine& machine, const Text& format, const Value& value);
Value FormatBraces(Machine& machine, const Text& format, const Args& args);

}  // namespace weir::jinja
