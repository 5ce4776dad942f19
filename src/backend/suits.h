// SPDX-License-Identifier: Apache-2.0
// How a backend chooses among its layouts of weights: for every element type, the best suited one.
#pragma once

namespace weir {

enum class Suits {
  kNot,
  kEverything,  // accepts every type that can be decoded
  kFamily,      // accepts all types of a kind
  kThisType,    // made for this one type
};

}  // namespace weir
