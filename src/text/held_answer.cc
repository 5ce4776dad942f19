// SPDX-License-Identifier: Apache-2.0
#include "text/held_answer.h"

#include <algorithm>
#include <string_view>
#include <utility>
#include <vector>

#include "text/dialects/call_writer.h"

namespace weir {
namespace {

using Part = FormBuilder::Part;
using Tool = CallWriter::Tool;

// ---- Schemas that cannot be held as they are.

// Keywords that forms refuse, or refuse in places.
constexpr std::string_view kHard[] = {"uniqueItems",
                                      "contains",
                                      "minContains",
                                      "maxContains",
                                      "not",
                                      "if",
                                      "then",
                                      "else",
                                      "dependentSchemas",
                                      "dependentRequired",
                                      "dependencies",
                                      "propertyNames",
                                      "unevaluatedItems",
                                      "unevaluatedProperties",
                                      "$dynamicRef",
                                      "format",
                                      "pattern",
                                      "multipleOf",
                                      "minProperties",
                                      "maxProperties"};

// The schema without these keywords: it allows more.
Json Loosened(const Json& schema) {
  if (schema.is_array()) {
    Json out = Json::array();
    for (const Json& one : schema) out.push_back(Loosened(one));
    return out;
  }
  if (!schema.is_object()) return schema;
  Json out = Json::object();
  for (const auto& [key, value] : schema.items()) {
    if (std::find(std::begin(kHard), std::end(kHard), key) != std::end(kHard)) continue;
    if (key == "enum" || key == "const" || key == "default" || key == "examples" || key == "required") {
      out[key] = value;
    } else if (key == "properties" || key == "patternProperties" || key == "$defs" || key == "definitions") {
      out[key] = value;  // its keys are names
      if (!value.is_object()) continue;
      for (const auto& [name, of_name] : value.items()) out[key][name] = Loosened(of_name);
    } else {
      out[key == "oneOf" && !schema.contains("anyOf") ? "anyOf" : key] = Loosened(value);
    }
  }
  return out;
}

// How much of its schema a tool is held to.
enum class Level { kWhole, kLoosened, kAnyObject };

Tool ToolAt(const HeldAnswer& answer, const Json& function, Level level) {
  Tool out;
  out.name = function["name"].get<std::string>();
  out.strict = answer.strict.contains(out.name);
  if (out.strict) level = Level::kWhole;
  Json schema = function.value("parameters", Json::object());
  if (level == Level::kLoosened) schema = Loosened(schema);
  if (level == Level::kAnyObject) schema = Json::object();
  const Json type = schema.value("type", Json());
  // Arguments are an object, whatever else the schema allows.
  if (!out.strict || !type.is_string()) schema["type"] = "object";
  out.parameters = std::move(schema);
  return out;
}

Result<CallParts> Write(const HeldAnswer& answer, const AnswerForm& reading, std::vector<Tool> tools,
                        FormBuilder* builder) {
  CallWriter writer(std::move(tools), answer.parallel, builder);
  return reading.dialect().write(writer);
}

// Finds out how far each tool can be held, with work that is bounded for all of them together.
class Trials {
 public:
  Trials(const HeldAnswer& answer, const AnswerForm& reading, std::shared_ptr<const FormVocab> vocab,
         std::shared_ptr<FormRoom> room)
      : answer_(answer), reading_(reading), vocab_(std::move(vocab)), room_(std::move(room)) {
    if (room_ != nullptr) {
      limits_ = room_->limits();
      work_ = limits_.work;
    }
  }

  // Whether the tool alone can be held so.
  Status Try(const Tool& tool) {
    if (size_ > 2 * limits_.network) return InvalidArgument("the tools before it are too large");
    FormBuilder builder(vocab_, room_);
    builder.work() = work_;
    const auto parts = Write(answer_, reading_, {tool}, &builder);
    work_ = builder.work();
    size_ += builder.size();
    WEIR_RETURN_IF_ERROR(parts.status());
    return builder.Build(parts->calls).status();
  }

 private:
  const HeldAnswer& answer_;
  const AnswerForm& reading_;
  const std::shared_ptr<const FormVocab> vocab_;
  const std::shared_ptr<FormRoom> room_;
  forms::FormLimits limits_;
  forms::SchemaWork work_;
  int64_t size_ = 0;
};

// ---- The whole answer.

class AnswerBuilder {
 public:
  AnswerBuilder(const HeldAnswer& answer, const AnswerForm& reading, std::shared_ptr<const FormVocab> vocab,
                std::shared_ptr<FormRoom> room, std::vector<Tool> tools)
      : answer_(answer), reading_(reading), tools_(std::move(tools)), builder_(std::move(vocab), std::move(room)) {}

  Result<std::shared_ptr<const Form>> Build() {
    WEIR_ASSIGN_OR_RETURN(const Part inner, Inner());
    WEIR_ASSIGN_OR_RETURN(const Part root, WithThoughts(inner));
    return builder_.Build(root);
  }

 private:
  // Words of a form, or a call, and nothing before it.
  bool exact() const { return answer_.must || answer_.words.has_value(); }

  Result<Part> Inner() {
    if (tools_.empty()) return builder_.Of(*answer_.words);
    WEIR_ASSIGN_OR_RETURN(const CallParts parts, Write(answer_, reading_, tools_, &builder_));
    if (answer_.must && (!answer_.begun || parts.starts.empty())) return parts.calls;
    if (answer_.words && !answer_.must) {
      WEIR_ASSIGN_OR_RETURN(const Part words, builder_.Of(*answer_.words));
      return builder_.OneOf({words, parts.calls});
    }
    if (parts.answer >= 0) return parts.answer;
    return builder_.Triggered(parts.starts, answer_.must ? 1 : 0, answer_.parallel ? forms::kNoMax : 1);
  }

  Result<Part> WithThoughts(Part inner) {
    CallWriter writer({}, false, &builder_);
    const ThoughtMarks& marks = reading_.thoughts();
    WEIR_ASSIGN_OR_RETURN(const Part lead, builder_.Regex("[ \\n]{0,4}"));
    const Part alone = answer_.must ? builder_.Sequence({lead, inner}) : inner;
    if (marks.open.empty() || (!answer_.in_thoughts && !answer_.may_think)) return alone;
    std::vector<FormBuilder::Trigger> ends;
    const Part after = exact() ? builder_.Sequence({lead, inner}) : inner;
    for (std::string& text : writer.Spellings(marks.close)) ends.push_back({std::move(text), after});
    std::vector<Part> thoughts;
    WEIR_ASSIGN_OR_RETURN(const Part whole, builder_.Until(ends));
    thoughts.push_back(whole);
    if (!exact()) {  // an answer may end within its thoughts
      WEIR_ASSIGN_OR_RETURN(const Part unfinished, builder_.Without(writer.Spellings(marks.close)));
      thoughts.push_back(unfinished);
    }
    WEIR_ASSIGN_OR_RETURN(const Part thinking, builder_.OneOf(thoughts));
    if (answer_.in_thoughts) return thinking;
    WEIR_ASSIGN_OR_RETURN(const Part space, builder_.Regex("[ \\n\\t\\r]{0,255}"));
    return builder_.OneOf({builder_.Sequence({space, writer.Marker(marks.open), thinking}), alone});
  }

  const HeldAnswer& answer_;
  const AnswerForm& reading_;
  const std::vector<Tool> tools_;
  FormBuilder builder_;
};

}  // namespace

Result<std::shared_ptr<const Form>> MakeForm(const HeldAnswer& answer, const AnswerForm& reading,
                                             std::shared_ptr<const FormVocab> vocab, std::shared_ptr<FormRoom> room) {
  FormWork work(room.get());
  WEIR_RETURN_IF_ERROR(work.status());
  std::vector<const Json*> functions;
  for (const Json& tool : answer.tools) {
    const std::string& name = tool["function"]["name"].get_ref<const std::string&>();
    if (answer.only.empty() || answer.only.contains(name)) functions.push_back(&tool["function"]);
  }
  if (!functions.empty() && reading.dialect().write == nullptr) {
    return InvalidArgument("calls of this model ('{}') cannot be held to a form", reading.dialect().name);
  }
  for (const Json* function : functions) {
    const Tool tool = ToolAt(answer, *function, Level::kWhole);
    if (tool.parameters["type"] != "object") {
      return InvalidArgument("the tool '{}' cannot be strict: its parameters are no object", tool.name);
    }
  }
  const auto at = [&](Level level) {
    std::vector<Tool> tools;
    for (const Json* function : functions) {
      tools.push_back(ToolAt(answer, *function, level));
    }
    return tools;
  };
  const auto build = [&](std::vector<Tool> tools) {
    return AnswerBuilder(answer, reading, vocab, room, std::move(tools)).Build();
  };
  auto whole = build(at(Level::kWhole));
  if (whole.ok() || functions.empty()) return whole;
  // Something cannot be held: each tool as far as it can.
  std::vector<Tool> tools;
  Trials trials(answer, reading, vocab, room);
  for (const Json* function : functions) {
    Tool tool = ToolAt(answer, *function, Level::kWhole);
    const Status held = trials.Try(tool);
    if (!held.ok() && tool.strict) {
      return InvalidArgument("the tool '{}' cannot be strict: {}", tool.name, held.message());
    }
    if (!held.ok()) {
      tool = ToolAt(answer, *function, Level::kLoosened);
      if (!trials.Try(tool).ok()) tool = ToolAt(answer, *function, Level::kAnyObject);
    }
    tools.push_back(std::move(tool));
  }
  auto eased = build(std::move(tools));
  return eased.ok() ? std::move(eased) : build(at(Level::kAnyObject));
}

}  // namespace weir
