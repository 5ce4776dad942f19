// SPDX-License-Identifier: Apache-2.0
#include "text/dialects/call_writer.h"

#include <algorithm>
#include <initializer_list>
#include <utility>

namespace weir {
namespace {

using Part = FormBuilder::Part;

constexpr int kMaxValueDepth = 8;  // of a notation; what is deeper is JSON
constexpr std::string_view kAnyKey = "[A-Za-z_][A-Za-z0-9_]{0,63}";

// Keywords that say nothing about a value.
constexpr std::string_view kAnnotations[] = {"type",     "description", "title",      "default",  "examples", "example",
                                             "readOnly", "writeOnly",   "deprecated", "$comment", "$schema"};

bool HasOnly(const Json& schema, std::initializer_list<std::string_view> keywords) {
  for (const auto& member : schema.items()) {
    const std::string& key = member.key();
    const auto is = [&](std::string_view keyword) { return keyword == key; };
    if (std::none_of(std::begin(kAnnotations), std::end(kAnnotations), is) &&
        std::none_of(keywords.begin(), keywords.end(), is)) {
      return false;
    }
  }
  return true;
}

// Its members are these, and no others.
bool HasKnownMembers(const Json& schema) {
  const auto properties = schema.find("properties");
  return properties != schema.end() && properties->is_object() &&
         HasOnly(schema, {"properties", "required", "additionalProperties"});
}

bool IsBareKey(const std::string& key) {
  return !key.empty() && key.size() <= 128 && (key[0] < '0' || key[0] > '9') && key[0] != '-' &&
         std::all_of(key.begin(), key.end(), [](char c) {
           return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '_' || c == '-' ||
                  c == '.';
         });
}

}  // namespace

Part CallWriter::Space() {
  if (space_ < 0) space_ = *builder_.Regex("( |\\n{1,2}[ \\t]{0,20})?");
  return space_;
}

std::vector<std::string> CallWriter::Spellings(std::string_view marker) const {
  std::string spelled;
  for (size_t at = 0; at < marker.size();) {
    size_t n = marker.size() - at;
    int32_t id = -1;
    while (n > 0 && (id = builder_.vocab().FindControl(marker.substr(at, n))) < 0) --n;
    spelled += id >= 0 ? forms::SpellToken(id) : std::string(1, marker[at]);
    at += std::max<size_t>(n, 1);
  }
  std::vector<std::string> out = {std::string(marker)};
  if (spelled != marker) out.insert(out.begin(), std::move(spelled));
  return out;
}

Part CallWriter::Marker(std::string_view marker) {
  std::vector<Part> parts;
  for (const std::string& text : Spellings(marker)) parts.push_back(Text(text));
  return OneOf(parts);
}

Result<Part> CallWriter::UpTo(std::string_view marker) {
  std::vector<FormBuilder::Trigger> ends;
  for (std::string& text : Spellings(marker)) ends.push_back({std::move(text), Sequence({})});
  return builder_.Until(ends);
}

Part CallWriter::Several(Part one, Part between) {
  if (!several_) return one;
  return Sequence({one, builder_.Repeated(Sequence({between, one}), 0, forms::kNoMax)});
}

Part CallWriter::List(Part one) {
  return Sequence({Text("["), Space(), Several(one, Sequence({Space(), Text(","), Space()})), Space(), Text("]")});
}

// ---- Calls as objects.

Result<Part> CallWriter::Schema(std::string text) {
  if (const auto it = schemas_.find(text); it != schemas_.end()) return it->second;
  WEIR_ASSIGN_OR_RETURN(const Part part, builder_.JsonSchema(text));
  schemas_.emplace(std::move(text), part);
  return part;
}

Result<Part> CallWriter::Arguments(const Tool& tool) { return Schema(JsonText(tool.parameters)); }

Result<Part> CallWriter::ObjectRest(const Tool& tool, const Keys& keys) {
  WEIR_ASSIGN_OR_RETURN(const Part arguments, Arguments(tool));
  std::vector<Part> names;
  for (const std::string_view key : keys.arguments) names.push_back(Text("\"" + std::string(key) + "\":"));
  return Sequence({Space(), Text(","), Space(), OneOf(names), Space(), arguments, Space(), Text("}")});
}

Result<Part> CallWriter::Object(const Tool& tool, const Keys& keys) {
  WEIR_ASSIGN_OR_RETURN(const Part rest, ObjectRest(tool, keys));
  std::vector<Part> parts = {Text("{"), Space()};
  if (!keys.id.empty()) {
    WEIR_ASSIGN_OR_RETURN(const Part id, builder_.Regex("[A-Za-z0-9_-]{1,32}"));
    for (const Part part : {Text("\"" + std::string(keys.id) + "\":"), Space(), Text("\""), id, Text("\","), Space()}) {
      parts.push_back(part);
    }
  }
  for (const Part part : {Text("\"" + std::string(keys.name) + "\":"), Space(), Text("\"" + tool.name + "\""), rest}) {
    parts.push_back(part);
  }
  return Sequence(parts);
}

Result<Part> CallWriter::Objects(const Keys& keys) {
  return EachTool([&](const Tool& tool) { return Object(tool, keys); });
}

Result<Part> CallWriter::EachTool(const std::function<Result<Part>(const Tool&)>& write) {
  std::vector<Part> parts;
  for (const Tool& tool : tools_) {
    WEIR_ASSIGN_OR_RETURN(const Part part, write(tool));
    parts.push_back(part);
  }
  return builder_.OneOf(parts);
}

Status CallWriter::AddBare(const Keys& keys, std::string_view between, CallParts* out) {
  WEIR_ASSIGN_OR_RETURN(const Part object, Objects(keys));
  const Part comma = Sequence({Space(), Text(","), Space()});
  std::vector<Part> more, in_list = {Sequence({Space(), Text("]")})};
  if (several_) {
    more.push_back(builder_.Repeated(Sequence({Text(between), Space(), object}), 0, forms::kNoMax));
    in_list.insert(in_list.begin(), builder_.Repeated(Sequence({comma, object}), 0, forms::kNoMax));
  }
  for (const Tool& tool : tools_) {
    WEIR_ASSIGN_OR_RETURN(const Part rest, ObjectRest(tool, keys));
    for (const bool typed : {false, true}) {
      const std::string start = std::string(typed ? R"({ "type" : "function" , )" : "{ ") + "\"" +
                                std::string(keys.name) + "\" : \"" + tool.name + "\"";
      std::vector<Part> alone = {rest}, first = {rest};
      alone.insert(alone.end(), more.begin(), more.end());
      first.insert(first.end(), in_list.begin(), in_list.end());
      out->starts.push_back({start, Sequence(alone), true, true});
      out->starts.push_back({"[ " + start, Sequence(first), true, true});
    }
  }
  return Status();
}

CallParts CallWriter::Between(std::span<const std::string_view> opens, Part rest, Blocks blocks) {
  CallParts out;
  for (const std::string_view open : opens) {
    for (std::string& text : Spellings(open)) out.starts.push_back({std::move(text), rest, false, blocks.last});
  }
  out.calls = Sequence({Marker(opens[0]), rest});
  if (blocks.many) out.calls = Several(out.calls, Space());
  return out;
}

CallParts CallWriter::Bracketed(std::string_view begin, std::string_view open, Part rest, std::string_view end) {
  const Part call = Sequence({Marker(open), rest}), gap = Space();
  CallParts out = Between({&begin, 1}, Sequence({gap, Several(call, gap), gap, Marker(end)}), {.many = false});
  for (std::string& text : Spellings(open)) out.starts.push_back({std::move(text), rest});
  return out;
}

// ---- Arguments in a notation that is not JSON.

Part CallWriter::Members(const std::vector<Member>& members, Part between) {
  // What may follow once a member was written, and where none was, from the last member to the first.
  Part after = Sequence({}), before = after;
  for (auto it = members.rbegin(); it != members.rend(); ++it) {
    std::vector<Part> more = {Sequence({between, it->part, after})}, first = {Sequence({it->part, after})};
    if (!it->required) {
      more.push_back(after);
      first.push_back(before);
    }
    after = OneOf(more);
    before = OneOf(first);
  }
  return before;
}

Result<Part> CallWriter::MembersOf(const Tool& tool, const Json& object,
                                   const std::function<bool(const std::string&)>& writes,
                                   const std::function<Result<Part>(const std::string&, const Json&)>& write,
                                   const std::function<Result<Part>()>& any, Part between) {
  Json properties = object.value("properties", Json::object());
  std::vector<std::string> required;
  if (const auto it = object.find("required"); it != object.end() && it->is_array()) {
    for (const Json& key : *it) {
      if (!key.is_string()) continue;
      required.push_back(key.get<std::string>());
      if (!properties.contains(required.back())) properties[required.back()] = Json::object();
    }
  }
  const Json others = object.value("additionalProperties", Json(!object.contains("properties")));
  if (properties.empty() && others != false) {
    WEIR_ASSIGN_OR_RETURN(const Part one, any());
    return Maybe(Sequence({one, builder_.Repeated(Sequence({between, one}), 0, forms::kNoMax)}));
  }
  std::vector<Member> members;
  for (const auto& [key, schema] : properties.items()) {
    const bool must = std::find(required.begin(), required.end(), key) != required.end();
    if (!writes(key)) {
      if (!must) continue;
      return InvalidArgument("this model cannot write the name of the parameter '{}' of '{}'", key, tool.name);
    }
    WEIR_ASSIGN_OR_RETURN(const Part part, write(key, schema));
    members.push_back({part, must});
  }
  return Members(members, between);
}

Result<Part> CallWriter::JsonValue(const Tool& tool, const Json& schema) {
  if (schema == true) return Schema("{}");
  Json whole = schema;
  if (schema.is_object()) {  // what it refers to is beside the tool's parameters
    for (const char* key : {"$defs", "definitions"}) {
      if (tool.parameters.contains(key) && !whole.contains(key)) whole[key] = tool.parameters[key];
    }
  }
  return Schema(JsonText(whole));
}

Result<Part> CallWriter::NotedMembers(const Tool& tool, const Json& object, const Notation& notation, int depth) {
  const auto text = [&](const std::string& key) {
    return notation.bare_keys && IsBareKey(key) ? key : JsonText(Json(key));
  };
  return MembersOf(
      tool, object, [&](const std::string& key) { return depth > 0 || IsBareKey(key); },
      [&](const std::string& key, const Json& schema) -> Result<Part> {
        WEIR_ASSIGN_OR_RETURN(const Part value, Value(tool, schema, notation, depth + 1));
        const std::string end(depth > 0 ? ":" : notation.key_end);
        return Sequence({Text((depth > 0 ? text(key) : key) + end), Space(), value});
      },
      [&]() -> Result<Part> {
        WEIR_ASSIGN_OR_RETURN(const Part key, builder_.Regex(kAnyKey));
        WEIR_ASSIGN_OR_RETURN(const Part value, Schema("{}"));
        return Sequence({key, Text(notation.key_end), Space(), value});
      },
      Sequence({Text(","), Space()}));
}

Result<Part> CallWriter::NotedArguments(const Tool& tool, const Notation& notation) {
  const Json& schema = tool.parameters;
  if (!HasOnly(schema, {"properties", "required", "additionalProperties", "$defs", "definitions", "$id"})) {
    return InvalidArgument("this model's notation holds arguments only to their own schemas, not to one of them all");
  }
  return NotedMembers(tool, schema, notation, 0);
}

Result<Part> CallWriter::Value(const Tool& tool, const Json& schema, const Notation& notation, int depth) {
  if (!schema.is_object() || depth > kMaxValueDepth) return JsonValue(tool, schema);
  if (const auto choices = schema.find("anyOf"); choices != schema.end() && choices->is_array() && !choices->empty() &&
                                                 !schema.contains("type") && HasOnly(schema, {"anyOf"})) {
    std::vector<Part> parts;
    for (const Json& choice : *choices) {
      WEIR_ASSIGN_OR_RETURN(const Part part, Value(tool, choice, notation, depth + 1));
      parts.push_back(part);
    }
    return OneOf(parts);
  }
  const Json type = schema.value("type", Json());
  if (type == "boolean" && HasOnly(schema, {})) return OneOf({Text(notation.yes), Text(notation.no)});
  if (type == "null" && HasOnly(schema, {})) return Text(notation.none);
  if (type == "string" && !notation.quote.empty()) {
    const Part open = Marker(notation.quote);
    if (HasOnly(schema, {})) {
      WEIR_ASSIGN_OR_RETURN(const Part rest, UpTo(notation.quote));
      return Sequence({open, rest});
    }
    if (HasOnly(schema, {"enum"}) && schema["enum"].is_array()) {
      std::vector<Part> values;
      for (const Json& value : schema["enum"]) {
        if (!value.is_string() || value.get_ref<const std::string&>().find(notation.quote) != std::string::npos)
          continue;
        values.push_back(Text(value.get_ref<const std::string&>()));
      }
      if (!values.empty()) return Sequence({open, OneOf(values), Marker(notation.quote)});
    }
  }
  if (type == "array" && HasOnly(schema, {"items"}) && schema.contains("items")) {
    WEIR_ASSIGN_OR_RETURN(const Part item, Value(tool, schema["items"], notation, depth + 1));
    const Part more = builder_.Repeated(Sequence({Text(","), Space(), item}), 0, forms::kNoMax);
    return Sequence({Text("["), Maybe(Sequence({item, more})), Text("]")});
  }
  if (type == "object" && HasKnownMembers(schema) && !schema["properties"].empty()) {
    WEIR_ASSIGN_OR_RETURN(const Part members, NotedMembers(tool, schema, notation, depth + 1));
    return Sequence({Text("{"), members, Text("}")});
  }
  return JsonValue(tool, schema);
}

}  // namespace weir
