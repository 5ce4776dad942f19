// SPDX-License-Identifier: Apache-2.0
// The option of policies that rank by surprise: how -log P of a token is computed when it is read.
#pragma once

#include <string_view>

#include "policy/policy.h"

namespace weir {

constexpr PolicyOptionInfo NllOption(const char* fallback) {
  return TextOption(
      "nll", fallback,
      "a token's surprise: exact, or sampled, estimated from a seventh of the vocabulary, which is faster",
      "sampled|exact");
}

inline Normaliser NormaliserOf(std::string_view word) {
  return word == "sampled" ? Normaliser::kSampled : Normaliser::kExact;
}

}  // namespace weir
