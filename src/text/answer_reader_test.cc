// SPDX-License-Identifier: Apache-2.0
// Answers of every family, whole, byte by byte and in random pieces.
#include "text/answer_reader.h"

#include <gtest/gtest.h>

#include <random>

#include "text/tool_table.h"

namespace weir {
namespace {

constexpr ThoughtMarks kThink = {"<think>", "</think>"};

const DialectInfo& Dialect(std::string_view name) {
  for (const DialectInfo* dialect : AllDialectInfos()) {
    if (dialect->name == name) return *dialect;
  }
  ADD_FAILURE() << "no dialect " << name;
  return *AllDialectInfos().front();
}

// Content, [reasoning], (name arguments).
std::string Shown(const std::vector<AnswerPart>& parts) {
  std::string out;
  auto last = AnswerPart::Kind::kContent;
  const auto close = [&] {
    if (last == AnswerPart::Kind::kReasoning) out += "]";
    if (last == AnswerPart::Kind::kCall || last == AnswerPart::Kind::kArguments) out += ")";
  };
  for (const AnswerPart& part : parts) {
    const bool goes_on = part.kind == last && part.kind != AnswerPart::Kind::kCall;
    if (part.kind == AnswerPart::Kind::kArguments) {
      if (!goes_on) out += " ";
    } else if (!goes_on) {
      close();
      if (part.kind == AnswerPart::Kind::kReasoning) out += "[";
      if (part.kind == AnswerPart::Kind::kCall) out += "(";
    }
    out += part.text;
    last = part.kind;
  }
  close();
  return out;
}

Json Tools() {
  const auto tool = [](const char* name, Json properties) {
    return Json{{"type", "function"},
                {"function", {{"name", name}, {"parameters", {{"type", "object"}, {"properties", properties}}}}}};
  };
  return Json::array(
      {tool("f", {{"a", {{"type", "integer"}}}, {"s", {{"type", "string"}}}}), tool("g", Json::object())});
}

struct Way {
  const char* dialect = "hermes";
  bool in_thoughts = false, parallel = true, apart = true, tools = true;
  ThoughtMarks thoughts = kThink;
};

// Cuts the text at these places.
std::string Read(const Way& way, std::string_view text, const std::vector<size_t>& cuts) {
  const AnswerForm form(Dialect(way.dialect), Dialect(way.dialect).thoughts ? ThoughtMarks{} : way.thoughts);
  ReadingOptions options;
  if (way.tools) options.tools = std::make_shared<const ToolTable>(Tools());
  options.parallel = way.parallel;
  options.thoughts_apart = way.apart;
  options.in_thoughts = way.in_thoughts;
  AnswerReader reader(form, options);
  std::vector<AnswerPart> parts;
  const auto take = [&] {
    for (AnswerPart& part : reader.Take()) parts.push_back(std::move(part));
  };
  size_t at = 0;
  for (const size_t cut : cuts) {
    reader.Push(text.substr(at, cut - at));
    at = cut;
    take();
  }
  reader.Push(text.substr(at));
  reader.Finish();
  take();
  int n_calls = 0;
  for (const AnswerPart& part : parts) {
    EXPECT_TRUE(!part.text.empty()) << text;
    n_calls += part.kind == AnswerPart::Kind::kCall;
  }
  EXPECT_EQ(n_calls, reader.n_calls()) << text;
  return Shown(parts);
}

// The same however it is cut, and so is each of its beginnings.
std::string Reads(const Way& way, std::string_view text) {
  std::mt19937 random(1);
  for (size_t n = 0; n <= text.size(); ++n) {
    const std::string_view begun = text.substr(0, n);
    const std::string whole = Read(way, begun, {});
    std::vector<size_t> bytes;
    for (size_t at = 1; at < n; ++at) bytes.push_back(at);
    EXPECT_EQ(Read(way, begun, bytes), whole) << begun;
    for (int i = 0; i < 4; ++i) {
      std::vector<size_t> cuts;
      for (size_t at = 1; at < n; ++at) {
        if (random() % 4 == 0) cuts.push_back(at);
      }
      EXPECT_EQ(Read(way, begun, cuts), whole) << begun;
    }
  }
  return Read(way, text, {});
}

TEST(AnswerReader, PlainTextIsContentByteForByte) {
  for (const char* text : {"", " \n", "  Hi.\n\n", "a < b, <tool, <think", "{\"a\": 1} \n"}) {
    EXPECT_EQ(Reads({}, text), text);
    EXPECT_EQ(Reads({.tools = false}, text), text);
  }
}

TEST(AnswerReader, Thoughts) {
  EXPECT_EQ(Reads({}, "<think>\nHm.\n\nSo.\n</think>\n\nYes. "), "[Hm.\n\nSo.]Yes. ");
  EXPECT_EQ(Reads({.in_thoughts = true}, "Hm.\n</think>Yes."), "[Hm.]Yes.");
  EXPECT_EQ(Reads({.in_thoughts = true}, "<think>\nHm.</think>Yes."), "[Hm.]Yes.");
  EXPECT_EQ(Reads({.in_thoughts = true}, "Hm. <think"), "[Hm. <think]");
  EXPECT_EQ(Reads({}, "<think>\n\n</think>\n\nYes."), "Yes.");
  EXPECT_EQ(Reads({}, "I say <think>no</think>"), "I say <think>no</think>");
  EXPECT_EQ(Reads({.apart = false}, "<think>\nHm.</think>\n\nYes."), "<think>\nHm.</think>\n\nYes.");
  EXPECT_EQ(Reads({.thoughts = {}}, "<think>Hm.</think>Yes."), "<think>Hm.</think>Yes.");
  EXPECT_EQ(Reads({.dialect = "mistral", .thoughts = {"[THINK]", "[/THINK]"}}, "[THINK]Hm.[/THINK]Yes."), "[Hm.]Yes.");
}

TEST(AnswerReader, Hermes) {
  const Way way;
  EXPECT_EQ(Reads(way, "<tool_call>\n{\"name\": \"f\", \"arguments\": {\"a\": 1, \"s\": \"}\\\"{\"}}\n</tool_call>"),
            "(f {\"a\": 1, \"s\": \"}\\\"{\"})");
  EXPECT_EQ(Reads(way,
                  "<think>Hm.</think>\n\nLet me see.\n<tool_call>\n{\"name\": \"f\", \"arguments\": {}}\n</tool_call>\n"
                  "<tool_call>{\"arguments\": {\"a\": [1]}, \"name\": \"g\"}</tool_call>\nDone."),
            "[Hm.]Let me see.(f {})(g {\"a\": [1]})Done.");
  // Without arguments, with a text for them, with further fields, wrapped.
  EXPECT_EQ(Reads(way, "<tool_call>{\"name\": \"f\"}</tool_call>"), "(f {})");
  EXPECT_EQ(Reads(way, "<tool_call>{\"name\": \"f\", \"arguments\": null, \"id\": -1.5e3}</tool_call>"), "(f {})");
  EXPECT_EQ(Reads(way, "<tool_call>{\"id\": -9.0e+19, \"name\": \"f\"}</tool_call>"), "(f {})");
  EXPECT_EQ(Reads(way, "<tool_call>{\"name\": \"f\", \"arguments\": \"{\\\"a\\\": 1}\"}</tool_call>"),
            "(f {\"a\": 1})");
  EXPECT_EQ(
      Reads(way, "<tool_call>{\"type\": \"function\", \"function\": {\"name\": \"f\", \"parameters\": {\"a\": 1}}}"),
      "(f {\"a\": 1})");
  EXPECT_EQ(Reads(way, "<tool_call>[{\"name\": \"f\", \"arguments\": {}}, {\"name\": \"g\", \"arguments\": {}}]"),
            "(f {})(g {})");
}

TEST(AnswerReader, WhatIsNoCallIsContent) {
  for (const char* text :
       {"<tool_call> is a tag", "<tool_call>\n{\"nam", "<tool_call>{\"a\": 1}</tool_call>", "<tool_call>{\"name\": 1}",
        "<tool_call>{\"name\": \"a b\", \"arguments\": {}}</tool_call>", "<tool_call><tool_call", "<tool_call>[x]"}) {
    EXPECT_EQ(Reads({}, text), text);
  }
  EXPECT_EQ(Reads({}, "<tool_call><tool_call>{\"name\": \"f\"}"), "<tool_call>(f {})");
  EXPECT_EQ(Reads({.tools = false}, "<tool_call>{\"name\": \"f\"}</tool_call>"),
            "<tool_call>{\"name\": \"f\"}</tool_call>");
}

TEST(AnswerReader, OneCallEndsTheAnswer) {
  const Way way = {.parallel = false};
  EXPECT_EQ(Reads(way, "<tool_call>{\"name\": \"f\"}</tool_call><tool_call>{\"name\": \"g\"}</tool_call>x"), "(f {})");
}

TEST(AnswerReader, Generic) {
  const Way way = {.dialect = "generic"};
  EXPECT_EQ(Reads(way, "{\"name\": \"f\", \"arguments\": {\"a\": 1}}"), "(f {\"a\": 1})");
  EXPECT_EQ(Reads(way, " [{\"name\": \"f\", \"arguments\": {}}, {\"name\": \"g\", \"arguments\": {}}]"),
            "(f {})(g {})");
  EXPECT_EQ(Reads(way, "<tool_call>{\"name\": \"h\"}"), "(h {})");
  for (const char* text : {"{\"name\": \"h\", \"arguments\": {}}", "{\"name\": \"f\"}", "[1, 2]", "{", " [ "}) {
    EXPECT_EQ(Reads(way, text), text);
  }
}

TEST(AnswerReader, Llama3) {
  const Way way = {.dialect = "llama3"};
  EXPECT_EQ(Reads(way, "{\"name\": \"f\", \"parameters\": {\"a\": 1}}"), "(f {\"a\": 1})");
  EXPECT_EQ(
      Reads(way, "<|python_tag|>{\"name\": \"f\", \"parameters\": {\"a\": 1}}; {\"name\": \"g\", \"parameters\": {}}"),
      "(f {\"a\": 1})(g {})");
  EXPECT_EQ(Reads(way, "{\"name\": \"f\", \"parameters\": {}}; {\"name\": \"g\", \"parameters\": {}}"), "(f {})(g {})");
  EXPECT_EQ(Reads(way, "Hm.<function=f>{\"a\": 1}</function><function=g>{}</function>"), "Hm.(f {\"a\": 1})(g {})");
  EXPECT_EQ(Reads(way, "{\"answer\": 42}"), "{\"answer\": 42}");
}

TEST(AnswerReader, Mistral) {
  const Way way = {.dialect = "mistral"};
  EXPECT_EQ(Reads(way, "[TOOL_CALLS] [{\"name\": \"f\", \"arguments\": {\"a\": 1}, \"id\": \"123456789\"}]"),
            "(f {\"a\": 1})");
  EXPECT_EQ(Reads(way, "So.[TOOL_CALLS]f[CALL_ID]123456789[ARGS]{\"a\": 1}[TOOL_CALLS]g[ARGS]{}"),
            "So.(f {\"a\": 1})(g {})");
  EXPECT_EQ(Reads(way, "[TOOL_CALLS]f{\"a\": 1}"), "(f {\"a\": 1})");
  EXPECT_EQ(Reads(way, "[TOOL_CALLS] is a token"), "[TOOL_CALLS] is a token");
}

TEST(AnswerReader, Harmony) {
  const Way way = {.dialect = "harmony"};
  EXPECT_EQ(Reads(way,
                  "<|channel|>analysis<|message|>Hm.<|end|><|start|>assistant<|channel|>commentary to=functions.f "
                  "<|constrain|>json<|message|>{\"a\": 1}"),
            "[Hm.](f {\"a\": 1})");
  EXPECT_EQ(Reads(way, " to=functions.f<|channel|>commentary json<|message|>{\"a\": 1}<|call|>"), "(f {\"a\": 1})");
  EXPECT_EQ(Reads(way, "<|channel|>analysis<|message|>Hm.<|end|><|start|>assistant<|channel|>final<|message|>Yes. "),
            "[Hm.]Yes. ");
  EXPECT_EQ(Reads(way, "<|channel|>commentary<|message|>First.<|end|><|channel|>final<|message|>Yes.<|return|>"),
            "First.Yes.");
  EXPECT_EQ(Reads(way, "Yes."), "Yes.");
  EXPECT_EQ(Reads({.dialect = "harmony", .apart = false},
                  "<|channel|>analysis<|message|>Hm.<|end|><|start|>assistant<|channel|>final<|message|>Yes."),
            "Hm.Yes.");
}

TEST(AnswerReader, DeepSeek) {
  const Way way = {.dialect = "deepseek"};
  EXPECT_EQ(
      Reads(way,
            "<｜tool▁calls▁begin｜><｜tool▁call▁begin｜>function<｜tool▁sep｜>f\n```json\n{\"a\": 1}\n```"
            "<｜tool▁call▁end｜>\n<｜tool▁call▁begin｜>function<｜tool▁sep｜>g\n```json\n{}\n```<｜tool▁call▁end｜>"
            "<｜tool▁calls▁end｜>"),
      "(f {\"a\": 1})(g {})");
  EXPECT_EQ(Reads(way,
                  "So.<｜tool▁calls▁begin｜><｜tool▁call▁begin｜>f<｜tool▁sep｜>{\"a\": "
                  "1}<｜tool▁call▁end｜><｜tool▁calls▁end｜>"),
            "So.(f {\"a\": 1})");
  EXPECT_EQ(
      Reads({.dialect = "deepseek_dsml"},
            "<｜DSML｜function_calls>\n<｜DSML｜invoke name=\"f\">\n<｜DSML｜parameter name=\"a\" string=\"false\">1"
            "</｜DSML｜parameter>\n<｜DSML｜parameter name=\"x\" string=\"true\">2</｜DSML｜parameter>\n"
            "</｜DSML｜invoke>\n</｜DSML｜function_calls>"),
      "(f {\"a\": 1, \"x\": \"2\"})");
}

TEST(AnswerReader, TaggedArguments) {
  EXPECT_EQ(
      Reads({.dialect = "qwen3_coder"},
            "So.\n\n<tool_call>\n<function=f>\n<parameter=a>\n1\n</parameter>\n<parameter=s>\ntwo\n\"lines\"\n"
            "</parameter>\n<parameter=x>\nnull\n</parameter>\n</function>\n</tool_call>\n<tool_call>\n<function=g>\n"
            "</function>\n</tool_call>"),
      "So.(f {\"a\": 1, \"s\": \"two\\n\\\"lines\\\"\", \"x\": null})(g {})");
  EXPECT_EQ(Reads({.dialect = "qwen3_coder"}, "<function=f><parameter=a>one</parameter></function>"),
            "(f {\"a\": \"one\"})");
  EXPECT_EQ(Reads({.dialect = "qwen3_coder"}, "<tool_call>\n{}"), "<tool_call>\n{}");
  EXPECT_EQ(Reads({.dialect = "glm"},
                  "<tool_call>f\n<arg_key>a</arg_key>\n<arg_value>1</arg_value>\n<arg_key>s</arg_key>\n"
                  "<arg_value>2</arg_value>\n</tool_call><tool_call>g</tool_call>"),
            "(f {\"a\": 1, \"s\": \"2\"})(g {})");
  EXPECT_EQ(Reads({.dialect = "glm"}, "<tool_call>f<arg_key>a</arg_key><arg_value>1</arg_value></tool_call>"),
            "(f {\"a\": 1})");
  EXPECT_EQ(Reads({.dialect = "minimax"},
                  "<minimax:tool_call>\n<invoke name=\"f\">\n<parameter name=\"a\">1</parameter>\n</invoke>\n"
                  "<invoke name=\"g\">\n</invoke>\n</minimax:tool_call>"),
            "(f {\"a\": 1})(g {})");
}

TEST(AnswerReader, Blocks) {
  EXPECT_EQ(Reads({.dialect = "gemma"}, "So.\n```tool_code\nf(a=-1, s='x\\'y', l=[True, None], o={'k': 1.5})\n```"),
            "So.(f {\"a\":-1,\"s\":\"x'y\",\"l\":[true,null],\"o\":{\"k\":1.5}})");
  EXPECT_EQ(Reads({.dialect = "gemma"}, "```tool_code\nprint(f())\ng()\n```"), "(f {})(g {})");
  EXPECT_EQ(Reads({.dialect = "gemma"},
                  "```tool_code\nf(a=False, b=null, l=[], t=(1, 2), o={}, x=1e+3, q={\"k\": \"v\"})\n```"),
            "(f {\"a\":false,\"b\":null,\"l\":[],\"t\":[1,2],\"o\":{},\"x\":1000.0,\"q\":{\"k\":\"v\"}})");
  EXPECT_EQ(Reads({.dialect = "gemma"}, "```tool_code\nimport os\n```"), "```tool_code\nimport os\n```");
  EXPECT_EQ(Reads({.dialect = "lfm2"}, "<|tool_call_start|>[f(a=1), g()]<|tool_call_end|>"), "(f {\"a\":1})(g {})");
  EXPECT_EQ(Reads({.dialect = "gemma4"}, "<|tool_call>call:f{a:1,s:<|\"|>x{<|\"|>,l:[1,2]}<tool_call|>"),
            "(f {\"a\":1,\"s\":\"x{\",\"l\":[1,2]})");
  EXPECT_EQ(Reads({.dialect = "function_gemma"}, "<start_function_call>call:f{s:<escape>x<escape>}<end_function_call>"),
            "(f {\"s\":\"x\"})");
}

TEST(AnswerReader, ListsBetweenMarkers) {
  const std::string list = "[{\"name\": \"f\", \"arguments\": {\"a\": 1}}]";
  EXPECT_EQ(Reads({.dialect = "phi4_mini"}, "<|tool_call|>" + list + "<|/tool_call|>"), "(f {\"a\": 1})");
  EXPECT_EQ(Reads({.dialect = "nemotron"}, "<TOOLCALL>" + list + "</TOOLCALL>"), "(f {\"a\": 1})");
  EXPECT_EQ(
      Reads({.dialect = "command_r"},
            "<|START_ACTION|>[\n    {\"tool_call_id\": \"0\", \"tool_name\": \"f\", \"parameters\": {\"a\": 1}}\n]"
            "<|END_ACTION|>"),
      "(f {\"a\": 1})");
}

TEST(AnswerReader, Kimi) {
  const Way way = {.dialect = "kimi"};
  const std::string first = "<|tool_call_begin|>functions.f:0<|tool_call_argument_begin|>{\"a\": 1}<|tool_call_end|>";
  const std::string second = "<|tool_call_begin|>functions.g:1<|tool_call_argument_begin|>{}<|tool_call_end|>";
  EXPECT_EQ(Reads(way, "So.<|tool_calls_section_begin|>" + first + second + "<|tool_calls_section_end|>"),
            "So.(f {\"a\": 1})(g {})");
  EXPECT_EQ(Reads(way, first), "(f {\"a\": 1})");
  EXPECT_EQ(Reads(way, "<|tool_call_begin|>functions.:0<|tool_call_argument_begin|>{}"),
            "<|tool_call_begin|>functions.:0<|tool_call_argument_begin|>{}");
  const AnswerForm form(Dialect("kimi"), kThink);
  ReadingOptions options;
  options.tools = std::make_shared<const ToolTable>(Tools());
  AnswerReader reader(form, options);
  reader.Push(first);
  reader.Finish();
  EXPECT_EQ(reader.Take()[0].id, "functions.f:0");
}

TEST(AnswerReader, Apertus) {
  const Way way = {.dialect = "apertus"};
  EXPECT_EQ(Reads(way, "So.<|tools_prefix|>[{\"f\": {\"a\": 1}}, {\"g\": {}}]<|tools_suffix|>"),
            "So.(f {\"a\": 1})(g {})");
  for (const char* text : {"<|tools_prefix|>[{\"f\": 1}]", "<|tools_prefix|>[{\"a b\": {}}]", "<|tools_prefix|>[]"}) {
    EXPECT_EQ(Reads(way, text), text);
  }
}

// Templates' words; the files themselves are compared by tools/golden/dialects.py.
TEST(AnswerReader, DialectsAreRecognised) {
  const std::pair<const char*, const char*> cases[] = {
      {"", "generic"},
      {"{{ '<|im_start|>' }}", "generic"},
      {"... within <tool_call></tool_call> tags ...", "hermes"},
      {"<tool_call> <function=x> <parameter=y>", "qwen3_coder"},
      {"<tool_call> <arg_key> <arg_value>", "glm"},
      {"<|start_header_id|> ipython", "llama3"},
      {"[TOOL_CALLS]", "mistral"},
      {"<|start|> <|channel|>", "harmony"},
      {"<｜tool▁call▁begin｜>", "deepseek"},
      {"<｜DSML｜", "deepseek_dsml"},
      {"<|tool_call> <tool_call|>", "gemma4"},
      {"<|tool_call_begin|> <|tool_call_argument_begin|>", "kimi"},
      {"<|tools_prefix|>", "apertus"},
  };
  for (const auto& [jinja, name] : cases) EXPECT_STREQ(DialectOf(jinja).name, name) << jinja;
}

TEST(AnswerReader, WhatWasBegunIsNotSaidAgain) {
  const AnswerForm form(Dialect("hermes"), kThink);
  ReadingOptions options;
  options.begun = "<think>\nHm.";
  AnswerReader reader(form, options);
  reader.Push(" So.</think>Yes.");
  reader.Finish();
  EXPECT_EQ(Shown(reader.Take()), "[ So.]Yes.");
}

}  // namespace
}  // namespace weir
