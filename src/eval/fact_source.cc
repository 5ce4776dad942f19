// SPDX-License-Identifier: Apache-2.0
#include "eval/fact_source.h"

#include <algorithm>
#include <numeric>

#include "eval/words.h"

namespace weir {
namespace {

constexpr int64_t kUsualThings = 10;

int64_t NumPeople(FactPool pool) {
  return static_cast<int64_t>(pool == FactPool::kParaphrase ? PeopleOtherwise().size() : People().size());
}

}  // namespace

FactSource::FactSource(uint64_t seed, int64_t n_subjects, FactPool pool)
    : pool_(pool),
      n_subjects_(n_subjects > 0 ? std::min(n_subjects, MaxSubjects(pool)) : MaxSubjects(pool)),
      rng_(seed),
      order_(static_cast<size_t>(MaxSubjects(pool))) {
  std::iota(order_.begin(), order_.end(), 0);
  for (size_t i = order_.size(); i > 1; --i) std::swap(order_[i - 1], order_[rng_.Below(i)]);
}

int64_t FactSource::MaxSubjects(FactPool pool) {
  return NumPeople(pool) * (pool == FactPool::kLarge ? static_cast<int64_t>(NumberedThings().size()) : kUsualThings);
}

Fact FactSource::About(int32_t idx) const {
  const auto n_people = static_cast<int32_t>(NumPeople(pool_));
  Fact fact;
  fact.person = idx % n_people;
  fact.thing = idx / n_people;
  const std::string_view person =
      pool_ == FactPool::kParaphrase ? PeopleOtherwise()[fact.person].word : People()[fact.person];
  fact.subject = "The " + std::string(person) + "'s " + std::string(NumberedThings()[fact.thing]);
  return fact;
}

Fact FactSource::Next() {
  Fact fact = About(order_[static_cast<size_t>(n_++ % n_subjects_)]);
  fact.value = 10000 + static_cast<int32_t>(rng_.Below(90000));
  return fact;
}

Fact FactSource::Untold(int64_t i) const { return About(order_[order_.size() - 1 - static_cast<size_t>(i)]); }

std::string ParaphrasedSubject(const Fact& fact) {
  std::string thing(NumberedThingsOtherwise()[fact.thing].other);
  thing.replace(thing.find("{}"), 2, PeopleOtherwise()[fact.person].other);
  return "The digits " + thing;
}

}  // namespace weir
