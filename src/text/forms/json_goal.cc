// SPDX-License-Identifier: Apache-2.0
// One file, although long: every keyword of a schema narrows the same goal, and all of them draw on one budget of work.
#include "text/forms/json_goal.h"

#include <fmt/core.h>
#include <algorithm>
#include <cmath>
#include <numeric>
#include <utility>

#include "base/utf8.h"
#include "text/forms/json_formats.h"

namespace weir::forms {
namespace {

constexpr int64_t kMaxCount = kMaxRepeat;  // of lengths and items
constexpr size_t kMaxPointer = 200;        // bytes that are kept of it
constexpr size_t kMaxWay = 200;            // references and allOf that lead to one another
constexpr size_t kMaxParts = 20'000;       // of an array or object in const or enum
// Characters that are read, or keys that are compared, in about the time of one step.
constexpr int64_t kKeptCell = 4;  // steps that stand for the memory of one
constexpr int64_t kBytesPerStep = 32, kKeysPerStep = 32;

// Keywords that assert what a mask cannot hold.
constexpr std::string_view kNotHeld[] = {
    "not",      "if",          "dependentSchemas", "dependentRequired",     "dependencies",
    "contains", "$dynamicRef", "$recursiveRef",    "unevaluatedProperties", "unevaluatedItems",
    "extends",  "disallow",    "divisibleBy",
};

struct AboutType {
  std::string_view keyword;
  unsigned types;
};
constexpr AboutType kAbout[] = {
    {"multipleOf", kNumber},
    {"maximum", kNumber},
    {"exclusiveMaximum", kNumber},
    {"minimum", kNumber},
    {"exclusiveMinimum", kNumber},
    {"maxLength", kString},
    {"minLength", kString},
    {"pattern", kString},
    {"format", kString},
    {"prefixItems", kArray},
    {"items", kArray},
    {"additionalItems", kArray},
    {"maxItems", kArray},
    {"minItems", kArray},
    {"uniqueItems", kArray},
    {"properties", kObject},
    {"patternProperties", kObject},
    {"additionalProperties", kObject},
    {"maxProperties", kObject},
    {"minProperties", kObject},
    {"propertyNames", kObject},
    {"required", kObject},
};

unsigned TypeOf(const Json& value) {
  switch (value.type()) {
    case Json::value_t::null:
      return kNull;
    case Json::value_t::boolean:
      return kBoolean;
    case Json::value_t::string:
      return kString;
    case Json::value_t::array:
      return kArray;
    case Json::value_t::object:
      return kObject;
    default:
      return kNumber;
  }
}

bool IsInteger(const Json& value) {
  if (value.is_number_integer()) return true;
  return value.is_number_float() && std::floor(value.get<double>()) == value.get<double>();
}

// The parser's own comparison casts one to the type of the other.
bool SameNumber(const Json& a, const Json& b) {
  if (a.is_number_float() && b.is_number_float()) return a == b;
  if (!a.is_number_float() && !b.is_number_float()) {
    if (a.is_number_unsigned() == b.is_number_unsigned()) return a == b;
    const Json& with_sign = a.is_number_unsigned() ? b : a;
    return with_sign.get<int64_t>() >= 0 && a.get<uint64_t>() == b.get<uint64_t>();
  }
  const auto decimal = DecimalOf(a), other = DecimalOf(b);
  return decimal && other && Compare(*decimal, *other) == 0;
}

int64_t NumChars(std::string_view text) {
  return std::count_if(text.begin(), text.end(), [](char c) { return (static_cast<uint8_t>(c) & 0xC0) != 0x80; });
}

std::string Escaped(std::string_view key) {  // for a JSON pointer
  std::string out;
  for (const char c : key) {
    if (c == '~') {
      out += "~0";
    } else if (c == '/') {
      out += "~1";
    } else {
      out += static_cast<uint8_t>(c) < 0x20 ? '?' : c;
    }
  }
  return out;
}

// Appends a step to a pointer, as far as it is kept.
void Extend(std::string_view step, std::string* pointer) {
  if (pointer->size() >= kMaxPointer) return;
  *pointer += "/" + Escaped(step.substr(0, kMaxPointer));
  pointer->resize(std::min(pointer->size(), kMaxPointer));
}

// Steps that it takes to compare the value with another one, or to copy it.
int64_t Weight(const Json& value) {
  if (value.is_string()) return 1 + std::ssize(value.get_ref<const std::string&>()) / kBytesPerStep;
  if (!value.is_structured()) return 1;
  const auto n = static_cast<int64_t>(value.size());
  int64_t out = 1 + (value.is_object() ? n * n / kKeysPerStep : 0);
  for (const auto& part : value) out += Weight(part);
  return out;
}

}  // namespace

bool SchemaReader::Same(const Json& a, const Json& b) {
  if (TypeOf(a) != TypeOf(b) || a.size() != b.size()) return false;
  if (a.is_object()) {
    return std::all_of(a.items().begin(), a.items().end(), [&](const auto& item) {
      const auto it = b.find(item.key());
      return it != b.end() && Same(item.value(), *it);
    });
  }
  if (a.is_array()) return std::equal(a.begin(), a.end(), b.begin(), Same);
  return a.is_number() ? SameNumber(a, b) : a == b;
}

Status SchemaReader::Bad(int32_t id, std::string_view keyword, std::string_view what) const {
  return InvalidArgument("'{}' of the schema at '#{}' {}", keyword, PointerOf(id), what);
}

Status SchemaReader::Spend(int64_t n) {
  if ((work_.combinations -= n) >= 0) return Status();
  return InvalidArgument("the schema is too complex: its combinations take more than {} steps to work out",
                         SchemaWork().combinations);
}

Status SchemaReader::SpendOnDfa(int64_t n) {
  if ((work_.automata.steps -= n) >= 0) return Status();
  return InvalidArgument("the schema is too complex: its patterns and formats take too many steps to work out");
}

int32_t SchemaReader::LocateAt(const Json& schema, std::string pointer) {
  const auto [it, is_new] = ids_.try_emplace(&schema, static_cast<int32_t>(places_.size()));
  if (is_new) places_.push_back({&schema, std::move(pointer)});
  return it->second;
}

int32_t SchemaReader::Locate(int32_t parent, const Json& schema, std::string_view keyword, std::string_view step) {
  if (const auto it = ids_.find(&schema); it != ids_.end()) return it->second;
  std::string pointer = PointerOf(parent);
  Extend(keyword, &pointer);
  if (!step.empty()) Extend(step, &pointer);
  return LocateAt(schema, std::move(pointer));
}

Result<int32_t> SchemaReader::SchemaOfValue(const Json& value, int32_t at) {
  if (const auto it = of_value_.find(&value); it != of_value_.end()) return it->second;
  constexpr int64_t kCopy = 4;
  WEIR_RETURN_IF_ERROR(Spend(kCopy * Weight(value)));
  if (value.size() > kMaxParts) {
    return InvalidArgument("the schema is too complex: a value at '#{}' has more than {} parts", PointerOf(at),
                           kMaxParts);
  }
  Json schema = {{"type", value.is_array() ? "array" : "object"}};
  if (value.is_array()) {
    schema["prefixItems"] = Json::array();
    for (const Json& item : value) schema["prefixItems"].push_back({{"const", item}});
    schema["items"] = false;
    schema["minItems"] = value.size();
  } else {
    schema["properties"] = Json::object();
    schema["required"] = Json::array();
    for (const auto& [key, member] : value.items()) {
      schema["properties"][key] = {{"const", member}};
      schema["required"].push_back(key);
    }
    schema["additionalProperties"] = false;
  }
  own_.push_back(std::move(schema));
  return of_value_[&value] = LocateAt(own_.back(), PointerOf(at));
}

Result<bool> SchemaReader::IsAmong(const std::vector<const Json*>& values, const Json& value) {
  WEIR_RETURN_IF_ERROR(Spend(Weight(value) * std::ssize(values)));
  return std::any_of(values.begin(), values.end(), [&](const Json* v) { return Same(*v, value); });
}

Goal SchemaReader::Sub(int32_t id, const char* keyword) {
  return {Element(Locate(id, At(id)[keyword], keyword), Part::kAll)};
}

Status SchemaReader::Check(int32_t id) {
  Place& place = places_[static_cast<size_t>(id)];
  if (place.checked) return Status();
  place.checked = true;
  const Json& schema = *place.json;
  if (schema.is_boolean()) return Status();
  if (!schema.is_object()) {
    return InvalidArgument("the schema at '#{}' must be an object, true or false", place.pointer);
  }
  for (const auto& [key, value] : schema.items()) {
    if (std::find(std::begin(kNotHeld), std::end(kNotHeld), key) != std::end(kNotHeld)) {
      return Bad(id, key, "cannot be held while an answer is written");
    }
    if (key == "allOf" || key == "anyOf" || key == "oneOf") {
      if (!value.is_array() || value.empty()) return Bad(id, key, "must be a list of schemas");
    }
    if (key == "properties" || key == "patternProperties") {
      if (!value.is_object()) return Bad(id, key, "must be an object of schemas");
    }
    if (key == "prefixItems" && !value.is_array()) return Bad(id, key, "must be a list of schemas");
    if (key == "enum" && (!value.is_array() || value.empty())) return Bad(id, key, "must be a list of values");
    if (key == "required") {
      const bool fine = value.is_array() &&
                        std::all_of(value.begin(), value.end(), [](const Json& name) { return name.is_string(); });
      if (!fine) return Bad(id, key, "must be a list of strings");
    }
    if ((key == "pattern" || key == "format" || key == "$ref") && !value.is_string()) {
      return Bad(id, key, "must be a string");
    }
  }
  return Status();
}

void SchemaReader::FindAnchors(const Json& at, bool names, std::string* pointer) {
  const size_t n = pointer->size();
  if (at.is_object()) {
    if (const auto it = at.find("$anchor"); !names && it != at.end() && it->is_string()) {
      anchors_.try_emplace(it->get<std::string>(), Anchor{&at, *pointer});
    }
    for (const auto& [key, value] : at.items()) {
      // Values, not schemas.
      if (!value.is_structured() || (!names && (key == "default" || key == "const" || key == "enum"))) continue;
      Extend(key, pointer);
      const bool of_names = key == "properties" || key == "patternProperties" || key == "$defs" || key == "definitions";
      FindAnchors(value, !names && of_names, pointer);
      pointer->resize(n);
    }
  } else if (at.is_array()) {
    for (size_t i = 0; i < at.size(); ++i) {
      if (!at[i].is_structured()) continue;
      Extend(std::to_string(i), pointer);
      FindAnchors(at[i], false, pointer);
      pointer->resize(n);
    }
  }
}

Result<int32_t> SchemaReader::Resolve(int32_t id, const std::string& reference) {
  Place& place = places_[static_cast<size_t>(id)];
  if (place.target >= 0) return place.target;
  WEIR_RETURN_IF_ERROR(Spend(std::ssize(reference) / kBytesPerStep));
  const std::string shown = reference.substr(0, 100);
  const Json* at = &root_;
  if (reference.empty() || reference[0] != '#') {
    return Bad(id, "$ref", "refers to another document: only '#...' is followed");
  }
  std::string text;
  for (size_t i = 1; i < reference.size(); ++i) {
    if (reference[i] == '%' && i + 2 < reference.size()) {
      const auto hex = [](char c) {
        return c >= '0' && c <= '9' ? c - '0' : (c | 32) >= 'a' && (c | 32) <= 'f' ? (c | 32) - 'a' + 10 : -1;
      };
      const int high = hex(reference[i + 1]), low = hex(reference[i + 2]);
      if (high >= 0 && low >= 0) {
        text += static_cast<char>(high * 16 + low);
        i += 2;
        continue;
      }
    }
    text += reference[i];
  }
  std::string pointer;
  if (!text.empty() && text[0] != '/') {
    if (!std::exchange(has_anchors_, true)) FindAnchors(root_, false, &pointer);
    const auto it = anchors_.find(text);
    if (it == anchors_.end()) return Bad(id, "$ref", fmt::format("refers to '{}', which is not there", shown));
    return place.target = LocateAt(*it->second.json, it->second.pointer);
  }
  for (size_t begin = 1; begin <= text.size() && !text.empty();) {
    const size_t end = std::min(text.find('/', begin), text.size());
    std::string key;
    for (size_t i = begin; i < end; ++i) {
      if (text[i] == '~' && i + 1 < end && (text[i + 1] == '0' || text[i + 1] == '1')) {
        key += text[++i] == '0' ? '~' : '/';
      } else {
        key += text[i];
      }
    }
    const Json* next = nullptr;
    if (at->is_object()) {
      const auto it = at->find(key);
      if (it != at->end()) next = &*it;
    } else if (at->is_array() && !key.empty() && key.size() < 8 &&
               key.find_first_not_of("0123456789") == std::string::npos) {
      const auto index = static_cast<size_t>(std::stoi(key));
      if (index < at->size()) next = &(*at)[index];
    }
    if (next == nullptr) return Bad(id, "$ref", fmt::format("refers to '{}', which is not there", shown));
    at = next;
    Extend(key, &pointer);
    begin = end + 1;
  }
  return place.target = LocateAt(*at, std::move(pointer));
}

Status SchemaReader::Visit(int32_t element, std::vector<int32_t>* way, std::set<int32_t>* out, bool* possible) {
  WEIR_RETURN_IF_ERROR(Spend());
  if (PartOf(element) != Part::kAll) {
    out->insert(element);
    return Status();
  }
  const int32_t id = IdOf(element);
  WEIR_RETURN_IF_ERROR(Check(id));
  const Json& schema = At(id);
  if (schema.is_boolean()) {
    *possible &= schema.get<bool>();
    return Status();
  }
  if (std::find(way->begin(), way->end(), id) != way->end()) {
    return InvalidArgument("the schema at '#{}' refers to itself: an answer to it would never begin", PointerOf(id));
  }
  if (way->size() >= kMaxWay) {
    return InvalidArgument("the schema at '#{}' is reached by more than {} references and allOf in a row",
                           PointerOf(id), kMaxWay);
  }
  // Seen on another way already, with all that it brings.
  if (!out->insert(Element(id, Part::kOwn)).second) return Status();
  way->push_back(id);
  if (const auto it = schema.find("$ref"); it != schema.end()) {
    WEIR_ASSIGN_OR_RETURN(const int32_t target, Resolve(id, it->get<std::string>()));
    WEIR_RETURN_IF_ERROR(Visit(Element(target, Part::kAll), way, out, possible));
  }
  if (const auto it = schema.find("allOf"); it != schema.end()) {
    for (size_t i = 0; i < it->size(); ++i) {
      const int32_t part = Locate(id, (*it)[i], "allOf", i);
      WEIR_RETURN_IF_ERROR(Visit(Element(part, Part::kAll), way, out, possible));
    }
  }
  if (schema.contains("anyOf")) out->insert(Element(id, Part::kAnyOf));
  if (schema.contains("oneOf")) out->insert(Element(id, Part::kOneOf));
  way->pop_back();
  return Status();
}

Result<std::optional<Goal>> SchemaReader::Flatten(const Goal& goal) {
  std::set<int32_t> out;
  bool possible = true;
  for (const int32_t element : goal) {
    std::vector<int32_t> way;
    WEIR_RETURN_IF_ERROR(Visit(element, &way, &out, &possible));
  }
  if (!possible) return std::optional<Goal>();
  // What says nothing is left out, so that equal goals are recognised.
  Goal flat;
  for (const int32_t element : out) {
    bool says = PartOf(element) != Part::kOwn;
    if (!says) {
      const Json& schema = At(IdOf(element));
      WEIR_RETURN_IF_ERROR(Spend(static_cast<int64_t>(schema.size()) / 2));
      for (const char* keyword : {"type", "enum", "const", "nullable"}) says |= schema.contains(keyword);
      for (const AboutType& about : kAbout) says |= schema.contains(about.keyword);
    }
    if (says) flat.push_back(element);
  }
  return std::optional<Goal>(std::move(flat));
}

std::vector<int32_t> SchemaReader::ChoicesOf(int32_t element) {
  const int32_t id = IdOf(element);
  const char* keyword = PartOf(element) == Part::kAnyOf ? "anyOf" : "oneOf";
  std::vector<int32_t> out;
  const Json& list = At(id)[keyword];
  for (size_t i = 0; i < list.size(); ++i) {
    out.push_back(Element(Locate(id, list[i], keyword, i), Part::kAll));
  }
  return out;
}

Status SchemaReader::MergeNumber(int32_t id, const Json& schema, NumberLimits* limits) {
  const auto bound = [&](const char* keyword, bool open, bool low) -> Status {
    const auto it = schema.find(keyword);
    if (it == schema.end()) return Status();
    // Draft 4: exclusiveMinimum says whether minimum is excluded.
    if (open && it->is_boolean()) return Status();
    if (!it->is_number()) return Bad(id, keyword, "must be a number");
    auto value = DecimalOf(*it);
    if (!value) return Bad(id, keyword, "has too many digits");
    const auto draft4 = open ? schema.end() : schema.find(low ? "exclusiveMinimum" : "exclusiveMaximum");
    NumberLimits::Bound given{*std::move(value), open || (draft4 != schema.end() && *draft4 == true)};
    auto& now = low ? limits->low : limits->high;
    const int order = now ? Compare(given.value, now->value) : 0;
    const bool stricter = !now || (low ? order > 0 : order < 0) || (order == 0 && given.open);
    if (stricter) now = std::move(given);
    return Status();
  };
  WEIR_RETURN_IF_ERROR(bound("minimum", false, true));
  WEIR_RETURN_IF_ERROR(bound("exclusiveMinimum", true, true));
  WEIR_RETURN_IF_ERROR(bound("maximum", false, false));
  WEIR_RETURN_IF_ERROR(bound("exclusiveMaximum", true, false));
  if (const auto it = schema.find("multipleOf"); it != schema.end()) {
    if (!it->is_number() || !(it->get<double>() > 0)) return Bad(id, "multipleOf", "must be a number above 0");
    const double multiple = it->get<double>();
    if (multiple != std::floor(multiple) || multiple > kMaxMultiple) {
      return Bad(id, "multipleOf", fmt::format("cannot be held unless it is a whole number up to {}", kMaxMultiple));
    }
    limits->multiple = std::lcm(limits->multiple, static_cast<int64_t>(multiple));
    if (limits->multiple > kMaxMultiple) {
      return Bad(id, "multipleOf",
                 fmt::format("makes {} with others; up to {} can be held", limits->multiple, kMaxMultiple));
    }
  }
  return Status();
}

Status SchemaReader::MergeOne(int32_t id, bool with_values, Merged* out, unsigned* about) {
  const Json& schema = At(id);
  for (const AboutType& a : kAbout) {
    if (schema.contains(a.keyword)) *about |= a.types;
  }
  if (const auto it = schema.find("type"); it != schema.end()) {
    unsigned types = 0;
    bool integer = false, number = false;
    const auto add = [&](const Json& name) -> Status {
      static constexpr std::pair<std::string_view, unsigned> kNames[] = {
          {"null", kNull},     {"boolean", kBoolean}, {"number", kNumber}, {"integer", kNumber},
          {"string", kString}, {"array", kArray},     {"object", kObject},
      };
      for (const auto& [known, bit] : kNames) {
        if (!name.is_string() || name.get_ref<const std::string&>() != known) continue;
        types |= bit;
        integer |= known == "integer";
        number |= known == "number";
        return Status();
      }
      return Bad(id, "type", "must be one of null, boolean, object, array, number, integer, string, or a list of them");
    };
    if (it->is_array()) {
      for (const Json& name : *it) WEIR_RETURN_IF_ERROR(add(name));
    } else {
      WEIR_RETURN_IF_ERROR(add(*it));
    }
    const auto nullable = schema.find("nullable");  // OpenAPI 3.0
    if (nullable != schema.end() && *nullable == true) types |= kNull;
    out->types &= types;
    out->types_given = true;
    out->number.integer |= integer && !number;
  }
  if (with_values) {
    for (const char* keyword : {"const", "enum"}) {
      const auto it = schema.find(keyword);
      if (it == schema.end()) continue;
      std::vector<const Json*> values;
      const bool is_list = keyword[0] == 'e';
      if (is_list) WEIR_RETURN_IF_ERROR(Spend(static_cast<int64_t>(it->size())));
      for (size_t i = 0; i < (is_list ? it->size() : 1); ++i) {
        const Json& value = is_list ? (*it)[i] : *it;
        // What is larger than any integer of the parser was rounded.
        if (value.is_number_float() && std::abs(value.get<double>()) >= 0x1p63 && IsInteger(value)) {
          return Bad(id, keyword, "has a number that is too large to be held exactly");
        }
        bool given = true;
        if (out->values) {
          WEIR_ASSIGN_OR_RETURN(given, IsAmong(*out->values, value));
        }
        if (given) values.push_back(&value);
      }
      out->values = std::move(values);
    }
  }
  WEIR_RETURN_IF_ERROR(MergeNumber(id, schema, &out->number));
  const auto count = [&](const char* keyword, bool least, int64_t* now) -> Status {
    const auto it = schema.find(keyword);
    if (it == schema.end()) return Status();
    const bool whole = it->is_number() && IsInteger(*it) && it->get<double>() >= 0;
    if (!whole) return Bad(id, keyword, "must be a whole number, 0 or more");
    const double value = it->get<double>();
    if (least) {
      if (value > kMaxCount) return Bad(id, keyword, fmt::format("may be at most {}", kMaxCount));
      *now = std::max(*now, static_cast<int64_t>(value));
    } else if (value <= kMaxCount && (*now < 0 || value < static_cast<double>(*now))) {
      *now = static_cast<int64_t>(value);
    } else if (value > kMaxCount && *now < 0) {
      *now = kMaxCount;
    }
    return Status();
  };
  WEIR_RETURN_IF_ERROR(count("minLength", true, &out->min_length));
  WEIR_RETURN_IF_ERROR(count("maxLength", false, &out->max_length));
  WEIR_RETURN_IF_ERROR(count("minItems", true, &out->min_items));
  WEIR_RETURN_IF_ERROR(count("maxItems", false, &out->max_items));
  WEIR_RETURN_IF_ERROR(count("minProperties", true, &out->min_properties));
  WEIR_RETURN_IF_ERROR(count("maxProperties", false, &out->max_properties));
  const auto add_text = [&](const char* keyword, std::vector<std::pair<int32_t, std::string>>* list) {
    const auto it = schema.find(keyword);
    if (it == schema.end()) return;
    const auto& text = it->get_ref<const std::string&>();
    const bool known = std::any_of(list->begin(), list->end(), [&](const auto& entry) { return entry.second == text; });
    if (!known) list->emplace_back(id, text);
  };
  add_text("pattern", &out->patterns);
  if (const auto it = schema.find("format"); it != schema.end()) {
    switch (FindFormat(it->get_ref<const std::string&>()).kind) {
      case FormatKind::kHeld:
        add_text("format", &out->formats);
        break;
      case FormatKind::kNotHeld:
        return Bad(id, "format", "cannot be held: " + it->get<std::string>());
      case FormatKind::kUnknown:
        break;
    }
  }
  if (const auto it = schema.find("uniqueItems"); it != schema.end() && *it != false) out->unique = id;
  if (const auto it = schema.find("required"); it != schema.end()) {
    for (const Json& name : *it) {
      const auto& key = name.get_ref<const std::string&>();
      WEIR_RETURN_IF_ERROR(Spend(1 + std::ssize(out->required) / 8));
      if (std::find(out->required.begin(), out->required.end(), key) == out->required.end())
        out->required.push_back(key);
    }
  }
  return Status();
}

Result<Merged> SchemaReader::Merge(const Goal& goal) {
  Merged out;
  if (!goal.empty()) out.at = IdOf(goal.front());
  unsigned about = 0;
  for (const int32_t element : goal) {
    WEIR_RETURN_IF_ERROR(Spend(8 + static_cast<int64_t>(At(IdOf(element)).size())));
    if (PartOf(element) != Part::kOwn && PartOf(element) != Part::kOwnNoValues) continue;
    WEIR_RETURN_IF_ERROR(MergeOne(IdOf(element), PartOf(element) == Part::kOwn, &out, &about));
    for (const auto* texts : {&out.patterns, &out.formats}) {
      if (!texts->empty()) WEIR_RETURN_IF_ERROR(Spend(std::ssize(texts->back().second) / kBytesPerStep));
    }
  }
  if (out.values) {
    out.types_given = true;
  } else if (!out.types_given && about != 0) {
    out.types = about;
  }
  return out;
}

Result<const CharDfa*> SchemaReader::DfaOfPattern(int32_t id, const std::string& pattern) {
  const auto it = patterns_.find(pattern);
  if (it != patterns_.end()) return &it->second;
  WEIR_RETURN_IF_ERROR(Spend(100 + std::ssize(pattern) / 8));
  const auto expression = ParseRegex(pattern);
  if (!expression.ok()) return Bad(id, "pattern", "cannot be held: " + expression.status().message());
  auto dfa = DfaOf(*expression, /*search=*/true, &work_.automata);
  if (!dfa.ok()) return Bad(id, "pattern", "cannot be held: " + dfa.status().message());
  WEIR_RETURN_IF_ERROR(SpendOnDfa(kKeptCell * dfa->n_cells()));
  return &patterns_.emplace(pattern, *std::move(dfa)).first->second;
}

Result<const CharDfa*> SchemaReader::DfaOfFormat(int32_t id, const std::string& format) {
  const auto it = formats_.find(format);
  if (it != formats_.end()) return &it->second;
  WEIR_RETURN_IF_ERROR(Spend(100));
  WEIR_ASSIGN_OR_RETURN(const Expression expression, ParseRegex(FindFormat(format).expression));
  auto dfa = DfaOf(expression, /*search=*/false, &work_.automata);
  if (!dfa.ok()) return Bad(id, "format", "cannot be held: " + dfa.status().message());
  WEIR_RETURN_IF_ERROR(SpendOnDfa(kKeptCell * dfa->n_cells()));
  return &formats_.emplace(format, *std::move(dfa)).first->second;
}

Result<bool> SchemaReader::Accepts(const Merged& merged, const Json& value) {
  WEIR_RETURN_IF_ERROR(Spend());
  const unsigned type = TypeOf(value);
  if ((type & (merged.types_given ? merged.types : kAllTypes)) == 0) return false;
  if (type == kNumber) {
    const NumberLimits& limits = merged.number;
    if (limits.integer && !IsInteger(value)) return false;
    const auto decimal = DecimalOf(value);
    if (!decimal) return !limits.low && !limits.high && limits.multiple == 1;
    if (limits.low) {
      const int order = Compare(*decimal, limits.low->value);
      if (order < 0 || (order == 0 && limits.low->open)) return false;
    }
    if (limits.high) {
      const int order = Compare(*decimal, limits.high->value);
      if (order > 0 || (order == 0 && limits.high->open)) return false;
    }
    return limits.multiple == 1 || std::fmod(value.get<double>(), static_cast<double>(limits.multiple)) == 0;
  }
  if (type == kString) {
    const auto& text = value.get_ref<const std::string&>();
    const auto n_texts = std::ssize(merged.patterns) + std::ssize(merged.formats);
    WEIR_RETURN_IF_ERROR(Spend((1 + n_texts) * (std::ssize(text) / kBytesPerStep)));
    const int64_t n = NumChars(text);
    if (n < merged.min_length || (merged.max_length >= 0 && n > merged.max_length)) return false;
    for (const auto& [id, pattern] : merged.patterns) {
      WEIR_ASSIGN_OR_RETURN(const CharDfa* dfa, DfaOfPattern(id, pattern));
      if (!Reads(*dfa, text)) return false;
    }
    for (const auto& [id, format] : merged.formats) {
      WEIR_ASSIGN_OR_RETURN(const CharDfa* dfa, DfaOfFormat(id, format));
      if (!Reads(*dfa, text)) return false;
    }
  }
  return true;
}

Result<bool> SchemaReader::Disjoint(const Goal& a, const Goal& b, int depth) {
  WEIR_RETURN_IF_ERROR(Spend(20));
  WEIR_ASSIGN_OR_RETURN(const auto flat_a, Flatten(a));
  WEIR_ASSIGN_OR_RETURN(const auto flat_b, Flatten(b));
  if (!flat_a || !flat_b) return true;
  WEIR_ASSIGN_OR_RETURN(const Merged x, Merge(*flat_a));
  WEIR_ASSIGN_OR_RETURN(const Merged y, Merge(*flat_b));
  // The types that a schema really allows, not only those that are written.
  const auto types = [](const Merged& m) {
    unsigned out = m.types_given ? m.types : kAllTypes;
    if (m.values) {
      unsigned of_values = 0;
      for (const Json* value : *m.values) of_values |= TypeOf(*value);
      out &= of_values;
    }
    return out;
  };
  const unsigned both = types(x) & types(y);
  if (both == 0) return true;
  for (const auto& [one, other] : {std::pair(&x, &y), std::pair(&y, &x)}) {
    if (!one->values) continue;
    bool excluded = true;
    for (const Json* value : *one->values) {
      bool among = true;
      if (other->values) {
        WEIR_ASSIGN_OR_RETURN(among, IsAmong(*other->values, *value));
      }
      WEIR_ASSIGN_OR_RETURN(const bool accepted, Accepts(*other, *value));
      excluded &= !(among && accepted);
    }
    if (excluded) return true;
  }
  if (both == kNumber) {
    for (const auto& [low, high] :
         {std::pair(&x.number.low, &y.number.high), std::pair(&y.number.low, &x.number.high)}) {
      if (!*low || !*high) continue;
      const int order = Compare((*low)->value, (*high)->value);
      if (order > 0 || (order == 0 && ((*low)->open || (*high)->open))) return true;
    }
  }
  if (both != kObject || depth >= 4) return false;
  std::vector<std::string> keys = x.required;
  keys.insert(keys.end(), y.required.begin(), y.required.end());
  for (const std::string& key : keys) {
    WEIR_ASSIGN_OR_RETURN(const Goal of_a, GoalOfKey(*flat_a, key));
    WEIR_ASSIGN_OR_RETURN(const Goal of_b, GoalOfKey(*flat_b, key));
    WEIR_ASSIGN_OR_RETURN(const bool excluded, Disjoint(of_a, of_b, depth + 1));
    if (excluded) return true;
  }
  return false;
}

Result<bool> SchemaReader::HasTag(const std::vector<Goal>& goals) {
  std::vector<Goal> flat;
  std::vector<std::string> keys;  // that all of them require
  for (const Goal& goal : goals) {
    WEIR_ASSIGN_OR_RETURN(auto one, Flatten(goal));
    if (!one) continue;  // it allows nothing
    WEIR_ASSIGN_OR_RETURN(Merged merged, Merge(*one));
    if (!merged.types_given || merged.types != kObject || merged.values) return false;
    std::sort(merged.required.begin(), merged.required.end());
    std::vector<std::string> both;
    std::set_intersection(keys.begin(), keys.end(), merged.required.begin(), merged.required.end(),
                          std::back_inserter(both));
    keys = flat.empty() ? std::move(merged.required) : std::move(both);
    flat.push_back(*std::move(one));
  }
  for (const std::string& key : keys) {
    std::set<std::string, std::less<>> seen;
    bool tags = true;
    for (size_t i = 0; i < flat.size() && tags; ++i) {
      WEIR_ASSIGN_OR_RETURN(const Goal of_key, GoalOfKey(flat[i], key));
      WEIR_ASSIGN_OR_RETURN(const auto value, Flatten(of_key));
      if (!value) continue;
      WEIR_ASSIGN_OR_RETURN(const Merged merged, Merge(*value));
      tags = merged.values.has_value();
      for (size_t k = 0; tags && k < merged.values->size(); ++k) {
        const Json& text = *(*merged.values)[k];
        WEIR_RETURN_IF_ERROR(Spend(Weight(text)));
        tags = text.is_string() && seen.insert(text.get_ref<const std::string&>()).second;
      }
    }
    if (tags) return true;
  }
  return false;
}

Status SchemaReader::CheckOneOf(const Goal& goal, int32_t element) {
  const std::vector<int32_t> choices = ChoicesOf(element);
  Goal base;
  for (const int32_t e : goal) {
    if (PartOf(e) == Part::kOwn) base.push_back(e);
  }
  // Pairs of very many would take too long.
  std::vector<Goal> goals;
  for (const int32_t choice : choices) {
    goals.push_back(base);
    goals.back().push_back(choice);
  }
  WEIR_ASSIGN_OR_RETURN(const bool tagged, HasTag(goals));
  if (tagged) return Status();
  for (size_t i = 0; i < choices.size(); ++i) {
    for (size_t j = i + 1; j < choices.size(); ++j) {
      WEIR_ASSIGN_OR_RETURN(const bool disjoint, Disjoint(goals[i], goals[j], 0));
      if (!disjoint) {
        return Bad(
            IdOf(element), "oneOf",
            fmt::format("cannot be held: a value may satisfy both {} and {}; write anyOf, or make them differ in "
                        "their type or in the const of a required property",
                        i, j));
      }
    }
  }
  return Status();
}

std::vector<std::string> SchemaReader::KeysOf(const Goal& goal, const Merged& merged) {
  std::vector<std::string> out;
  std::set<std::string, std::less<>> seen;
  for (const int32_t element : goal) {
    const Json& schema = At(IdOf(element));
    const auto it = schema.find("properties");
    if (it == schema.end()) continue;
    for (const auto& [key, value] : it->items()) {
      if (seen.insert(key).second) out.push_back(key);
    }
  }
  for (const std::string& key : merged.required) {
    if (seen.insert(key).second) out.push_back(key);
  }
  return out;
}

std::vector<std::string> SchemaReader::PatternsOf(const Goal& goal) {
  std::set<std::string> out;
  for (const int32_t element : goal) {
    const Json& schema = At(IdOf(element));
    const auto it = schema.find("patternProperties");
    if (it == schema.end()) continue;
    for (const auto& [pattern, value] : it->items()) out.insert(pattern);
  }
  return {out.begin(), out.end()};
}

Result<Goal> SchemaReader::GoalOfKey(const Goal& goal, const std::string& key) {
  Goal out;
  for (const int32_t element : goal) {
    WEIR_RETURN_IF_ERROR(Spend());
    const int32_t id = IdOf(element);
    const Json& schema = At(id);
    bool is_named = false;
    if (const auto it = schema.find("properties"); it != schema.end()) {
      WEIR_RETURN_IF_ERROR(Spend(static_cast<int64_t>(it->size()) / kKeysPerStep));
      if (const auto named = it->find(key); named != it->end()) {
        is_named = true;
        out.push_back(Element(Locate(id, *named, "properties", key), Part::kAll));
      }
    }
    if (const auto it = schema.find("patternProperties"); it != schema.end()) {
      for (const auto& [pattern, value] : it->items()) {
        WEIR_ASSIGN_OR_RETURN(const CharDfa* dfa, DfaOfPattern(id, pattern));
        WEIR_RETURN_IF_ERROR(Spend(1 + std::ssize(key) / kBytesPerStep));
        if (!Reads(*dfa, key)) continue;
        is_named = true;
        out.push_back(Element(Locate(id, value, "patternProperties", pattern), Part::kAll));
      }
    }
    if (!is_named && schema.contains("additionalProperties")) {
      const Goal rest = Sub(id, "additionalProperties");
      out.insert(out.end(), rest.begin(), rest.end());
    }
  }
  return out;
}

Goal SchemaReader::GoalOfPatterns(const Goal& goal, const std::set<std::string>& patterns) {
  Goal out;
  for (const int32_t element : goal) {
    const int32_t id = IdOf(element);
    const Json& schema = At(id);
    bool is_named = false;
    if (const auto it = schema.find("patternProperties"); it != schema.end()) {
      for (const auto& [pattern, value] : it->items()) {
        if (patterns.count(pattern) == 0) continue;
        is_named = true;
        out.push_back(Element(Locate(id, value, "patternProperties", pattern), Part::kAll));
      }
    }
    if (!is_named && schema.contains("additionalProperties")) {
      const Goal rest = Sub(id, "additionalProperties");
      out.insert(out.end(), rest.begin(), rest.end());
    }
  }
  return out;
}

bool SchemaReader::IsOpen(const Goal& goal) const {
  bool named = false;
  for (const int32_t element : goal) {
    const Json& schema = At(IdOf(element));
    if (schema.contains("additionalProperties")) return true;  // which says what they have to be
    named |= schema.contains("properties") || schema.contains("patternProperties");
  }
  return !named;
}

Goal SchemaReader::GoalOfNames(const Goal& goal) {
  Goal out;
  for (const int32_t element : goal) {
    if (!At(IdOf(element)).contains("propertyNames")) continue;
    const Goal names = Sub(IdOf(element), "propertyNames");
    out.insert(out.end(), names.begin(), names.end());
  }
  return out;
}

size_t SchemaReader::NumPrefixItems(const Goal& goal) const {
  size_t n = 0;
  for (const int32_t element : goal) {
    const Json& schema = At(IdOf(element));
    for (const char* keyword : {"prefixItems", "items"}) {
      const auto it = schema.find(keyword);
      if (it != schema.end() && it->is_array()) n = std::max(n, it->size());
    }
  }
  return n;
}

Goal SchemaReader::GoalOfItem(const Goal& goal, size_t i) {
  Goal out;
  for (const int32_t element : goal) {
    const int32_t id = IdOf(element);
    const Json& schema = At(id);
    const auto items = schema.find("items");
    // Before draft 2020-12 a list under `items` was what prefixItems is now, and additionalItems what follows.
    const bool old = items != schema.end() && items->is_array();
    const char* prefix = old ? "items" : "prefixItems";
    const char* rest = old ? "additionalItems" : "items";
    const auto first = schema.find(prefix);
    if (first != schema.end() && i < first->size()) {
      out.push_back(Element(Locate(id, (*first)[i], prefix, i), Part::kAll));
    } else if (schema.contains(rest)) {
      const Goal sub = Sub(id, rest);
      out.insert(out.end(), sub.begin(), sub.end());
    }
  }
  return out;
}

}  // namespace weir::forms
