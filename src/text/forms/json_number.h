// SPDX-License-Identifier: Apache-2.0
// Numbers of JSON within bounds, digit by digit.
#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "base/status.h"
#include "io/json.h"
#include "text/forms/network.h"

namespace weir::forms {

// A number as digits: without superfluous zeros at the beginning of `whole` ("0" for none) and the end of `fraction`.
struct Decimal {
  bool negative = false;
  std::string whole = "0", fraction;
};
// Negative, zero or positive, as a is below, equal to or above b.
int Compare(const Decimal& a, const Decimal& b);
// nullopt for one with more than 40 digits before or after the point.
std::optional<Decimal> DecimalOf(const Json& number);

struct NumberLimits {
  struct Bound {
    Decimal value;
    bool open = false;  // the number itself is excluded
  };
  bool integer = false;
  std::optional<Bound> low, high;
  int64_t multiple = 1;  // more than 1: whole multiples of it only, written without a point
};
inline constexpr int64_t kMaxMultiple = 1000;

// Numbers without bounds have up to 16 digits before and after the point, integers up to 16, and numbers that need not
// be integers an exponent of up to two digits. With a bound or a multiple there is no exponent; next to a bound that is
// excluded there are as many digits as a double tells apart.
void EmitNumber(const NumberLimits& limits, int32_t from, int32_t to, NetworkBuilder* network);

}  // namespace weir::forms
