// SPDX-License-Identifier: Apache-2.0
// The filters of the language in their groups; FindFilter() knows them all.
#pragma once

#include <span>

#include "text/jinja/callable.h"

namespace weir::jinja {

std::span<const Named> TextFilters();
std::span<const Named> ListFilters();
std::span<const Named> NumberFilters();

}  // namespace weir::jinja
