// SPDX-License-Identifier: Apache-2.0
// Writes the calls that tagged_reader.h reads.
#include <string>
#include <utility>

#include "text/dialects/tagged_reader.h"
#include "text/tool_table.h"

namespace weir {
namespace {

using Part = FormBuilder::Part;

// A name that markers stand around.
bool IsTagKey(const std::string& key) {
  return !key.empty() && key.size() <= 256 && key.find_first_of("<>\"\n\r\t") == std::string::npos &&
         key.front() != ' ' && key.back() != ' ';
}

// Keywords that narrow a text.
bool IsPlainText(const Json& schema) {
  for (const char* keyword :
       {"pattern", "format", "minLength", "maxLength", "const", "anyOf", "allOf", "oneOf", "$ref"}) {
    if (schema.contains(keyword)) return false;
  }
  return true;
}

class TagWriter {
 public:
  TagWriter(const TaggedForm& form, CallWriter& writer) : form_(form), writer_(writer) {}

  // From the tool's name to the end of the call.
  Result<Part> Call(const CallWriter::Tool& tool, Part end) {
    const Json& schema = tool.parameters;
    for (const char* keyword :
         {"anyOf", "oneOf", "allOf", "$ref", "patternProperties", "minProperties", "maxProperties", "if", "not",
          "dependentRequired", "dependentSchemas", "propertyNames", "enum", "const"}) {
      if (schema.contains(keyword)) {
        return InvalidArgument("'{}' of the schema at '#' cannot be held where each argument has a tag of its own",
                               keyword);
      }
    }
    WEIR_ASSIGN_OR_RETURN(const Part arguments,
                          writer_.MembersOf(
                              tool, schema, IsTagKey,
                              [&](const std::string& key, const Json& of_key) { return Argument(tool, key, of_key); },
                              [&]() -> Result<Part> {
                                WEIR_ASSIGN_OR_RETURN(const Part name,
                                                      writer_.builder().Regex("[A-Za-z_][A-Za-z0-9_]{0,63}"));
                                WEIR_ASSIGN_OR_RETURN(const Part value, Raw());
                                return Tag(name, {{true, value}});
                              },
                              writer_.Space()));
    const Part name = writer_.Text(tool.name + (form_.call.ends_with('"') ? "\"" : ""));
    const Part gap = writer_.Space();
    const bool line = form_.name_end == "\n";  // a tag may follow at once, too
    return writer_.Sequence({name, line ? gap : writer_.Marker(form_.name_end), gap, arguments, gap, end});
  }

 private:
  struct Written {
    bool is_text;
    Part value;
  };

  // The markers around a name and its value, written in one of these ways. Values end with their marker.
  Part Tag(Part name, const std::vector<Written>& ways) {
    const std::string quote = form_.parameter.ends_with('"') ? "\"" : "";
    std::vector<Part> parts;
    for (const Written& way : ways) {
      std::vector<Part> one = {writer_.Text(quote + (!form_.says_text ? ""
                                                     : way.is_text    ? " string=\"true\""
                                                                      : " string=\"false\""))};
      one.push_back(writer_.Marker(form_.key_end));
      if (!form_.value.empty()) {
        one.push_back(writer_.Space());
        one.push_back(writer_.Marker(form_.value));
      }
      one.push_back(way.value);
      parts.push_back(writer_.Sequence(one));
    }
    return writer_.Sequence({writer_.Marker(form_.parameter), name, writer_.OneOf(parts)});
  }

  // Any text, and the marker behind it. A line's end before the marker belongs to it.
  Result<Part> Raw() {
    WEIR_ASSIGN_OR_RETURN(const Part text, writer_.UpTo(form_.value_end));
    return form_.lines ? writer_.Sequence({writer_.Text("\n"), text}) : text;
  }

  Part Whole(Part value) {
    if (!form_.lines) return writer_.Sequence({value, writer_.Marker(form_.value_end)});
    return writer_.Sequence({writer_.Text("\n"), value, writer_.Text("\n"), writer_.Marker(form_.value_end)});
  }

  Result<Part> Argument(const CallWriter::Tool& tool, const std::string& key, const Json& schema) {
    const Part name = writer_.Text(key);
    const ParameterTakes takes = TakesOf(schema);
    std::vector<Written> ways;
    if (takes == ParameterTakes::kText && schema.contains("enum")) {
      std::vector<Part> values;
      for (const Json& value : schema["enum"]) {
        const bool fits = value.is_string() && value.get_ref<const std::string&>().find('<') == std::string::npos;
        if (fits) values.push_back(writer_.Text(value.get_ref<const std::string&>()));
      }
      if (values.empty()) return InvalidArgument("'enum' of the parameter '{}' has no value that can be written", key);
      ways.push_back({true, Whole(writer_.OneOf(values))});
    } else if (takes == ParameterTakes::kText || takes == ParameterTakes::kTextOrNull) {
      if (tool.strict &&
          (!IsPlainText(schema) && !(takes == ParameterTakes::kTextOrNull && schema.contains("anyOf")))) {
        return InvalidArgument("the parameter '{}' is narrower than any text, and its tag has no quotes to hold it by",
                               key);
      }
      WEIR_ASSIGN_OR_RETURN(const Part raw, Raw());
      ways.push_back({true, raw});
      if (form_.says_text && takes == ParameterTakes::kTextOrNull) ways.push_back({false, Whole(writer_.Text("null"))});
    } else if (schema == true || schema.empty()) {
      WEIR_ASSIGN_OR_RETURN(const Part raw, Raw());
      ways.push_back({true, raw});
    } else {
      WEIR_ASSIGN_OR_RETURN(const Part value, writer_.JsonValue(tool, schema));
      ways.push_back({false, Whole(value)});
    }
    return Tag(name, ways);
  }

  const TaggedForm& form_;
  CallWriter& writer_;
};

}  // namespace

Result<CallParts> WriteTagged(const TaggedForm& form, CallWriter& writer) {
  TagWriter tags(form, writer);
  const Part gap = writer.Space(), close = form.closes.empty() ? -1 : writer.Marker(form.closes[0]);
  const Part end = form.close.empty() ? close : writer.Marker(form.close);
  WEIR_ASSIGN_OR_RETURN(const Part named,
                        writer.EachTool([&](const CallWriter::Tool& tool) { return tags.Call(tool, end); }));
  if (form.call.empty()) return writer.Between(form.opens, named, {});
  const Part call = writer.Sequence({writer.Marker(form.call), named});
  CallParts out;
  for (size_t i = 0; i < form.opens.size(); ++i) {
    const Part calls = form.shared ? writer.Several(call, gap) : call;
    const Part rest = writer.Sequence({gap, calls, gap, writer.Marker(form.closes[i])});
    CallParts one = writer.Between(form.opens.subspan(i, 1), rest, {.many = !form.shared});
    out.starts.insert(out.starts.end(), one.starts.begin(), one.starts.end());
    out.calls = out.calls < 0 ? one.calls : writer.OneOf({out.calls, one.calls});
  }
  // Models leave the marker around their calls out.
  for (std::string& text : writer.Spellings(form.call)) out.starts.push_back({std::move(text), named});
  return out;
}

}  // namespace weir
