// SPDX-License-Identifier: Apache-2.0
// What a draw is made of: random choices that a seed repeats.
#pragma once

#include <cmath>
#include <cstdint>
#include <string>
#include <string_view>

#include "base/rng.h"

namespace weir::testing {

class Dice {
 public:
  explicit Dice(uint64_t seed) : rng_(seed) {}
  bool Chance(double p) { return rng_.Uniform() < p; }
  double Uniform() { return rng_.Uniform(); }
  // From `least` to `most`, both included.
  int64_t Int(int64_t least, int64_t most) {
    return least + static_cast<int64_t>(rng_.Below(static_cast<uint64_t>(most - least + 1)));
  }
  // The same, where every order of magnitude is as likely. REQUIRES: least > 0.
  int64_t LogInt(int64_t least, int64_t most) {
    const double low = std::log(static_cast<double>(least)), high = std::log(static_cast<double>(most) + 1);
    const auto drawn = static_cast<int64_t>(std::exp(low + (high - low) * rng_.Uniform()));
    return drawn < least ? least : drawn > most ? most : drawn;
  }
  template <typename List>
  const auto& Of(const List& list) {
    return list[static_cast<size_t>(Int(0, static_cast<int64_t>(std::size(list)) - 1))];
  }
  // One of "a|b|c".
  std::string OfChoices(std::string_view choices) {
    int64_t n = 1;
    for (const char c : choices) n += c == '|';
    for (int64_t left = Int(0, n - 1); left > 0; --left) choices.remove_prefix(choices.find('|') + 1);
    return std::string(choices.substr(0, choices.find('|')));
  }

 private:
  Rng rng_;
};

}  // namespace weir::testing
