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

// Words for training are no loop of their own, and leave the one around them as it is.
TEST(JinjaProgram, ALoopEndsBehindWordsForTraining) {
  const auto text = RunIt("{% for x in [1, 2] %}{% generation %}a{% endgeneration %}{% break %}{% endfor %}");
  ASSERT_TRUE(text.ok()) << text.status().message();
  EXPECT_EQ(text->bytes(), "a");
  EXPECT_FALSE(RunIt("{% for x in [1] %}{% generation %}{% break %}{% endgeneration %}{% endfor %}").ok());
}

TEST(JinjaProgram, EverySpaceIsOne) {
  for (const char* space : {"\t", "\n", "\r", " ", "\x1c", "\x1f", "\u0085", "\u00a0", "\u1680", "\u2000", "\u200a",
                            "\u2028", "\u2029", "\u202f", "\u205f", "\u3000"}) {
    EXPECT_EQ(RunIt(std::string("{{ '") + space + "'.isspace() }}")->bytes(), "True") << space;
  }
  for (const char* other : {"\x08", "\x0e", "\x1b", "!", "\u1681", "\u200b", "\u2027", "\u202a", "\u3001"}) {
    EXPECT_EQ(RunIt(std::string("{{ '") + other + "'.isspace() }}")->bytes(), "False") << other;
  }
}

TEST(JinjaProgram, WhatIsUnknownIsAnErrorBeforeItRuns) {
  EXPECT_FALSE(Program::Parse("{{ 1 | nosuch }}").ok());
  EXPECT_FALSE(Program::Parse("{{ 1 is nosuch }}").ok());
}

TEST(JinjaProgram, ErrorsSpellOutWhatHasNoValue) {
  EXPECT_NE(RunIt("{% set a = {} %}{{ a.b.c }}").status().message().find("'a.b'"), std::string::npos);
}

TEST(JinjaProgram, ZerosFillOnlyWhereNothingElseDoes) {
  EXPECT_EQ(RunIt("{{ '{:05}|{:<05}|{:*<05}|{:*<5}'.format(1, 1, 1, 1) }}")->bytes(), "00001|10000|1****|1****");
}

TEST(JinjaProgram, LettersReachFromAToZ) {
  EXPECT_EQ(RunIt("{{ 'azAZ'.isalpha() }}")->bytes(), "True");
  for (const char* other : {"@", "[", "`", "{"}) {
    EXPECT_EQ(RunIt(std::string("{{ '") + other + "'.isalpha() }}")->bytes(), "False") << other;
  }
}

// Each method, filter, test, operator, format and statement with the arguments that make a difference; null: refused.
TEST(JinjaProgram, ExpressionsAreThoseOfJinja2) {
  std::ifstream in(SourceDir() + "/tests/golden/jinja/expressions.json");
  const Json golden = Json::parse(in);
  for (const Json& one : golden) {
    const std::string source = one[0].get<std::string>();
    const auto text = RunIt(source);
    if (one[1].is_null()) {
      EXPECT_FALSE(text.ok()) << source << ": " << text->bytes();
    } else {
      ASSERT_TRUE(text.ok()) << source << ": " << text.status().message();
      EXPECT_EQ(text->bytes(), one[1].get<std::string>()) << source;
    }
  }
  EXPECT_GT(golden.size(), 800u);
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
      {"{{ strftime_now(x) }}", "[ Ab,c ]"},
      {"{{ dict(**d) | list | first }}-{% macro m() %}{{ kwargs | list | first }}{% endmacro %}{{ m(**d) }}",
       "[k]-[k]"},
      {"{{ [1] | tojson(indent=x) }}", "[\n[ Ab,c ]1\n]"},
      {"{{ ('{:' ~ x[1] ~ '^3}').format('b') }}", "[A]b[A]"},
      {"{{ '<a>' | safe + x + d.k }}", "<a>[ Ab,c v&#34;&lt;|e|&gt;]"},
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
  std::string long_sum = "{{ 1", many_parameters = "{% macro m(a", many_keywords = "{{ dict(a=1", tuples;
  for (int i = 0; i < 5000; ++i) long_sum += " + 1";
  for (int i = 0; i < 20000; ++i) {
    many_parameters += ",a" + std::to_string(i);
    many_keywords += ",a" + std::to_string(i) + "=1";
  }
  for (const char* name : {"x", "y"}) {
    tuples += std::string("{% set ") + name + " = namespace(t=(1, 2)) %}{% for i in range(60) %}{% set " + name +
              ".t = (" + name + ".t, " + name + ".t) %}{% endfor %}";
  }
  const std::string lists =
      "{% set ns = namespace(x=[1]) %}{% for i in range(60) %}{% set ns.x = [ns.x, ns.x] %}{% endfor %}";
  const std::string brackets(60000, '('), closed(60000, ')'), name(300, 'n');
  std::string filters;
  for (int i = 0; i < 190; ++i) filters += "|upper";
  const std::string sources[] = {
      "{% for i in range(100000) %}{% for j in range(100000) %}{{ j }}{% endfor %}{% endfor %}",
      "{% set ns = namespace(x='ab') %}{% for i in range(99) %}{% set ns.x = ns.x + ns.x %}{% endfor %}",
      lists + "{{ ns.x == ns.x }}",
      lists + "{{ ns.x }}",
      lists + "{{ ns.x | tojson }}",
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
      "{{ dict(**messages, a=1) }}",
      "{{ dict(**messages, **messages) }}",
      "{{ dict(a=1, a=2) }}",
      "{{ 'abc'[0:1:1:1] }}",
      "{{ '%s%s' % 'a' }}",
      "{% for x in [1] %}{% endfor %}{% break %}",
      "{% macro m() %}{% endmacro %}{% break %}",
      "{% for x in [1] %}{% macro m() %}{% break %}{% endmacro %}{% endfor %}",
      "{{ 1 is nosuch }}",
      "{% break %}",
      "{{ \"\\x4\" }}",
      "{# never",
      "{% raw %}",
      deep_list,
      deep_if,
      deep_not + "1 }}",
      "{% set " + brackets + "a" + closed + " = 1 %}",
      "{{ " + brackets + "1" + closed + " }}",
      "{% macro m(n) %}{{ m(n)" + filters + " }}{% endmacro %}{{ m(0) }}",
      many_parameters + ") %}{% endmacro %}",
      many_keywords + ") }}",
      "{{ " + name + " }}",
      // What places alone take gets a keyword.
      "{{ {}.get(k=1) }}",
      "{{ 'a'.startswith(prefix='a') }}",
      "{{ range(stop=1) }}",
      "{{ 1 is sameas(other=1) }}",
      "{{ ','.join(items=[]) }}",
      // Work that leaves nothing behind, or little: it is paid for all the same.
      tuples + "{{ {x.t: 1, y.t: 2} }}",
      tuples + "{{ dict([(x.t, 1), (y.t, 2)]) }}",
      tuples + "{{ {x.t: 1}[y.t] }}",
      "{% set a = 'a' * 4000000 %}{{ (a ~ a).find(a ~ 'b') }}",
      "{% set a = 'a' * 4000000 %}{{ (a ~ a).rfind('b' ~ a) }}",
      "{% set a = 'a' * 4000000 %}{{ (a ~ 'b') in (a ~ a) }}",
      "{% set a = 'a' * 4000000 %}{{ (a ~ a).split(a ~ 'b') }}",
      "{% set a = 'a' * 4000000 %}{{ (a ~ a).count(a ~ 'b') }}",
      "{% set a = 'a' * 4000000 %}{{ (a ~ a) | replace(a ~ 'b', '') }}",
      "{% set a = 'a' * 4000000 %}{{ (a ~ a).rpartition('b' ~ a) }}",
      "{% set a = ' ' * 4000000 %}{% for i in range(99999) %}{% set b = a.strip() %}{% endfor %}",
      "{% set a = ' ' * 4000000 %}{% for i in range(99999) %}{% set b = a.removesuffix(a ~ 'x') %}{% endfor %}",
      "{% set a = ' ' * 4000000 %}{% for i in range(99999) %}{% set b = 'x'.count(a) %}{% endfor %}",
      "{% set p = '.' * 4000000 %}{{ range(9999) | map(attribute=p, default=1) | list }}",
      "{% set f = '{0[0]' ~ '[0]' * 1000000 ~ '}' %}{% for i in range(9999) %}{{ f.format('a') }}{% endfor %}",
      "{% set k = range(2000) | map('string') | list %}{% for i in range(99999) %}{{ k == k }}{% endfor %}",
      "{{ 'x' | replace('', 'y' * 9000000) | replace('', 'z' * 9000000) }}",
      "{{ ('a' | e) + '<' * 99999999 }}",
      long_sum + " }}",
  };
  for (const std::string& source : sources) {
    const auto begin = std::chrono::steady_clock::now();
    const auto text = RunIt(source);
    EXPECT_FALSE(text.ok()) << source.substr(0, 100);
    if (text.ok()) continue;
    EXPECT_EQ(text.status().message().find('\n'), std::string::npos) << text.status().message();
    EXPECT_TRUE(text.status().message().starts_with("line 1 of the chat template: ")) << text.status().message();
    EXPECT_LT(std::chrono::steady_clock::now() - begin, std::chrono::seconds(10)) << source.substr(0, 100);
  }
}

// Where bytes of two origins alternate, a text takes more than its bytes.
TEST(JinjaProgram, OriginsArePaidFor) {
  const Context context = {{"x", Text("a", true)}};
  EXPECT_TRUE(RunIt("{{ ('bc' * 8000000) | length }}", context).ok());
  EXPECT_FALSE(RunIt("{{ ((x ~ 'b') * 8000000) | length }}", context).ok());
  EXPECT_FALSE(RunIt("{{ (x * 4000000) | replace('', 'b') | length }}", context).ok());
  EXPECT_FALSE(RunIt("{% set t = (x ~ 'b') * 600000 %}{{ t }}{{ t }}", context).ok());
}

// Loops refer to each other: none keeps another, or itself, alive.
TEST(JinjaProgram, LoopsThatKnowEachOther) {
  Limits limits;
  limits.work = int64_t{1} << 30;
  const auto text = RunIt(
      "{% set ns = namespace(l=none) %}{% for i in range(90000) %}{% for j in [1] %}{% set _ = loop.changed(ns.l) %}"
      "{% set ns.l = loop %}{% endfor %}{% endfor %}{% for i in [1] %}{% set _ = loop.changed(loop) %}{% endfor %}"
      "{{ ns.l.index }}",
      {}, limits);
  ASSERT_TRUE(text.ok()) << text.status().message();
  EXPECT_EQ(text->bytes(), "1");
}

// A whole conversation stays far below the budget.
TEST(JinjaProgram, GoldensAreCheap) {
  std::ifstream in(SourceDir() + "/tests/golden/jinja/cases.json");
  const Json golden = Json::parse(in);
  Limits limits;
  limits.work = 1 << 18;
  for (const Json& one : golden) {
    for (const Json& c : one["cases"]) {
      if (c["text"].is_null()) continue;
      Context context;
      for (const auto& [key, value] : c["context"].items()) context.emplace_back(key, FromJson(value, true));
      EXPECT_TRUE(RunIt(one["template"].get<std::string>(), context, limits).ok()) << one["name"];
    }
  }
}

TEST(JinjaProgram, SourceIsBounded) {
  EXPECT_TRUE(RunIt(std::string(200 << 10, 'a')).ok());
  EXPECT_FALSE(RunIt(std::string(300 << 10, 'a')).ok());
}

// Errors reach terminals and one-line logs.
TEST(JinjaProgram, ErrorsHaveNoControlCharacters) {
  for (const char* source :
       {"{{ raise_exception('a\x1b[2J\x07\nb') }}", "{{ 'a' '\n' 7 }}", "{{ 1 'a\x1b\n' }}", "{% \x1b %}"}) {
    const auto text = RunIt(source);
    ASSERT_FALSE(text.ok()) << source;
    for (const char c : text.status().message()) EXPECT_GE(static_cast<unsigned char>(c), 0x20) << source;
  }
}

TEST(JinjaProgram, OutputIsBounded) {
  Limits limits;
  limits.output_bytes = 1000;
  EXPECT_TRUE(RunIt("{% for i in range(100) %}123456789{% endfor %}", {}, limits).ok());
  EXPECT_FALSE(RunIt("{% for i in range(112) %}123456789{% endfor %}", {}, limits).ok());
}

// As Python's int(): towards zero. What is no number, or does not fit 64 bits, is the default.
TEST(JinjaProgram, NumbersOfTextAndFractions) {
  EXPECT_EQ(TextOf("{{ 3.9 | int }} {{ -3.9 | int }} {{ '2.5' | int }} {{ '0x1f' | int(base=16) }}"), "3 -3 2 31");
  EXPECT_EQ(TextOf("{{ 1e30 | int(7) }} {{ -1e30 | int(7) }} {{ '1e30' | int(7) }} {{ 'x' | int }}"), "7 7 7 0");
  // The sign and the mark of a base come first; an underscore may follow, and stand between digits.
  EXPECT_EQ(TextOf("{{ '-0x_1f' | int(7, 16) }} {{ ' +0b1_1 ' | int(7, 2) }} {{ '0O17' | int(7, 8) }}"), "-31 3 15");
  EXPECT_EQ(TextOf("{{ '0x__f' | int(7, 16) }} {{ '0x' | int(7, 16) }} {{ '0x1' | int(7, 8) }}"), "7 7 7");
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
