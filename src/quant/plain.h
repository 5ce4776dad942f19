// SPDX-License-Identifier: Apache-2.0
// The unquantised element types as formats of one element per block.
#pragma once

#include "quant/format.h"

namespace weir {

extern const QuantFormat kF32Format;
extern const QuantFormat kF16Format;
extern const QuantFormat kBF16Format;
extern const QuantFormat kI32Format;

}  // namespace weir
