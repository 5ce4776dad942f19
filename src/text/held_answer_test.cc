// SPDX-License-Identifier: Apache-2.0
// What every dialect writes under its form is read back as calls that keep to the tools' schemas, and what its models
// are trained to write has the form.
#include "text/held_answer.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <random>

#include "text/dialects/call_writer.h"
#include "text/tool_table.h"
#include "text/vocab_test_util.h"

namespace weir {
namespace {

constexpr ThoughtMarks kThink = {"<think>", "</think>"};

const Json kTools = Json::parse(R"([
  {"type":"function","function":{"name":"f","parameters":{"type":"object",
    "properties":{"a":{"type":"integer"},"s":{"type":"string"}},"required":["a"]}}},
  {"type":"function","function":{"name":"get_weather","parameters":{"type":"object","properties":{
    "city":{"type":"string"},"unit":{"type":"string","enum":["c","f"]},"warm":{"type":"boolean"},
    "days":{"type":"array","items":{"type":"string"}},
    "where":{"type":"object","properties":{"lat":{"type":"number"},"name":{"type":"string"}},"required":["lat"]},
    "note":{"anyOf":[{"type":"string"},{"type":"null"}]}},"required":["city","where"]}}},
  {"type":"function","function":{"name":"g","parameters":{"type":"object","properties":{}}}}])");

// Bytes, and the dialect's markers: as control tokens, or as ordinary ones.
std::shared_ptr<const FormVocab> VocabOf(const DialectInfo& dialect, bool controls) {
  std::vector<std::string> tokens;
  for (int b = 0; b < 256; ++b) tokens.push_back(testing::SpellBytes(std::string(1, static_cast<char>(b))));
  for (const char* word : {"\": \"", "</parameter>", "{\"name\": \"", "\", \"arguments\": {", "</think>", "\n", "12",
                           "</", "parameter>", "</｜DSML｜parameter>", "<｜DSML｜function_calls>"}) {
    tokens.push_back(testing::SpellBytes(word));
  }
  std::vector<int32_t> types(tokens.size(), 1);
  for (const std::string_view marker : dialect.markers) {
    tokens.push_back(controls ? std::string(marker) : testing::SpellBytes(std::string(marker)));
    types.push_back(controls ? 3 : 1);
  }
  testing::MetadataBuilder b;
  b.Add("tokenizer.ggml.model", "gpt2").Add("tokenizer.ggml.pre", "gpt-2").Add("tokenizer.ggml.tokens", tokens);
  b.Add("tokenizer.ggml.token_type", types).Add("tokenizer.ggml.merges", std::vector<std::string>{"t h"});
  const auto tokenizer = testing::LoadFrom(b);
  EXPECT_TRUE(tokenizer.ok()) << tokenizer.status().message();
  return FormVocab::Make(**tokenizer);
}

const DialectInfo& Dialect(std::string_view name) {
  for (const DialectInfo* dialect : AllDialectInfos()) {
    if (dialect->name == name) return *dialect;
  }
  ADD_FAILURE() << "no dialect " << name;
  return *AllDialectInfos().front();
}

AnswerForm ReadingOf(const DialectInfo& dialect) {
  return AnswerForm(dialect, dialect.thoughts ? ThoughtMarks{} : kThink);
}

std::shared_ptr<const Form> Made(const HeldAnswer& held, const DialectInfo& dialect, bool controls = false) {
  auto form = MakeForm(held, ReadingOf(dialect), VocabOf(dialect, controls));
  EXPECT_TRUE(form.ok()) << dialect.name << ": " << form.status().message();
  return form.ok() ? *form : nullptr;
}

// The text with the vocabulary's control tokens.
std::string Spelled(const FormVocab& vocab, std::string_view text) {
  std::string out;
  for (size_t at = 0; at < text.size();) {
    size_t n = std::min<size_t>(text.size() - at, 40);
    int32_t id = -1;
    while (n > 0 && (id = vocab.FindControl(text.substr(at, n))) < 0) --n;
    out += id >= 0 ? forms::SpellToken(id) : std::string(1, text[at]);
    at += std::max<size_t>(n, 1);
  }
  return out;
}

bool Begins(const std::shared_ptr<const Form>& form, std::string_view text) {
  return form != nullptr && FormState(form).AcceptText(Spelled(*form->vocab(), text)).ok();
}
bool Has(const std::shared_ptr<const Form>& form, std::string_view text) {
  if (form == nullptr) return false;
  FormState state(form);
  return state.AcceptText(Spelled(*form->vocab(), text)).ok() && state.CanEnd();
}

struct Call {
  std::string name, arguments;
};
struct Read {
  std::string content, reasoning;
  std::vector<Call> calls;
};

Read ReadBack(const DialectInfo& dialect, const HeldAnswer& held, std::string_view text) {
  ReadingOptions options;
  options.tools = std::make_shared<const ToolTable>(held.tools);
  options.parallel = held.parallel;
  options.in_thoughts = held.in_thoughts;
  options.held = true;
  const AnswerForm form = ReadingOf(dialect);
  AnswerReader reader(form, options);
  reader.Push(text);
  reader.Finish();
  Read out;
  for (const AnswerPart& part : reader.Take()) {
    if (part.kind == AnswerPart::Kind::kContent) out.content += part.text;
    if (part.kind == AnswerPart::Kind::kReasoning) out.reasoning += part.text;
    if (part.kind == AnswerPart::Kind::kCall) out.calls.push_back({part.text, ""});
    if (part.kind == AnswerPart::Kind::kArguments) out.calls.back().arguments += part.text;
  }
  return out;
}

// Whether the value has the schema, of the kinds that kTools has.
bool Fits(const Json& value, const Json& schema) {
  if (schema.contains("anyOf")) return value.is_string() || value.is_null();
  const std::string type = schema["type"];
  if (type == "integer") return value.is_number_integer();
  if (type == "number") return value.is_number();
  if (type == "boolean") return value.is_boolean();
  if (type == "string") {
    return value.is_string() && (!schema.contains("enum") || value == schema["enum"][0] || value == schema["enum"][1]);
  }
  if (type == "array") {
    return value.is_array() &&
           std::all_of(value.begin(), value.end(), [&](const Json& one) { return Fits(one, schema["items"]); });
  }
  if (!value.is_object()) return false;
  for (const Json& key : schema.value("required", Json::array())) {
    if (!value.contains(key.get<std::string>())) return false;
  }
  for (const auto& [key, one] : value.items()) {
    if (!schema["properties"].contains(key) || !Fits(one, schema["properties"][key])) return false;
  }
  return true;
}

// A random answer of the form. Ends of texts, objects and calls are likelier than other tokens, so that it ends.
std::string RandomAnswer(const std::shared_ptr<const Form>& form, const DialectInfo& dialect,
                         const std::vector<std::string>& marks, std::mt19937& random) {
  const FormVocab& vocab = *form->vocab();
  FormState state(form);
  std::string text;
  for (int step = 0; step < 5000; ++step) {
    if (state.CanEnd() && (state.MustEnd() || random() % 8 == 0)) return text;
    const auto mask = state.Mask();
    EXPECT_TRUE(mask.ok()) << mask.status().message();
    if (!mask.ok() || (*mask)->n_allowed == 0) break;
    std::vector<int32_t> any, likely, parts;
    for (int32_t id = 0; id < vocab.n_tokens(); ++id) {
      if (!(*mask)->Allows(id)) continue;
      // Parts of longer characters would seldom be valid together.
      (id >= 128 && id < 256 ? parts : any).push_back(id);
      if (id >= 256 || std::string_view("\"}])<,").find(static_cast<char>(vocab.Bytes(id)[0])) != std::string::npos) {
        likely.push_back(id);
      }
    }
    if (any.empty()) any = std::move(parts);
    const std::vector<int32_t>& from = likely.empty() || random() % 2 == 0 ? any : likely;
    const int32_t id = from[random() % from.size()];
    EXPECT_TRUE(state.Accept(id).ok());
    const std::string_view bytes = vocab.Bytes(id);
    if (static_cast<uint8_t>(bytes[0]) != forms::kTokenByte) {
      text += bytes;
    } else {
      for (const std::string& mark : marks) {
        if (vocab.FindControl(mark) == id) text += mark;
      }
    }
  }
  ADD_FAILURE() << dialect.name << ": no end in " << text.substr(0, 2000);
  return text;
}

void CheckCalls(const DialectInfo& dialect, const HeldAnswer& held, const std::string& text, const Read& read) {
  for (const Call& call : read.calls) {
    const auto tool = std::find_if(held.tools.begin(), held.tools.end(),
                                   [&](const Json& one) { return one["function"]["name"] == call.name; });
    ASSERT_NE(tool, held.tools.end()) << dialect.name << ": " << call.name << "\n" << text;
    EXPECT_TRUE(held.only.empty() || held.only.contains(call.name)) << dialect.name << "\n" << text;
    const Json arguments = Json::parse(call.arguments, nullptr, false);
    EXPECT_TRUE(!arguments.is_discarded() && Fits(arguments, (*tool)["function"]["parameters"]))
        << dialect.name << ": " << call.arguments << "\n"
        << text;
  }
}

TEST(HeldAnswer, WhatMustBeACallIsReadBackAsOne) {
  std::mt19937 random(1);
  for (const DialectInfo* dialect : AllDialectInfos()) {
    ASSERT_NE(dialect->write, nullptr) << dialect->name;
    const std::vector<std::string> marks(dialect->markers.begin(), dialect->markers.end());
    for (const bool controls : {false, true}) {
      for (const bool parallel : {true, false}) {
        HeldAnswer held;
        held.tools = kTools;
        held.must = true;
        held.may_think = dialect->thoughts;
        held.parallel = parallel;
        const auto form = Made(held, *dialect, controls);
        ASSERT_NE(form, nullptr);
        size_t n_calls = 0;
        for (int i = 0; i < 40; ++i) {
          const std::string text = RandomAnswer(form, *dialect, marks, random);
          const Read read = ReadBack(*dialect, held, text);
          ASSERT_GE(read.calls.size(), 1u) << dialect->name << "\n" << text;
          ASSERT_TRUE(parallel || read.calls.size() == 1) << dialect->name << "\n" << text;
          EXPECT_TRUE(dialect->thoughts || read.content.empty()) << dialect->name << "\n" << text;
          CheckCalls(*dialect, held, text, read);
          n_calls += read.calls.size();
        }
        const bool one_at_a_time = !parallel || std::string_view(dialect->name) == "harmony";
        EXPECT_TRUE(one_at_a_time || n_calls > 40) << dialect->name;
      }
    }
    HeldAnswer one;
    one.tools = kTools;
    one.must = true;
    one.only = {"g"};
    one.may_think = false;
    const auto form = Made(one, *dialect);
    const std::string text = RandomAnswer(form, *dialect, marks, random);
    const Read read = ReadBack(*dialect, one, text);
    ASSERT_FALSE(read.calls.empty()) << dialect->name << "\n" << text;
    CheckCalls(*dialect, one, text, read);
  }
}

TEST(HeldAnswer, ACallThatWasBegunIsHeldToItsEnd) {
  std::mt19937 random(2);
  for (const DialectInfo* dialect : AllDialectInfos()) {
    const std::vector<std::string> marks(dialect->markers.begin(), dialect->markers.end());
    for (const bool controls : {false, true}) {
      HeldAnswer held;
      held.tools = kTools;
      const auto form = Made(held, *dialect, controls);
      size_t n_calls = 0;
      for (int i = 0; i < 60; ++i) {
        const std::string text = RandomAnswer(form, *dialect, marks, random);
        const Read read = ReadBack(*dialect, held, text);
        CheckCalls(*dialect, held, text, read);
        n_calls += read.calls.size();
      }
      EXPECT_GT(n_calls, 0u) << dialect->name;
    }
  }
}

struct Trained {
  const char* dialect;
  const char* text;
  size_t n_calls;
};
// As the models' templates write earlier calls.
const Trained kTrained[] = {
    {"hermes", "<tool_call>\n{\"name\": \"f\", \"arguments\": {\"a\": 1, \"s\": \"}\\\"{\"}}\n</tool_call>", 1},
    {"hermes",
     "<tool_call>\n{\"name\": \"g\", \"arguments\": {}}\n</tool_call>\n<tool_call>\n{\"name\": \"f\", "
     "\"arguments\": {\"a\": 1}}\n</tool_call>",
     2},
    {"generic", "<tool_call>\n{\"name\": \"f\", \"arguments\": {\"a\": -1}}\n</tool_call>", 1},
    {"llama3", "{\"name\": \"f\", \"parameters\": {\"a\": 1}}", 1},
    {"llama3", "{\"name\": \"f\", \"parameters\": {\"a\": 1}}; {\"name\": \"g\", \"parameters\": {}}", 2},
    {"mistral", "[TOOL_CALLS] [{\"name\": \"f\", \"arguments\": {\"a\": 1}}, {\"name\": \"g\", \"arguments\": {}}]", 2},
    {"mistral", "[TOOL_CALLS]f[CALL_ID]123456789[ARGS]{\"a\": 1}[TOOL_CALLS]g[ARGS]{}", 2},
    {"harmony",
     "<|channel|>analysis<|message|>Hm.<|end|><|start|>assistant<|channel|>commentary to=functions.f "
     "<|constrain|>json<|message|>{\"a\": 1}",
     1},
    {"harmony", " to=functions.f<|channel|>commentary json<|message|>{\"a\": 1}", 1},
    {"deepseek",
     "<｜tool▁calls▁begin｜><｜tool▁call▁begin｜>function<｜tool▁sep｜>f\n```json\n{\"a\": 1}\n```"
     "<｜tool▁call▁end｜>\n<｜tool▁call▁begin｜>function<｜tool▁sep｜>g\n```json\n{}\n```<｜tool▁call▁end｜>"
     "<｜tool▁calls▁end｜>",
     2},
    {"deepseek",
     "<｜tool▁calls▁begin｜><｜tool▁call▁begin｜>f<｜tool▁sep｜>{\"a\": 1}<｜tool▁call▁end｜>"
     "<｜tool▁calls▁end｜>",
     1},
    {"deepseek_dsml",
     "<｜DSML｜function_calls>\n<｜DSML｜invoke name=\"f\">\n<｜DSML｜parameter name=\"a\" "
     "string=\"false\">1</｜DSML｜parameter>\n<｜DSML｜parameter name=\"s\" string=\"true\">2"
     "</｜DSML｜parameter>\n</｜DSML｜invoke>\n</｜DSML｜function_calls>",
     1},
    {"qwen3_coder",
     "<tool_call>\n<function=f>\n<parameter=a>\n1\n</parameter>\n<parameter=s>\ntwo\n\"lines\"\n"
     "</parameter>\n</function>\n</tool_call>\n<tool_call>\n<function=g>\n</function>\n</tool_call>",
     2},
    {"glm",
     "<tool_call>f\n<arg_key>a</arg_key>\n<arg_value>1</arg_value>\n<arg_key>s</arg_key>\n"
     "<arg_value>2</arg_value>\n</tool_call>",
     1},
    {"glm", "<tool_call>f<arg_key>a</arg_key><arg_value>1</arg_value></tool_call>", 1},
    {"minimax",
     "<minimax:tool_call>\n<invoke name=\"f\">\n<parameter name=\"a\">1</parameter>\n</invoke>\n"
     "<invoke name=\"g\">\n</invoke>\n</minimax:tool_call>",
     2},
    {"gemma", "```tool_code\nf(a=-1, s=\"x'y\")\n```", 1},
    {"gemma", "```tool_code\nprint(get_weather(city=\"Rome\", warm=True, where={\"lat\": 1.5}))\ng()\n```", 2},
    {"lfm2", "<|tool_call_start|>[f(a=1), g()]<|tool_call_end|>", 2},
    {"gemma4",
     "<|tool_call>call:get_weather{city:<|\"|>Ro{me<|\"|>,unit:<|\"|>c<|\"|>,days:[<|\"|>a<|\"|>,<|\"|>b<|\"|>],"
     "where:{lat:1.5,name:<|\"|>x<|\"|>}}<tool_call|>",
     1},
    {"function_gemma", "<start_function_call>call:f{a:1,s:<escape>x<escape>}<end_function_call>", 1},
    {"phi4_mini", "<|tool_call|>[{\"name\": \"f\", \"arguments\": {\"a\": 1}}]<|/tool_call|>", 1},
    {"phi4_mini", "<|tool_call|>[{\"name\": \"f\", \"arguments\": {\"a\": 1}}]", 1},
    {"nemotron", "<TOOLCALL>[{\"name\": \"f\", \"arguments\": {\"a\": 1}}]</TOOLCALL>", 1},
    {"kimi",
     "<|tool_calls_section_begin|><|tool_call_begin|>functions.f:0<|tool_call_argument_begin|>{\"a\": 1}"
     "<|tool_call_end|><|tool_call_begin|>functions.g:1<|tool_call_argument_begin|>{}<|tool_call_end|>"
     "<|tool_calls_section_end|>",
     2},
    {"apertus", "<|tools_prefix|>[{\"f\": {\"a\": 1}}, {\"g\": {}}]<|tools_suffix|>", 2},
    {"command_r",
     "<|START_ACTION|>[\n    {\"tool_call_id\": \"0\", \"tool_name\": \"f\", \"parameters\": {\"a\": 1}}\n]"
     "<|END_ACTION|>",
     1},
};

TEST(HeldAnswer, WhatModelsAreTrainedToWriteHasTheForm) {
  for (const Trained& trained : kTrained) {
    const DialectInfo& dialect = Dialect(trained.dialect);
    for (const bool controls : {false, true}) {
      HeldAnswer held;
      held.tools = kTools;
      const auto may = Made(held, dialect, controls);
      EXPECT_TRUE(Has(may, trained.text)) << trained.text;
      if (!dialect.thoughts) {
        const std::string words = "So.\n\n";
        const std::string thoughts = std::string("<think>\nHm, ") + (controls ? "x" : "<tool_call>") + ".</think>\n\n";
        const bool bare = trained.text[0] == '{';
        EXPECT_TRUE(bare || Has(may, words + trained.text)) << trained.text;
        EXPECT_TRUE(Has(may, thoughts + trained.text)) << trained.text;
      }
      held.must = true;
      EXPECT_TRUE(Has(Made(held, dialect, controls), trained.text)) << trained.text;
      const Read read = ReadBack(dialect, held, trained.text);
      EXPECT_EQ(read.calls.size(), trained.n_calls) << trained.text;
      CheckCalls(dialect, held, trained.text, read);
    }
  }
}

TEST(HeldAnswer, NoOtherCallIsPossible) {
  HeldAnswer held;
  held.tools = kTools;
  const DialectInfo& hermes = Dialect("hermes");
  auto form = Made(held, hermes);
  EXPECT_TRUE(Has(form, "It is a <tool_cal, {\"name\": 1}."));
  EXPECT_FALSE(Begins(form, "<tool_call>\nx"));
  EXPECT_FALSE(Begins(form, "<tool_call>\n{\"name\": \"h"));
  EXPECT_FALSE(Begins(form, "<tool_call>{\"name\": \"f\", \"arguments\": {\"a\": \""));
  EXPECT_FALSE(Begins(form, "<tool_call>{\"name\": \"f\", \"arguments\": {}"));
  EXPECT_FALSE(Has(form, "<tool_call>{\"name\": \"g\", \"arguments\": {}}"));
  held.parallel = false;
  form = Made(held, hermes);
  const std::string call = "<tool_call>{\"name\": \"g\", \"arguments\": {}}</tool_call>";
  EXPECT_TRUE(Has(form, "So." + call + "."));
  EXPECT_FALSE(Begins(form, call + call));
  held.must = true;
  held.only = {"f"};
  form = Made(held, hermes);
  EXPECT_FALSE(Begins(form, "So"));
  EXPECT_FALSE(Begins(form, "<tool_call>{\"name\": \"g"));
  EXPECT_TRUE(Begins(form, "\n\n<tool_call>{\"name\": \"f"));
  EXPECT_FALSE(FormState(form).CanEnd());
}

// An answer that is an object is a call only if it says so.
TEST(HeldAnswer, BareObjects) {
  for (const char* dialect : {"generic", "llama3"}) {
    HeldAnswer held;
    held.tools = kTools;
    const auto form = Made(held, Dialect(dialect));
    const std::string arguments = std::string_view(dialect) == "generic" ? "\"arguments\"" : "\"parameters\"";
    EXPECT_TRUE(Has(form, "{\"answer\": 1} "));
    EXPECT_TRUE(Has(form, "[1, {\"name\": \"f\"}]"));
    EXPECT_TRUE(Has(form, " {\"name\": \"nobody\", \"x\": 1}"));
    EXPECT_TRUE(Has(form, " { \"name\" :\"g\", " + arguments + ": {}}"));
    EXPECT_TRUE(Has(form, "[{\"name\": \"g\", " + arguments + ": {}}]"));
    EXPECT_TRUE(Has(form, "{\"type\": \"function\", \"name\": \"g\", " + arguments + ": {}}"));
    EXPECT_FALSE(Begins(form, "{\"name\": \"g\", \"x\""));
    EXPECT_FALSE(Begins(form, "{\"name\": \"f\", " + arguments + ": {\"a\": true"));
    EXPECT_FALSE(Begins(form, "{\"name\": \"g\", " + arguments + ": {}} And"));
    // What the form leaves free is no call.
    for (const char* text :
         {"{\"tool_name\": \"f\", \"arguments\": {}}", "{\"function\": {\"name\": \"f\", \"arguments\": 1}}",
          "{\"arguments\": {\"a\": \"x\"}, \"name\": \"f\"}", "{\"type\": \"x\", \"name\": \"f\", \"arguments\": {}}",
          "{\"name\": 1, \"name\": \"f\", \"arguments\": {}}", "{\"name\": \"\\u0066\", \"arguments\": {}}"}) {
      EXPECT_TRUE(Has(form, text)) << text;
      EXPECT_TRUE(ReadBack(Dialect(dialect), held, text).calls.empty()) << text;
    }
  }
}

TEST(HeldAnswer, ThoughtsAreFree) {
  const DialectInfo& hermes = Dialect("hermes");
  const std::string call = "<tool_call>{\"name\": \"g\", \"arguments\": {}}</tool_call>";
  HeldAnswer held;
  held.tools = kTools;
  held.in_thoughts = true;
  auto form = Made(held, hermes);
  EXPECT_TRUE(Has(form, "I could <tool_call> x"));
  EXPECT_TRUE(Has(form, "I could <tool_call> x</think>\n\nYes."));
  EXPECT_FALSE(Begins(form, "Hm.</think>\n\n<tool_call>x"));
  held.must = true;
  form = Made(held, hermes);
  EXPECT_TRUE(Has(form, "I could <tool_call> x</think>\n\n" + call));
  EXPECT_FALSE(Has(form, "I could."));
  EXPECT_FALSE(Begins(form, "Hm.</think>\n\nYes"));
  held.in_thoughts = false;
  form = Made(held, hermes);
  EXPECT_TRUE(Has(form, "<think>x</think>" + call));
  EXPECT_TRUE(Has(form, call));
  EXPECT_FALSE(Begins(form, "x"));
  // Words of a form come after the thoughts, too.
  HeldAnswer words;
  words.words = FormSpec{FormSpec::Kind::kRegex, "yes|no", {}};
  words.in_thoughts = true;
  form = Made(words, hermes);
  EXPECT_TRUE(Has(form, "Let me see.</think>\n\nyes"));
  EXPECT_FALSE(Has(form, "yes"));
  words.in_thoughts = false;
  form = Made(words, hermes);
  EXPECT_TRUE(Has(form, "<think>\nHm.\n</think>\n\nno"));
  EXPECT_TRUE(Has(form, "yes"));
  EXPECT_FALSE(Has(form, "\nyes"));
  words.may_think = false;
  EXPECT_FALSE(Begins(Made(words, hermes), "<"));
  words.tools = kTools;
  form = Made(words, hermes);
  EXPECT_TRUE(Has(form, "yes"));
  EXPECT_TRUE(Has(form, call));
  EXPECT_FALSE(Begins(form, "So."));
}

// The state reads what the prompt already says of the answer.
TEST(HeldAnswer, AnAnswerThatWasBegun) {
  HeldAnswer held;
  held.tools = kTools;
  held.must = true;
  held.begun = true;
  const auto form = Made(held, Dialect("hermes"));
  EXPECT_TRUE(Has(form, "Let me see: <tool_call>{\"name\": \"g\", \"arguments\": {}}</tool_call>"));
  EXPECT_FALSE(Has(form, "Let me see."));
}

Json WithSchema(const Json& schema) {
  return Json::array({{{"type", "function"}, {"function", {{"name", "f"}, {"parameters", schema}}}}});
}

TEST(HeldAnswer, WhatCannotBeHeldIsEasedUnlessItIsStrict) {
  const DialectInfo& hermes = Dialect("hermes");
  HeldAnswer held;
  held.tools = WithSchema(Json::parse(R"({"type":"object","properties":{"tags":{"type":"array","uniqueItems":true,
    "items":{"type":"string"}},"not":{"type":"integer","not":{"const":1}}},"required":["tags"]})"));
  auto form = Made(held, hermes);
  const std::string begin = "<tool_call>{\"name\": \"f\", \"arguments\": ";
  EXPECT_TRUE(Has(form, begin + "{\"tags\": [\"a\", \"a\"], \"not\": 1}}</tool_call>"));
  EXPECT_FALSE(Begins(form, begin + "{\"tags\": [1"));
  EXPECT_FALSE(Begins(form, begin + "{\"x\""));
  // Values are no schemas, whatever their keys.
  HeldAnswer values;
  values.tools = WithSchema(Json::parse(R"({"type":"object","properties":{"mode":{"const":{"not":1}},
    "tags":{"type":"array","uniqueItems":true}},"required":["mode"]})"));
  const auto of_values = Made(values, hermes);
  EXPECT_TRUE(Begins(of_values, begin + "{\"mode\": {\"not\""));
  EXPECT_FALSE(Begins(of_values, begin + "{\"mode\": {}"));
  held.strict = {"f"};
  auto refused = MakeForm(held, ReadingOf(hermes), VocabOf(hermes, false));
  ASSERT_FALSE(refused.ok());
  EXPECT_TRUE(refused.status().message().starts_with("the tool 'f' cannot be strict: 'not' of the schema at '#/prop"))
      << refused.status().message();
  // Nothing of it can be held: any object.
  held.strict = {};
  held.tools = WithSchema(Json::parse(R"({"$ref":"https://example.com/schema"})"));
  form = Made(held, hermes);
  EXPECT_TRUE(Has(form, begin + "{\"x\": [1]}}</tool_call>"));
  EXPECT_FALSE(Begins(form, begin + "[1"));
  // Arguments are an object, whatever the schema says.
  held.tools = WithSchema(Json::parse(R"({"type":"array"})"));
  EXPECT_TRUE(Has(Made(held, hermes), begin + "{}}</tool_call>"));
  held.strict = {"f"};
  EXPECT_FALSE(MakeForm(held, ReadingOf(hermes), VocabOf(hermes, false)).ok());
  held.strict = {};
  // Tags have no quotes around texts.
  const DialectInfo& tagged = Dialect("qwen3_coder");
  held.tools =
      WithSchema(Json::parse(R"({"type":"object","properties":{"d":{"type":"string","pattern":"^[0-9]+$"}}})"));
  EXPECT_TRUE(
      Has(Made(held, tagged), "<tool_call>\n<function=f>\n<parameter=d>\nx\n</parameter>\n</function>\n</tool_call>"));
  held.strict = {"f"};
  EXPECT_FALSE(MakeForm(held, ReadingOf(tagged), VocabOf(tagged, false)).ok());
  EXPECT_TRUE(Made(held, hermes) != nullptr);
}

// Many tools whose schemas take long: each may take what the others left.
TEST(HeldAnswer, HostileSchemasAreBoundedTogether) {
  Json tools = Json::array();
  for (int i = 0; i < 100; ++i) {
    Json tool = WithSchema(Json::parse(R"({"type":"object","properties":{"d":{"type":"string","maxLength":900,
      "pattern":"(a|b)*a(a|b){9}c(a|b)*a(a|b){9}"}},"required":["d"]})"))[0];
    tool["function"]["name"] = "f" + std::to_string(i);
    tools.push_back(std::move(tool));
  }
  HeldAnswer held;
  held.tools = tools;
  const auto form = Made(held, Dialect("hermes"));
  EXPECT_TRUE(Has(form, "<tool_call>{\"name\": \"f99\", \"arguments\": {\"d\": \"x\"}}</tool_call>"));
  for (int i = 0; i < 100; ++i) held.strict.insert("f" + std::to_string(i));
  EXPECT_FALSE(MakeForm(held, ReadingOf(Dialect("hermes")), VocabOf(Dialect("hermes"), false)).ok());
}

// Arguments without known names, and references within a schema, in every dialect.
TEST(HeldAnswer, OpenSchemas) {
  std::mt19937 random(3);
  for (const DialectInfo* dialect : AllDialectInfos()) {
    const std::vector<std::string> marks(dialect->markers.begin(), dialect->markers.end());
    for (const char* schema : {R"({"type":"object"})", "{}",
                               R"({"type":"object","properties":{"p":{"$ref":"#/$defs/P"}},"required":["p"],
              "$defs":{"P":{"type":"object","properties":{"x":{"type":"integer"}},"required":["x"]}}})"}) {
      HeldAnswer held;
      held.tools = WithSchema(Json::parse(schema));
      held.must = true;
      held.parallel = false;
      held.may_think = false;
      const auto form = Made(held, *dialect);
      ASSERT_NE(form, nullptr);
      for (int i = 0; i < 10; ++i) {
        const std::string text = RandomAnswer(form, *dialect, marks, random);
        const Read read = ReadBack(*dialect, held, text);
        ASSERT_EQ(read.calls.size(), 1u) << dialect->name << "\n" << text;
        const Json arguments = Json::parse(read.calls[0].arguments, nullptr, false);
        ASSERT_TRUE(arguments.is_object()) << dialect->name << "\n" << text;
        if (held.tools[0]["function"]["parameters"].contains("$defs")) {
          EXPECT_TRUE(arguments["p"]["x"].is_number_integer()) << dialect->name << "\n" << text;
        }
      }
    }
  }
}

}  // namespace
}  // namespace weir
