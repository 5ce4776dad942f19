// SPDX-License-Identifier: Apache-2.0
#include "text/forms/json_schema.h"

#include <fmt/core.h>
#include <algorithm>
#include <bit>
#include <deque>
#include <map>
#include <set>
#include <string>
#include <utility>

#include "text/forms/expression.h"
#include "text/forms/json_formats.h"
#include "text/forms/json_goal.h"

namespace weir::forms {
namespace {

constexpr size_t kMaxPatterns = 4;  // under patternProperties of one object: each subset of them is a case of its own
constexpr int64_t kMaxCountedCells = 50'000;  // keys x counts of minProperties and maxProperties
constexpr size_t kMaxUnique = 8;              // values of items that differ: each subset of them is a case of its own

// What the names of an object's members have to satisfy.
struct Names {
  std::optional<Merged> merged;  // nullopt: nothing
  bool possible = true;          // false: there may be no members
  // Whether names that are not listed can be written.
  bool listed() const { return !possible || (merged && merged->values); }
};

class SchemaCompiler {
 public:
  SchemaCompiler(const Json& root, const JsonFormOptions& options, NetworkBuilder* network)
      : reader_(root, &network->work()), root_(root), options_(options), network_(*network) {}

  Result<int32_t> Run() {
    const int32_t root = reader_.LocateRoot();
    WEIR_ASSIGN_OR_RETURN(const int32_t rule, RuleFor({SchemaReader::Element(root, Part::kAll)}));
    while (!todo_.empty() && !network_.full()) {
      const auto [goal, of_goal] = todo_.front();
      todo_.pop_front();
      from_ = network_.StartOf(of_goal);
      to_ = network_.EndOf(of_goal);
      WEIR_RETURN_IF_ERROR(Compile(goal));
    }
    return rule;
  }

 private:
  // The rule that reads a value which satisfies the goal. It is compiled later, so that schemas may refer to
  // themselves.
  Result<int32_t> RuleFor(const Goal& goal) {
    WEIR_ASSIGN_OR_RETURN(const std::optional<Goal> flat, reader_.Flatten(goal));
    if (!flat) return Nothing();
    const auto [it, is_new] = rules_.try_emplace(*flat, -1);
    if (is_new) {
      if (std::ssize(rules_) > network_.work().max_goals) {
        return InvalidArgument("the schema is too complex: it has more than {} combinations of its parts",
                               network_.work().max_goals);
      }
      const std::string pointer = flat->empty() ? "" : reader_.PointerOf(SchemaReader::IdOf(flat->front()));
      it->second = network_.AddRule(fmt::format("the schema at '#{}'", pointer));
      todo_.emplace_back(*flat, it->second);
    }
    return it->second;
  }

  // A rule that reads nothing: Finish() drops whatever needs it.
  int32_t Nothing() {
    if (nothing_ < 0) nothing_ = network_.AddRule("");
    return nothing_;
  }

  Status Compile(const Goal& goal) {
    for (size_t i = 0; i < goal.size(); ++i) {
      const Part part = SchemaReader::PartOf(goal[i]);
      if (part != Part::kAnyOf && part != Part::kOneOf) continue;
      if (part == Part::kOneOf) WEIR_RETURN_IF_ERROR(reader_.CheckOneOf(goal, goal[i]));
      for (const int32_t choice : reader_.ChoicesOf(goal[i])) {
        Goal with = goal;
        with[i] = choice;
        std::swap(with[i], with.back());
        WEIR_ASSIGN_OR_RETURN(const int32_t rule, RuleFor(with));
        network_.Call(from_, rule, to_);
      }
      return Status();
    }
    WEIR_ASSIGN_OR_RETURN(const Merged merged, reader_.Merge(goal));
    if (merged.values) return Values(goal, merged);
    if ((merged.types & kNull) != 0) network_.Text(from_, "null", to_);
    if ((merged.types & kBoolean) != 0) network_.Texts(from_, {"true", "false"}, to_);
    if ((merged.types & kNumber) != 0) EmitNumber(merged.number, from_, to_, &network_);
    if ((merged.types & kString) != 0) WEIR_RETURN_IF_ERROR(String(merged));
    if ((merged.types & kArray) != 0) WEIR_RETURN_IF_ERROR(Array(goal, merged));
    if ((merged.types & kObject) != 0) WEIR_RETURN_IF_ERROR(Object(goal, merged));
    return Status();
  }

  Status Values(const Goal& goal, const Merged& merged) {
    Goal others = goal;
    for (int32_t& element : others) {
      element = SchemaReader::Element(SchemaReader::IdOf(element), Part::kOwnNoValues);
    }
    const int32_t at = SchemaReader::IdOf(goal.empty() ? 0 : goal.front());
    std::vector<std::string> texts;
    for (const Json* given : *merged.values) {
      const Json& value = *given;
      WEIR_ASSIGN_OR_RETURN(const bool accepted, reader_.Accepts(merged, value));
      if (!accepted) continue;
      if (!value.is_structured()) {
        texts.push_back(JsonText(value));
        WEIR_RETURN_IF_ERROR(reader_.Spend(std::ssize(texts.back()) / 16));
        continue;
      }
      Goal exact = others;
      // An array or an object is held as a schema that allows nothing else.
      WEIR_ASSIGN_OR_RETURN(const int32_t schema, reader_.SchemaOfValue(value, at));
      exact.push_back(SchemaReader::Element(schema, Part::kAll));
      WEIR_ASSIGN_OR_RETURN(const int32_t rule, RuleFor(exact));
      network_.Call(from_, rule, to_);
    }
    if (!texts.empty()) network_.Texts(from_, std::move(texts), to_);
    return Status();
  }

  // One character of a string in any of the ways in which JSON may write it.
  int32_t AnyChar() {
    if (any_char_ >= 0) return any_char_;
    any_char_ = network_.AddRule("");
    const int32_t from = network_.StartOf(any_char_), to = network_.EndOf(any_char_);
    CharSet plain = {{0x20, '"' - 1}, {'"' + 1, '\\' - 1}, {'\\' + 1, 0x7E}, {0x80, kMaxChar}};
    network_.Chars(from, Clean(std::move(plain)), Writing::kPlain, to);
    const int32_t escape = network_.AddNode(), code = network_.AddNode();
    network_.Byte(from, '\\', '\\', escape);
    for (const char c : std::string_view("\"\\/bfnrt")) {
      network_.Byte(escape, static_cast<uint8_t>(c), static_cast<uint8_t>(c), to);
    }
    network_.Byte(escape, 'u', 'u', code);
    const auto hex = [&](int32_t at, std::string_view first, int32_t next) {
      for (const char c : first) network_.Byte(at, static_cast<uint8_t>(c), static_cast<uint8_t>(c), next);
    };
    static constexpr std::string_view kAnyHex = "0123456789abcdefABCDEF";
    const int32_t last3 = network_.AddNode(), last2 = network_.AddNode(), last1 = network_.AddNode();
    hex(last3, kAnyHex, last2);
    hex(last2, kAnyHex, last1);
    hex(last1, kAnyHex, to);
    hex(code, "0123456789abcefABCEF", last3);
    const int32_t d = network_.AddNode();  // D0 to D7 are characters, D8 to DB the first half of one
    hex(code, "dD", d);
    hex(d, "01234567", last2);
    const int32_t high2 = network_.AddNode(), high1 = network_.AddNode(), low = network_.AddNode();
    hex(d, "89abAB", high2);
    hex(high2, kAnyHex, high1);
    hex(high1, kAnyHex, low);
    const int32_t low_u = network_.AddNode(), low_d = network_.AddNode();
    network_.Text(low, "\\u", low_u);
    hex(low_u, "dD", low_d);
    hex(low_d, "cdefCDEF", last2);
    return any_char_;
  }

  // The texts that fit, as an automaton. REQUIRES: a pattern, a format or a length.
  Result<CharDfa> DfaOfText(const Merged& merged) {
    std::optional<CharDfa> all;
    const auto add = [&](const CharDfa& dfa, int32_t id, const char* keyword) -> Status {
      WEIR_RETURN_IF_ERROR(reader_.SpendOnDfa(dfa.n_cells()));
      if (!all) {
        all = dfa;
        return Status();
      }
      auto both = Both(*all, dfa, reader_.dfa_work());
      if (!both.ok()) return reader_.Bad(id, keyword, "cannot be held: " + both.status().message());
      all = *std::move(both);
      return Status();
    };
    for (const auto& [id, pattern] : merged.patterns) {
      WEIR_ASSIGN_OR_RETURN(const CharDfa* dfa, reader_.DfaOfPattern(id, pattern));
      WEIR_RETURN_IF_ERROR(add(*dfa, id, "pattern"));
    }
    for (const auto& [id, format] : merged.formats) {
      WEIR_ASSIGN_OR_RETURN(const CharDfa* dfa, reader_.DfaOfFormat(id, format));
      WEIR_RETURN_IF_ERROR(add(*dfa, id, "format"));
    }
    if (merged.min_length > 0 || merged.max_length >= 0) {
      const int32_t id = !merged.patterns.empty()  ? merged.patterns[0].first
                         : !merged.formats.empty() ? merged.formats[0].first
                                                   : merged.at;
      const auto length = DfaOfLength(merged.min_length, merged.max_length, *reader_.dfa_work());
      const char* keyword = merged.max_length >= 0 ? "maxLength" : "minLength";
      if (!length.ok()) return reader_.Bad(id, keyword, "cannot be held: " + length.status().message());
      WEIR_RETURN_IF_ERROR(add(*length, id, keyword));
    }
    return *std::move(all);
  }

  Status String(const Merged& merged) {
    const int32_t begin = network_.AddNode(), end = network_.AddNode();
    network_.Text(from_, "\"", begin);
    network_.Text(end, "\"", to_);
    if (merged.max_length >= 0 && merged.max_length < merged.min_length) return Status();
    const bool has_length = merged.min_length > 0 || merged.max_length >= 0;
    const size_t n = merged.patterns.size() + merged.formats.size();
    if (n == 0) {
      network_.Repeat(begin, AnyChar(), static_cast<int32_t>(merged.min_length),
                      static_cast<int32_t>(merged.max_length), end);
      return Status();
    }
    if (n == 1 && !has_length) {
      const bool is_format = merged.patterns.empty();
      const auto& [id, text] = is_format ? merged.formats[0] : merged.patterns[0];
      WEIR_RETURN_IF_ERROR(reader_.Spend(std::ssize(text) / 8));
      auto expression = ParseRegex(is_format ? FindFormat(text).expression : text);
      if (!expression.ok()) return reader_.Bad(id, "pattern", "cannot be held: " + expression.status().message());
      if (RemoveAnchors(!is_format, &*expression)) {
        Emit(*expression, Writing::kJson, begin, end, &network_);
        return Status();
      }
    }
    WEIR_ASSIGN_OR_RETURN(const CharDfa all, DfaOfText(merged));
    WEIR_RETURN_IF_ERROR(reader_.SpendOnDfa(all.n_cells()));
    Emit(all, Writing::kJson, begin, end, &network_);
    return Status();
  }

  // Between the parts of arrays and objects.
  void Spaces(int32_t from, int32_t to) {
    if (!options_.spaces) return network_.Empty(from, to);
    if (spaces_ < 0) {
      spaces_ = network_.AddRule("");
      const int32_t start = network_.StartOf(spaces_), end = network_.EndOf(spaces_);
      const int32_t blank = network_.AddRule(""), line = network_.AddNode(), lines = network_.AddNode();
      network_.Byte(network_.StartOf(blank), ' ', ' ', network_.EndOf(blank));
      network_.Byte(network_.StartOf(blank), '\t', '\t', network_.EndOf(blank));
      network_.Empty(start, end);
      network_.Byte(start, ' ', ' ', end);
      network_.Byte(start, '\n', '\n', line);
      network_.Byte(line, '\n', '\n', lines);
      network_.Empty(line, lines);
      network_.Repeat(lines, blank, 0, 20, end);
    }
    network_.Call(from, spaces_, to);
  }

  void CommaThen(int32_t from, int32_t rule, int32_t to) {
    const int32_t comma = network_.AddNode(), space = network_.AddNode();
    network_.Text(from, ",", comma);
    Spaces(comma, space);
    network_.Call(space, rule, to);
  }

  int32_t RuleOfCommaThen(int32_t rule) {
    const int32_t out = network_.AddRule("");
    CommaThen(network_.StartOf(out), rule, network_.EndOf(out));
    return out;
  }

  // The values of items that differ, where they can be counted.
  Result<std::vector<std::string>> UniqueItems(const Goal& goal, const Merged& merged) {
    const auto bad = [&] {
      return reader_.Bad(merged.unique, "uniqueItems",
                         fmt::format("cannot be held while an answer is written, unless items have an enum of at most "
                                     "{} texts, numbers, true, false or null",
                                     kMaxUnique));
    };
    if (reader_.NumPrefixItems(goal) > 0) return bad();
    WEIR_ASSIGN_OR_RETURN(const auto item, reader_.Flatten(reader_.GoalOfItem(goal, 0)));
    std::vector<std::string> out;
    if (!item) return out;
    for (const int32_t element : *item) {
      const Part part = SchemaReader::PartOf(element);
      if (part == Part::kAnyOf || part == Part::kOneOf) return bad();
    }
    WEIR_ASSIGN_OR_RETURN(const Merged of_item, reader_.Merge(*item));
    if (!of_item.values) return bad();
    std::vector<const Json*> values;
    for (const Json* value : *of_item.values) {
      if (value->is_structured()) return bad();
      WEIR_ASSIGN_OR_RETURN(const bool accepted, reader_.Accepts(of_item, *value));
      if (!accepted ||
          std::any_of(values.begin(), values.end(), [&](const Json* v) { return SchemaReader::Same(*v, *value); }))
        continue;
      values.push_back(value);
      out.push_back(JsonText(*value));
      if (out.size() > kMaxUnique) return bad();
    }
    return out;
  }

  // Items that differ, between `begin` and `end`; no items: from `begin` to `close`.
  void EmitUnique(const std::vector<std::string>& values, int32_t min, int32_t max, int32_t begin, int32_t end,
                  int32_t close) {
    const size_t n_sets = size_t{1} << values.size();
    std::vector<int32_t> at(n_sets);  // a set of values was read
    for (int32_t& node : at) node = network_.AddNode();
    std::vector<int32_t> rules;
    for (const std::string& value : values) {
      rules.push_back(network_.AddRule(""));
      network_.Text(network_.StartOf(rules.back()), value, network_.EndOf(rules.back()));
    }
    Spaces(begin, at[0]);
    for (size_t set = 0; set < n_sets; ++set) {
      const auto n = static_cast<int32_t>(std::popcount(set));
      if (n >= min && (max < 0 || n <= max)) network_.Empty(at[set], set == 0 ? close : end);
      if (max >= 0 && n >= max) continue;
      int32_t from = at[set];
      if (set != 0) {
        const int32_t comma = network_.AddNode();
        from = network_.AddNode();
        network_.Text(at[set], ",", comma);
        Spaces(comma, from);
      }
      for (size_t i = 0; i < values.size(); ++i) {
        if ((set >> i & 1) == 0) network_.Call(from, rules[i], at[set | size_t{1} << i]);
      }
    }
  }

  Status Array(const Goal& goal, const Merged& merged) {
    const auto min = static_cast<int32_t>(merged.min_items), max = static_cast<int32_t>(merged.max_items);
    if (max >= 0 && max < min) return Status();
    const int32_t begin = network_.AddNode(), end = network_.AddNode(), close = network_.AddNode();
    network_.Text(from_, "[", begin);
    Spaces(end, close);
    network_.Text(close, "]", to_);
    if (merged.unique >= 0 && (max < 0 || max > 1)) {
      WEIR_ASSIGN_OR_RETURN(const std::vector<std::string> values, UniqueItems(goal, merged));
      EmitUnique(values, min, max, begin, end, close);
      return Status();
    }
    const size_t n = reader_.NumPrefixItems(goal);
    int32_t at = network_.AddNode();
    Spaces(begin, at);
    if (min == 0) network_.Empty(at, close);
    for (size_t i = 0; i < n && (max < 0 || static_cast<int64_t>(i) < max); ++i) {
      WEIR_ASSIGN_OR_RETURN(const int32_t item, RuleFor(reader_.GoalOfItem(goal, i)));
      const int32_t next = network_.AddNode();
      if (i == 0) {
        network_.Call(at, item, next);
      } else {
        CommaThen(at, item, next);
      }
      at = next;
      if (static_cast<int64_t>(i) + 1 >= min) network_.Empty(at, end);
    }
    const auto n_first = static_cast<int32_t>(n);
    if (max >= 0 && max <= n_first) return Status();
    WEIR_ASSIGN_OR_RETURN(const int32_t item, RuleFor(reader_.GoalOfItem(goal, n)));
    const int32_t least = std::max(0, min - n_first), most = max < 0 ? kNoMax : max - n_first;
    if (n > 0) {
      network_.Repeat(at, RuleOfCommaThen(item), least, most, end);
    } else {
      const int32_t first = network_.AddNode();
      network_.Call(at, item, first);
      network_.Repeat(first, RuleOfCommaThen(item), std::max(0, least - 1), most < 0 ? kNoMax : most - 1, end);
    }
    return Status();
  }

  // "key": value
  void Member(int32_t from, const std::string& key, int32_t value, int32_t to) {
    const int32_t colon = network_.AddNode(), space = network_.AddNode();
    network_.Text(from, JsonText(Json(key)) + ":", colon);
    Spaces(colon, space);
    network_.Call(space, value, to);
  }

  Result<Names> NamesOf(const Goal& goal) {
    Names out;
    const Goal names = reader_.GoalOfNames(goal);
    if (names.empty()) return out;
    WEIR_ASSIGN_OR_RETURN(const auto flat, reader_.Flatten(names));
    out.possible = flat.has_value();
    if (!flat || flat->empty()) return out;
    for (const int32_t element : *flat) {
      const Part part = SchemaReader::PartOf(element);
      if (part == Part::kAnyOf || part == Part::kOneOf) {
        return reader_.Bad(SchemaReader::IdOf(element), part == Part::kAnyOf ? "anyOf" : "oneOf",
                           "cannot be held for names of members");
      }
    }
    WEIR_ASSIGN_OR_RETURN(Merged merged, reader_.Merge(*flat));
    if (merged.types_given && (merged.types & kString) == 0) {
      out.possible = false;
    } else if (merged.values || merged.min_length > 0 || merged.max_length >= 0 || !merged.patterns.empty() ||
               !merged.formats.empty()) {
      out.merged = std::move(merged);
    }
    return out;
  }

  // The keys that members may have and that are known: of `keys`, those that are fit to be names; and names that are
  // listed.
  Result<std::vector<std::string>> KnownKeys(const Goal& goal, const Names& names, std::vector<std::string> keys) {
    std::vector<std::string> out;
    if (!names.possible) return out;
    if (!names.merged) return keys;
    if (names.merged->values && (reader_.IsOpen(goal) || !reader_.PatternsOf(goal).empty())) {
      std::set<std::string> known(keys.begin(), keys.end());
      const bool open = reader_.IsOpen(goal);
      for (const Json* value : *names.merged->values) {
        if (!value->is_string() || !known.insert(value->get<std::string>()).second) continue;
        // Without additionalProperties only what a pattern matches is a member.
        WEIR_ASSIGN_OR_RETURN(const Goal of_value, reader_.GoalOfKey(goal, value->get_ref<const std::string&>()));
        if (open || !of_value.empty()) keys.push_back(value->get<std::string>());
      }
    }
    for (std::string& key : keys) {
      WEIR_RETURN_IF_ERROR(reader_.Spend());
      const Json name(key);
      WEIR_ASSIGN_OR_RETURN(bool fit, reader_.Accepts(*names.merged, name));
      if (fit && names.merged->values) {
        const auto& values = *names.merged->values;
        WEIR_RETURN_IF_ERROR(reader_.Spend(std::ssize(values)));
        fit = std::any_of(values.begin(), values.end(), [&](const Json* value) { return *value == name; });
      }
      if (fit) out.push_back(std::move(key));
    }
    return out;
  }

  // Members whose keys no schema names: one rule, or -1 for none.
  Result<int32_t> OtherMembers(const Goal& goal, const Names& names, const std::vector<std::string>& keys) {
    const std::vector<std::string> patterns = reader_.PatternsOf(goal);
    const bool open = reader_.IsOpen(goal);
    if ((patterns.empty() && !open) || names.listed()) return -1;
    const int32_t id = SchemaReader::IdOf(goal.empty() ? 0 : goal.front());
    if (patterns.size() > kMaxPatterns) {
      return reader_.Bad(id, "patternProperties",
                         fmt::format("cannot be held with more than {} patterns", kMaxPatterns));
    }
    const int32_t rule = network_.AddRule("");
    const int32_t from = network_.AddNode();
    network_.Text(network_.StartOf(rule), "\"", from);
    const auto with_value = [&](int32_t after_key, int32_t value) {
      const int32_t colon = network_.AddNode(), space = network_.AddNode();
      network_.Text(after_key, "\":", colon);
      Spaces(colon, space);
      network_.Call(space, value, network_.EndOf(rule));
    };
    const bool by_length = !names.merged || (names.merged->patterns.empty() && names.merged->formats.empty());
    if (patterns.empty() && keys.empty() && by_length) {
      WEIR_ASSIGN_OR_RETURN(const int32_t value, RuleFor(reader_.GoalOfPatterns(goal, {})));
      const int32_t after = network_.AddNode();
      const int64_t least = names.merged ? names.merged->min_length : 0;
      const int64_t most = names.merged ? names.merged->max_length : -1;
      if (most >= 0 && most < least) return -1;
      network_.Repeat(from, AnyChar(), static_cast<int32_t>(least), most < 0 ? kNoMax : static_cast<int32_t>(most),
                      after);
      with_value(after, value);
      return rule;
    }
    const auto bad = [&](const Status& status) {
      const char* keyword = patterns.empty() ? "additionalProperties" : "patternProperties";
      return reader_.Bad(id, keyword, "cannot be held: " + status.message());
    };
    for (unsigned subset = 0; subset < 1u << patterns.size(); ++subset) {
      if (subset == 0 && !open) continue;
      auto known = DfaOfTexts(keys, *reader_.dfa_work());
      if (!known.ok()) return bad(known.status());
      WEIR_RETURN_IF_ERROR(reader_.SpendOnDfa(2 * known->n_cells()));
      CharDfa of_keys = Not(*known);
      if (names.merged) {
        WEIR_ASSIGN_OR_RETURN(const CharDfa fit, DfaOfText(*names.merged));
        auto both = Both(of_keys, fit, reader_.dfa_work());
        if (!both.ok()) return bad(both.status());
        of_keys = *std::move(both);
      }
      std::set<std::string> matched;
      for (size_t p = 0; p < patterns.size(); ++p) {
        const bool is_in = (subset >> p & 1) != 0;
        WEIR_ASSIGN_OR_RETURN(const CharDfa* dfa, reader_.DfaOfPattern(id, patterns[p]));
        WEIR_RETURN_IF_ERROR(reader_.SpendOnDfa(dfa->n_cells()));
        auto both = Both(of_keys, is_in ? *dfa : Not(*dfa), reader_.dfa_work());
        if (!both.ok()) return bad(both.status());
        of_keys = *std::move(both);
        if (is_in) matched.insert(patterns[p]);
      }
      WEIR_RETURN_IF_ERROR(reader_.SpendOnDfa(2 * of_keys.n_cells()));
      if (IsEmpty(of_keys)) continue;
      WEIR_ASSIGN_OR_RETURN(const int32_t value, RuleFor(reader_.GoalOfPatterns(goal, matched)));
      const int32_t after = network_.AddNode();
      Emit(of_keys, Writing::kJson, from, after, &network_);
      with_value(after, value);
    }
    return rule;
  }

  Status Object(const Goal& goal, const Merged& merged) {
    WEIR_ASSIGN_OR_RETURN(const Names names, NamesOf(goal));
    WEIR_ASSIGN_OR_RETURN(const std::vector<std::string> keys, KnownKeys(goal, names, reader_.KeysOf(goal, merged)));
    for (const std::string& key : merged.required) {
      if (!names.merged && names.possible) break;
      WEIR_RETURN_IF_ERROR(reader_.Spend(1 + std::ssize(keys) / 8));
      if (std::find(keys.begin(), keys.end(), key) == keys.end()) return Status();  // a name that is not allowed
    }
    WEIR_ASSIGN_OR_RETURN(const int32_t others, OtherMembers(goal, names, keys));
    const int64_t min = merged.min_properties, max = merged.max_properties;
    const auto n = std::ssize(keys);
    if ((max >= 0 && max < std::max(min, std::ssize(merged.required)))) return Status();
    const int32_t id = SchemaReader::IdOf(goal.empty() ? 0 : goal.front());
    // Members of other keys may repeat one: only one of them certainly counts.
    if (min > n + (others >= 0 ? 1 : 0)) {
      return reader_.Bad(id, "minProperties", "cannot be held: there are fewer keys whose names are known");
    }
    const bool counts = (max >= 0 && (max < n || others >= 0)) || min > std::ssize(merged.required);
    const int64_t n_counts = counts ? std::max(min, max) : 1;
    if ((n + 1) * (n_counts + 1) > kMaxCountedCells) {
      return reader_.Bad(id, max >= 0 ? "maxProperties" : "minProperties", "is too large to be held with so many keys");
    }
    const int32_t begin = network_.AddNode(), end = network_.AddNode(), close = network_.AddNode();
    network_.Text(from_, "{", begin);
    Spaces(end, close);
    network_.Text(close, "}", to_);
    // at[c]: c members were read, or that many and more.
    std::vector<int32_t> at;
    const auto row = [&] {
      std::vector<int32_t> out;
      for (int64_t c = 0; c <= n_counts; ++c) out.push_back(network_.AddNode());
      return out;
    };
    at = row();
    Spaces(begin, at[0]);
    const std::set<std::string, std::less<>> required(merged.required.begin(), merged.required.end());
    for (const std::string& key : keys) {
      WEIR_ASSIGN_OR_RETURN(const Goal of_value, reader_.GoalOfKey(goal, key));
      WEIR_ASSIGN_OR_RETURN(const int32_t value, RuleFor(of_value));
      const int32_t member = network_.AddRule("");
      Member(network_.StartOf(member), key, value, network_.EndOf(member));
      const std::vector<int32_t> next = row();
      const bool may_miss = required.count(key) == 0;
      for (int64_t c = 0; c <= n_counts && !network_.full(); ++c) {
        const auto from = static_cast<size_t>(c), to = static_cast<size_t>(std::min(c + 1, n_counts));
        if (may_miss) network_.Empty(at[from], next[from]);
        if (counts && max >= 0 && c + 1 > max) continue;
        if (c == 0) {
          network_.Call(at[from], member, next[to]);
        } else {
          CommaThen(at[from], member, next[to]);
        }
      }
      at = next;
      if (network_.full()) return Status();
    }
    const int32_t comma_others = others < 0 ? -1 : RuleOfCommaThen(others);
    for (int64_t c = 0; c <= n_counts; ++c) {
      const int32_t from = at[static_cast<size_t>(c)];
      const auto missing = static_cast<int32_t>(counts ? std::max<int64_t>(0, min - c) : 0);
      if (missing == 0) network_.Empty(from, c == 0 ? close : end);
      const auto most = static_cast<int32_t>(max < 0 ? kNoMax : counts ? std::max<int64_t>(0, max - c) : 0);
      if (others < 0 || missing > 1 || most == 0) continue;
      if (c == 0) {
        const int32_t first = network_.AddNode();
        network_.Call(from, others, first);
        network_.Repeat(first, comma_others, 0, most < 0 ? kNoMax : most - 1, end);
      } else {
        network_.Repeat(from, comma_others, missing, most, end);
      }
    }
    return Status();
  }

  SchemaReader reader_;
  const Json& root_;
  const JsonFormOptions options_;
  NetworkBuilder& network_;
  std::map<Goal, int32_t> rules_;
  std::deque<std::pair<Goal, int32_t>> todo_;
  int32_t from_ = 0, to_ = 0;  // of the rule that is being compiled
  int32_t nothing_ = -1, any_char_ = -1, spaces_ = -1;
};

}  // namespace

Result<int32_t> AddJsonSchema(std::string_view text, const JsonFormOptions& options, NetworkBuilder* network) {
  auto root = ParseJsonObject(text);
  if (!root.ok()) {
    std::string message = root.status().message();
    for (const std::string_view name : {"the body", "the JSON"}) {
      if (message.starts_with(name)) message = fmt::format("the schema{}", message.substr(name.size()));
    }
    return InvalidArgument("{}", message);
  }
  return SchemaCompiler(*root, options, network).Run();
}

}  // namespace weir::forms
