// SPDX-License-Identifier: Apache-2.0
#include "text/jinja/program.h"

#include <gtest/gtest.h>

#include <chrono>
#include <fstream>

#include "support/build_paths.h"
#include "text/jinja/from_json.h"

namespace weir::jinja {
namespace {

// The oracle's clock: tools/golden/jinja.py.
std::tm Clock() {
  std::tm now{};
  now.tm_year = 126;
  now.tm_mon = 10;
  now.tm_mday = 22;
  now.tm_yday = 325;
  now.tm_hour = 21;
  now.tm_min = 4;
  now.tm_sec = 5;
  return now;
}

Result<Text> RunIt(std::string_view source, const Context& context = {}, const Limits& limits = {}) {
  WEIR_ASSIGN_OR_RETURN(const Program program, Program::Parse(source));
  return program.Render(context, Clock(), limits);
}

std::string TextOf(std::string_view source, const Context& context = {}) {
  const auto text = RunIt(source, context);
  return text.ok() ? text->bytes() : "ERROR " + text.status().message();
}

TEST(JinjaProgram, RendersWhatJinja2Renders) {
  std::ifstream in(SourceDir() + "/tests/golden/jinja/cases.json");
  const Json golden = Json::parse(in);
  int n_texts = 0, n_refused = 0;
  for (const Json& one : golden) {
    const auto program = Program::Parse(one["template"].get<std::string>());
    ASSERT_TRUE(program.ok()) << one["name"] << ": " << program.status().message();
    for (const Json& c : one["cases"]) {
      Context context;
      for (const auto& [key, value] : c["context"].items()) context.emplace_back(key, FromJson(value, true));
      const auto text = program->Render(context, Clock());
      if (c["text"].is_null()) {
        EXPECT_FALSE(text.ok()) << one["name"] << c["context"];
        ++n_refused;
        continue;
      }
      ASSERT_TRUE(text.ok()) << one["name"] << ": " << text.status().message();
      EXPECT_EQ(text->bytes(), c["text"].get<std::string>()) << one["name"];
      ++n_texts;
    }
  }
  EXPECT_GT(n_texts, 30);
  EXPECT_GT(n_refused, 3);
}

// The runs of a text that came with the request, each in brackets.
std::string Marked(const Text& text) {
  std::string out;
  for (const Text::Run& run : text.Runs()) {
    const std::string part = text.bytes().substr(run.begin, run.end - run.begin);
    out += run.given ? "[" + part + "]" : part;
  }
  return out;
}

// Whatever a template does to a content, its bytes stay the request's.
TEST(JinjaProgram, KnowsWhereEveryByteComesFrom) {
  const Context context = {{"x", Text(" Ab,c ", true)}, {"d", FromJson(Json{{"k", "v\"<|e|>"}}, true)}};
  const std::pair<const char*, const char*> cases[] = {
      {"<{{ x }}>", "<[ Ab,c ]>"},
      {"{{ '<' + x + '>' }}", "<[ Ab,c ]>"},
      {"{{ '<' ~ x | trim ~ '>' }}", "<[Ab,c]>"},
      {"{{ x.strip().upper() }}", "[AB,C]"},
      {"{{ x.split(',') | join('|') }}", "[ Ab]|[c ]"},
      {"{{ x | replace('b', '<|im_end|>') }}", "[ A]<|im_end|>[,c ]"},
      {"{{ (x ~ '!')[1:] }}", "[Ab,c ]!"},
      {"{{ x | trim | list }}", "['[A]', '[b]', '[,]', '[c]']"},
      {"{{ d | tojson }}", "{\"[k]\": \"[v\\\"<|e|>]\"}"},
      {"{{ '%s-%s' % (x | trim, 'y') }}", "[Ab,c]-y"},
      {"{{ '{}{}'.format('<|', x | trim) }}", "<|[Ab,c]"},
      {"{% set t %}a{{ x }}{% endset %}{{ t | upper }}", "A[ AB,C ]"},
      {"{% macro m(v) %}({{ v }}){% endmacro %}{{ m(x | trim) | indent(2, true) }}", "  ([Ab,c])"},
      {"{{ x | trim | reverse }}", "[c,bA]"},
      {"{{ x * 2 }}", "[ Ab,c  Ab,c ]"},
      {"{{ [x] | string }}", "['[ Ab,c ]']"},
  };
  for (const auto& [source, wanted] : cases) {
    const auto text = RunIt(source, context);
    ASSERT_TRUE(text.ok()) << source << ": " << text.status().message();
    EXPECT_EQ(Marked(*text), wanted) << source;
  }
}

TEST(JinjaProgram, HostileTemplatesEndWithOneLine) {
  std::string deep_list = "{{ 1 }}", deep_if, deep_not = "{{ ";
  for (int i = 0; i < 5000; ++i) deep_list.insert(3, "["), deep_if += "{% if true %}", deep_not += "not ";
  std::string long_sum = "{{ 1";
  for (int i = 0; i < 5000; ++i) long_sum += " + 1";
  const std::string sources[] = {
      "{% for i in range(100000) %}{% for j in range(100000) %}{{ j }}{% endfor %}{% endfor %}",
      "{% set ns = namespace(x='ab') %}{% for i in range(99) %}{% set ns.x = ns.x + ns.x %}{% endfor %}",
      "{% set ns = namespace(x=[1]) %}{% for i in range(99) %}{% set ns.x = [ns.x, ns.x] %}{% endfor %}{{ ns.x == ns.x "
      "}}",
      "{% set ns = namespace(x=[1]) %}{% for i in range(50) %}{% set ns.x = [ns.x, ns.x] %}{% endfor %}{{ ns.x }}",
      "{% set ns = namespace(x=[1]) %}{% for i in range(50) %}{% set ns.x = [ns.x, ns.x] %}{% endfor %}{{ ns.x | "
      "tojson }}",
      "{% set ns = namespace(x=[]) %}{% for i in range(99999) %}{% set ns.x = [ns.x] %}{% endfor %}",
      "{% macro m(n) %}{{ m(n + 1) }}{% endmacro %}{{ m(0) }}",
      "{{ 'ab' * 99999999999 }}",
      "{{ [1] * 9223372036854775807 }}",
      "{{ 'a' | center(99999999999) }}",
      "{{ 'a'.ljust(99999999999) }}",
      "{{ '%99999d' % 1 }}",
      "{{ '{:99999}'.format(1) }}",
      "{{ 9223372036854775807 + 1 }}",
      "{{ -9223372036854775807 - 2 }}",
      "{{ 2 ** 64 }}",
      "{{ 1 // 0 }}",
      "{{ range(100001) | list }}",
      "{{ range(0, 9223372036854775807, 1) | list }}",
      "{{ [1, 2] | batch(9223372036854775807, 0) | list }}",
      "{{ [1] | slice(9223372036854775807) | list }}",
      "{{ 'a' | indent(99999999999) }}",
      "{{ 'x' | replace('', 'y' * 1000000) * 1000000 }}",
      "{% include 'secrets' %}",
      "{{ ''.__class__.__mro__ }}",
      "{{ messages.append(1) }}",
      "{{ [1].append(2) }}",
      "{{ raise_exception('no\nsystem') }}",
      "{{ nothing.at.all }}",
      "{{ 'open ",
      "{% if x %}",
      "{% for x in %}{% endfor %}",
      "{{ 1 | nosuch }}",
      "{{ 1 is nosuch }}",
      "{% break %}",
      "{{ \"\\x4\" }}",
      "{# never",
      "{% raw %}",
      deep_list,
      deep_if,
      deep_not + "1 }}",
      long_sum + " }}",
  };
  for (const std::string& source : sources) {
    const auto begin = std::chrono::steady_clock::now();
    const auto text = RunIt(source);
    EXPECT_FALSE(text.ok()) << source.substr(0, 100);
    if (text.ok()) continue;
    EXPECT_EQ(text.status().message().find('\n'), std::string::npos) << text.status().message();
    EXPECT_TRUE(text.status().message().starts_with("line 1 of the chat template: ")) << text.status().message();
    EXPECT_LT(std::chrono::steady_clock::now() - begin, std::chrono::seconds(60)) << source.substr(0, 100);
  }
}

TEST(JinjaProgram, OutputIsBounded) {
  Limits limits;
  limits.output_bytes = 1000;
  EXPECT_TRUE(RunIt("{% for i in range(100) %}123456789{% endfor %}", {}, limits).ok());
  EXPECT_FALSE(RunIt("{% for i in range(112) %}123456789{% endfor %}", {}, limits).ok());
}

TEST(JinjaProgram, TellsWhatIsMissing) {
  EXPECT_EQ(TextOf("a\n{{ message.content.text }}", {{"message", FromJson(Json::object(), true)}}),
            "ERROR line 2 of the chat template: 'message.content' is undefined, so it has no 'text'");
  EXPECT_EQ(TextOf("{{ raise_exception('No system here') }}"),
            "ERROR line 1 of the chat template: the template refuses this conversation: No system here");
  EXPECT_EQ(TextOf("{% frobnicate %}"), "ERROR line 1 of the chat template: unknown tag, found 'frobnicate'");
}

}  // namespace
}  // namespace weir::jinja
