// SPDX-License-Identifier: Apache-2.0
#include "serve/form_request.h"

#include <string>
#include <utility>

namespace weir {
namespace {

using Kind = FormSpec::Kind;

constexpr size_t kMaxChoices = 10'000;

// A schema is sent as an object, or as its text.
void GetSchema(Fields& fields, const char* key, FormSpec* out) {
  const Json* value = fields.Get(key);
  if (value == nullptr) return fields.Fail(key, "is missing");
  if (!value->is_object() && !value->is_string()) return fields.Fail(key, "must be a JSON schema");
  out->kind = Kind::kJsonSchema;
  out->text = value->is_string() ? value->get<std::string>() : JsonText(*value);
}

void GetText(Fields& fields, const char* key, Kind kind, FormSpec* out) {
  out->kind = kind;
  fields.Get(key, &out->text);
}

void GetChoices(Fields& fields, const char* key, FormSpec* out) {
  const Json* value = fields.Get(key);
  out->kind = Kind::kChoices;
  bool fine = value->is_array() && value->size() <= kMaxChoices;
  for (const Json& choice : *value) {
    fine = fine && choice.is_string();
    if (fine) out->choices.push_back(choice.get<std::string>());
  }
  if (!fine) fields.Fail(key, "must be a list of strings");
}

// {"type": "text"}, {"type": "json_object", "schema": ...} or {"type": "json_schema", "json_schema": {"schema": ...}}
std::optional<FormSpec> GetResponseFormat(Fields& fields) {
  const Json* value = fields.Get("response_format");
  if (value == nullptr) return std::nullopt;
  Fields format(*value, "response_format.");
  std::string type;
  format.Get("type", &type);
  std::optional<FormSpec> out;
  if (type == "json_object") {
    out.emplace();
    out->text = R"({"type":"object"})";
    if (format.Has("schema")) GetSchema(format, "schema", &*out);
  } else if (type == "json_schema") {
    out.emplace();
    if (const Json* named = format.Get("json_schema"); named != nullptr) {
      Fields inner(*named, "response_format.json_schema.");
      for (const char* key : {"name", "description", "strict"}) inner.Ignore(key);
      GetSchema(inner, "schema", &*out);
      format.Take(inner.Done());
    } else {
      GetSchema(format, "schema", &*out);  // as llama-server takes it
    }
  } else if (type == "grammar" || type == "regex") {  // vLLM's and others' extensions
    out.emplace();
    GetText(format, type.c_str(), type == "regex" ? Kind::kRegex : Kind::kGrammar, &*out);
  } else if (type != "text") {
    format.Fail("type", "must be \"text\", \"json_object\", \"json_schema\", \"grammar\" or \"regex\"");
  }
  fields.Take(format.Done());
  return out;
}

}  // namespace

std::optional<FormSpec> GetForm(Fields& fields) {
  std::optional<FormSpec> out = GetResponseFormat(fields);
  std::string from = "response_format";
  const auto add = [&](Fields& where, const char* key, auto&& read) {
    if (!where.Has(key)) {
      where.Ignore(key);
      return;
    }
    FormSpec spec;
    read(&spec);
    const bool same = out && out->kind == spec.kind && out->text == spec.text && out->choices == spec.choices;
    if (spec.kind != Kind::kChoices && spec.text.empty()) return;  // llama.cpp's clients send an empty grammar
    if (out && !same) return fields.Fail(key, "cannot be given together with '" + from + "'");
    out = std::move(spec);
    from = key;
  };
  const auto add_all = [&](Fields& where, const char* schema, const char* grammar, const char* regex,
                           const char* choices) {
    add(where, schema, [&](FormSpec* spec) { GetSchema(where, schema, spec); });
    add(where, grammar, [&](FormSpec* spec) { GetText(where, grammar, Kind::kGrammar, spec); });
    add(where, regex, [&](FormSpec* spec) { GetText(where, regex, Kind::kRegex, spec); });
    add(where, choices, [&](FormSpec* spec) { GetChoices(where, choices, spec); });
  };
  add_all(fields, "json_schema", "grammar", "regex", "choices");
  add_all(fields, "guided_json", "guided_grammar", "guided_regex", "guided_choice");
  if (const Json* value = fields.Get("structured_outputs"); value != nullptr) {
    Fields inner(*value, "structured_outputs.");
    add_all(inner, "json", "grammar", "regex", "choice");
    fields.Take(inner.Done());
  }
  return out;
}

}  // namespace weir
