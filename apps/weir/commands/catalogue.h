// SPDX-License-Identifier: Apache-2.0
// How `weir policies` and `weir pruners` print what there is to choose from.
#pragma once

#include "base/options.h"

namespace weir::app {

// The name, what it does, and the paper where there is one ("" if not).
void PrintCatalogueHead(const char* name, const char* summary, const char* paper);
// A line for each option: KEY=DEFAULT as it stands after the name, and what it means.
void PrintCatalogueOptions(const OptionOwner& owner);

}  // namespace weir::app
