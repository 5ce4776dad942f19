// SPDX-License-Identifier: Apache-2.0
// Goals: schemas that a value has to satisfy together. References and allOf are taken apart until a goal is a list of
// schemas without them; each anyOf or oneOf is a choice that is still to be made.
#pragma once

#include <cstdint>
#include <deque>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "base/status.h"
#include "io/json.h"
#include "text/forms/char_dfa.h"
#include "text/forms/json_number.h"
#include "text/forms/network.h"

namespace weir::forms {

// A schema and which part of it: id * 8 + part. The ids are in the order in which the schemas were first met.
enum class Part : int32_t {
  kAll,          // only in goals that are not yet taken apart
  kOwn,          // its own keywords, without references and combinations
  kOwnNoValues,  // those without const and enum
  kAnyOf,
  kOneOf,
};
using Goal = std::vector<int32_t>;  // ascending; empty: any value

// Types of JSON, as bits.
enum : unsigned { kNull = 1, kBoolean = 2, kNumber = 4, kString = 8, kArray = 16, kObject = 32, kAllTypes = 63 };

// A goal's own keywords, put together.
struct Merged {
  unsigned types = kAllTypes;
  bool types_given = false;  // by type, const or enum: otherwise they are those that its keywords are about
  NumberLimits number;
  int64_t min_length = 0, max_length = -1;                         // -1: any; so for the others
  std::vector<std::pair<int32_t, std::string>> patterns, formats;  // and the schema that they are from
  int64_t min_items = 0, max_items = -1;
  int64_t min_properties = 0, max_properties = -1;
  std::vector<std::string> required;
  std::optional<std::vector<const Json*>> values;  // of const and enum
  int32_t unique = -1;                             // the schema that asks for items that differ
  int32_t at = 0;                                  // a schema of the goal, for errors
};

class SchemaReader {
 public:
  // REQUIRES: `root` outlives the object and does not change, and `work`, which is used up, outlives it.
  SchemaReader(const Json& root, SchemaWork* work) : root_(root), work_(*work) {}

  // "'KEYWORD' of the schema at 'POINTER' WHAT".
  Status Bad(int32_t id, std::string_view keyword, std::string_view what) const;
  // The schema under `keyword` of the schema `parent`, or under `step` of that.
  int32_t Locate(int32_t parent, const Json& schema, std::string_view keyword, std::string_view step = {});
  int32_t Locate(int32_t parent, const Json& schema, std::string_view keyword, size_t index) {
    return Locate(parent, schema, keyword, std::to_string(index));
  }
  int32_t LocateRoot() { return LocateAt(root_, ""); }
  static int32_t Element(int32_t id, Part part) { return id * 8 + static_cast<int32_t>(part); }
  static int32_t IdOf(int32_t element) { return element / 8; }
  static Part PartOf(int32_t element) { return static_cast<Part>(element % 8); }
  const Json& At(int32_t id) const { return *places_[static_cast<size_t>(id)].json; }
  // As much of it as errors show.
  const std::string& PointerOf(int32_t id) const { return places_[static_cast<size_t>(id)].pointer; }
  // A schema that allows nothing but this array or object, which is part of the text: one and the same for one value.
  Result<int32_t> SchemaOfValue(const Json& value, int32_t at);

  // Takes references and allOf apart. nullopt: no value satisfies it.
  Result<std::optional<Goal>> Flatten(const Goal& goal);
  // Equal as JSON values: members of objects in any order, numbers exactly.
  static bool Same(const Json& a, const Json& b);
  // The schemas of an element with the part kAnyOf or kOneOf.
  std::vector<int32_t> ChoicesOf(int32_t element);
  // REQUIRES: a flat goal. Choices are left out.
  Result<Merged> Merge(const Goal& goal);
  // Whether a value that is neither an array nor an object satisfies it, and has the types of an array or an object.
  Result<bool> Accepts(const Merged& merged, const Json& value);
  // Every one of oneOf's schemas excludes the others, as far as this can be seen.
  Status CheckOneOf(const Goal& goal, int32_t element);

  // Objects. The keys of `properties` in the order of the schemas; those that are only required come last.
  std::vector<std::string> KeysOf(const Goal& goal, const Merged& merged);
  std::vector<std::string> PatternsOf(const Goal& goal);
  // What the value of a key has to satisfy that is named so, or that matches just these patterns.
  Result<Goal> GoalOfKey(const Goal& goal, const std::string& key);
  Goal GoalOfPatterns(const Goal& goal, const std::set<std::string>& patterns);
  // Whether keys are allowed that no schema names.
  bool IsOpen(const Goal& goal) const;
  // What names of members have to satisfy: propertyNames. Empty: nothing. REQUIRES: a flat goal.
  Goal GoalOfNames(const Goal& goal);
  // Arrays. How many items have a schema of their own, and what item `i` has to satisfy.
  size_t NumPrefixItems(const Goal& goal) const;
  Goal GoalOfItem(const Goal& goal, size_t i);

  // The automaton of a pattern (found anywhere) or a format.
  Result<const CharDfa*> DfaOfPattern(int32_t id, const std::string& pattern);
  Result<const CharDfa*> DfaOfFormat(int32_t id, const std::string& format);
  // Counts a step. kInvalidArgument after too many.
  Status Spend(int64_t n = 1);
  // Steps that are left for automata of characters.
  DfaWork* dfa_work() { return &work_.automata; }
  Status SpendOnDfa(int64_t n);

 private:
  struct Place {
    const Json* json;
    std::string pointer;
    bool checked = false;
    int32_t target = -1;  // of $ref, once it was followed
  };
  Status Check(int32_t id);
  Result<int32_t> Resolve(int32_t id, const std::string& reference);
  int32_t LocateAt(const Json& schema, std::string pointer);
  // Notes the anchors in `at`; `names`: its keys are names, not keywords.
  void FindAnchors(const Json& at, bool names, std::string* pointer);
  // Whether one of the values equals this one.
  Result<bool> IsAmong(const std::vector<const Json*>& values, const Json& value);
  Status Visit(int32_t element, std::vector<int32_t>* way, std::set<int32_t>* out, bool* possible);
  Status MergeOne(int32_t id, bool values, Merged* out, unsigned* about);
  Status MergeNumber(int32_t id, const Json& schema, NumberLimits* limits);
  Result<bool> Disjoint(const Goal& a, const Goal& b, int depth);
  // Whether each of these goals is an object with another text in the same required property.
  Result<bool> HasTag(const std::vector<Goal>& goals);
  Goal Sub(int32_t id, const char* keyword);

  const Json& root_;
  std::deque<Json> own_;
  std::deque<Place> places_;
  std::map<const Json*, int32_t> ids_, of_value_;
  struct Anchor {
    const Json* json;
    std::string pointer;
  };
  std::map<std::string, Anchor, std::less<>> anchors_;
  bool has_anchors_ = false;  // they were looked for
  std::map<std::string, CharDfa> patterns_, formats_;
  SchemaWork& work_;
};

}  // namespace weir::forms
