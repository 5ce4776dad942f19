// SPDX-License-Identifier: Apache-2.0
// How a backend chooses among its layouts of weights: for every element type, the one that suits it best.
#pragma once

namespace weir {

enum class Suits {
  kNot,
  kEverything,  // takes whatever can be decoded
  kFamily,      // takes all types of a kind
  kThisType,    // made for this one type
};

}  // namespace weir
