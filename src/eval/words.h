// SPDX-License-Identifier: Apache-2.0
// Word lists for generated tests. Part of every generator's definition: a change changes what a seed means.
#pragma once

#include <span>
#include <string_view>

namespace weir {

std::span<const std::string_view> Nouns();           // distinct, singular, lower case
std::span<const std::string_view> Adjectives();      // distinct
std::span<const std::string_view> People();          // distinct, by trade
std::span<const std::string_view> NumberedThings();  // things with a number: "badge number" ...

}  // namespace weir
