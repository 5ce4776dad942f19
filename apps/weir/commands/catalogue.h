// SPDX-License-Identifier: Apache-2.0
// Prints the lists of `weir policies` and `weir pruners`.
#pragma once

#include "base/options.h"

namespace weir::app {

// The name, what it does, and the paper where there is one ("" if not).
void PrintCatalogueHead(const char* name, const char* summary, const char* paper);
// One line per option: KEY=DEFAULT as written after the name, and its meaning.
void PrintCatalogueOptions(const OptionOwner& owner);

}  // namespace weir::app
