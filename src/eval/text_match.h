// SPDX-License-Identifier: Apache-2.0
// Exact matching of answers.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>

namespace weir {

// The first or last run of decimal digits in a text. nullopt: there is none, or it has more than 18 digits.
std::optional<int64_t> FirstInteger(std::string_view text);
std::optional<int64_t> LastInteger(std::string_view text);

// True when every part occurs in the text; ASCII letters are compared without case.
bool ContainsAll(std::string_view text, std::span<const std::string> parts);

}  // namespace weir
