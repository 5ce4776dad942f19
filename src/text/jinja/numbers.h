// SPDX-License-Identifier: Apache-2.0
// Numbers as Python writes and reads them.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

namespace weir::jinja {

// repr(float): the shortest digits that read back the same, "1e+16" from there on, "inf", "nan".
std::string FloatText(double value);
// int(text, base): spaces around it, a sign, single underscores between digits. nullopt for anything else and for what
// does not fit 64 bits. base: 2 to 36.
std::optional<int64_t> ParseInt(std::string_view text, int base);
// float(text), with "inf" and "nan".
std::optional<double> ParseFloat(std::string_view text);
// round(value, digits) of a float: to even at a tie, of the exact value.
double RoundTo(double value, int digits);

}  // namespace weir::jinja
