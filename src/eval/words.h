// SPDX-License-Identifier: Apache-2.0
// Word lists for generated tests. Part of every generator's definition: a change changes what a seed means.
#pragma once

#include <span>
#include <string_view>

namespace weir {

std::span<const std::string_view> Nouns();       // distinct, singular, lower case
std::span<const std::string_view> Adjectives();  // distinct
std::span<const std::string_view> People();      // distinct, by trade
// Things with a number: "badge number" ... The first ten are those of short streams, the others of long ones.
std::span<const std::string_view> NumberedThings();

// Other words for the same, for questions that share no word with the text. Both words of a pair mean one thing, and no
// second pair may mean it, too.
struct Synonym {
  std::string_view word, other;
};
std::span<const Synonym> PeopleOtherwise();  // of some of People()
// Of the first ten of NumberedThings(), in their order. "{}" is the person: "on the {}'s name tag".
std::span<const Synonym> NumberedThingsOtherwise();

}  // namespace weir
