// SPDX-License-Identifier: Apache-2.0
// Made-up facts: somebody's number of something. Each subject is told once before any is told again.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "base/rng.h"

namespace weir {

struct Fact {
  std::string subject;  // The courier's badge number
  int32_t value = 0;    // five digits
  int32_t person = 0, thing = 0;
  std::string text() const { return subject + " is " + std::to_string(value) + "."; }
};

// Whom facts are about. Part of what a seed means.
enum class FactPool {
  kUsual,       // everybody's ten things
  kLarge,       // everybody's fifty things: a million tokens with a fact every 256
  kParaphrase,  // those whose persons and things have other names
};

// Facts about distinct subjects; after n_subjects of them the subjects repeat in the same order with new values.
class FactSource {
 public:
  // n_subjects 0: all there are.
  explicit FactSource(uint64_t seed, int64_t n_subjects = 0, FactPool pool = FactPool::kUsual);
  Fact Next();
  // A fact that was not told and will not be soon: the i-th from the end of the order. REQUIRES: i < MaxSubjects(pool).
  Fact Untold(int64_t i) const;
  static int64_t MaxSubjects(FactPool pool = FactPool::kUsual);

 private:
  Fact About(int32_t idx) const;
  FactPool pool_;
  int64_t n_subjects_;
  Rng rng_;
  std::vector<int32_t> order_;
  int64_t n_ = 0;
};

// What a fact of the pool kParaphrase is about, in other words: "The digits on the dispatch rider's name tag".
std::string ParaphrasedSubject(const Fact& fact);

}  // namespace weir
