// SPDX-License-Identifier: Apache-2.0
// Forms of every kind through the one interface, FormSpec to masks. One file, although long: all cases share the tiny
// vocabulary and the helpers that write under its masks.
#include "text/forms/form.h"

#include <fmt/core.h>
#include <gtest/gtest.h>
#include <sys/resource.h>

#include <ctime>
#include <random>
#include <tuple>

#include "text/forms/form_cache.h"
#include "text/forms/gbnf.h"
#include "text/vocab_test_util.h"

namespace weir {
namespace {

using testing::MetadataBuilder;
using testing::SpellBytes;

// Of this thread: a bound on it holds beside other work, too.
double ProcessorSeconds() {
  timespec now{};
  clock_gettime(CLOCK_THREAD_CPUTIME_ID, &now);
  return static_cast<double>(now.tv_sec) + 1e-9 * static_cast<double>(now.tv_nsec);
}

// Bytes, some words, two control tokens. Words overlap in every way that a tree of them has to handle.
std::shared_ptr<const FormVocab> SmallVocab() {
  static const std::shared_ptr<const FormVocab> vocab = [] {
    std::vector<std::string> tokens;
    for (int b = 0; b < 256; ++b) tokens.push_back(SpellBytes(std::string(1, static_cast<char>(b))));
    for (const char* word : {" cdcdcdcdcdcdcdcdcdcdcdcdcdcdcdcdcdcdcd",
                             "the",
                             "there",
                             " the",
                             "\": \"",
                             "\",",
                             "\"",
                             "\"}",
                             "{\"",
                             "\"a\"",
                             "a\":",
                             "12",
                             "123",
                             "}}",
                             "]}",
                             ", \"",
                             "\n  ",
                             "null",
                             "true",
                             "\xC3\xA9",
                             "\xC3\xA9t",
                             "\xE2\x82",
                             "nul",
                             "aaaa",
                             "aaaaaaaa",
                             "\\\"",
                             "\\u00",
                             ".5",
                             "e1",
                             "<tool>",
                             "{\"name\"",
                             "/tool",
                             "abababababababababababababababababababab"}) {
      tokens.push_back(SpellBytes(word));
    }
    std::vector<int32_t> types(tokens.size(), 1);
    for (const char* control : {"<|im_end|>", "<|call|>"}) {
      tokens.emplace_back(control);
      types.push_back(3);
    }
    MetadataBuilder b;
    b.Add("tokenizer.ggml.model", "gpt2").Add("tokenizer.ggml.pre", "gpt-2").Add("tokenizer.ggml.tokens", tokens);
    b.Add("tokenizer.ggml.token_type", types).Add("tokenizer.ggml.merges", std::vector<std::string>{"t h"});
    const auto tokenizer = testing::LoadFrom(b);
    EXPECT_TRUE(tokenizer.ok()) << tokenizer.status().message();
    return FormVocab::Make(**tokenizer);
  }();
  return vocab;
}

std::shared_ptr<const Form> Made(FormSpec::Kind kind, const std::string& text) {
  FormSpec spec;
  spec.kind = kind;
  spec.text = text;
  auto form = MakeForm(spec, SmallVocab());
  EXPECT_TRUE(form.ok()) << form.status().message() << "\n" << text;
  return form.ok() ? *form : nullptr;
}
std::shared_ptr<const Form> Schema(const std::string& text) { return Made(FormSpec::Kind::kJsonSchema, text); }
std::shared_ptr<const Form> Grammar(const std::string& text) { return Made(FormSpec::Kind::kGrammar, text); }
std::shared_ptr<const Form> Regex(const std::string& text) { return Made(FormSpec::Kind::kRegex, text); }

bool Begins(const std::shared_ptr<const Form>& form, const std::string& text) {
  return form != nullptr && FormState(form).AcceptText(text).ok();
}
bool Has(const std::shared_ptr<const Form>& form, const std::string& text) {
  if (form == nullptr) return false;
  FormState state(form);
  return state.AcceptText(text).ok() && state.CanEnd();
}

struct Case {
  std::string form;
  std::vector<std::string> whole, not_whole;
};
void Check(const std::vector<Case>& cases, std::shared_ptr<const Form> (*make)(const std::string&)) {
  for (const Case& c : cases) {
    const auto form = make(c.form);
    for (const std::string& text : c.whole) EXPECT_TRUE(Has(form, text)) << c.form << "\n" << text;
    for (const std::string& text : c.not_whole) EXPECT_FALSE(Has(form, text)) << c.form << "\n" << text;
  }
}

std::string ErrorOf(FormSpec::Kind kind, const std::string& text) {
  FormSpec spec;
  spec.kind = kind;
  spec.text = text;
  const auto form = MakeForm(spec, SmallVocab());
  if (form.ok()) return "";
  EXPECT_EQ(form.status().message().find('\n'), std::string::npos);
  return form.status().message();
}

TEST(FormGrammar, ReadsWhatLlamaCppReads) {
  Check(
      {
          {R"(root ::= "a" | "b" c
c ::= [0-9]+ # digits)",
           {"a", "b0", "b12345"},
           {"", "b", "c", "ab"}},
          {"root ::= (\"x\" |\n  \"y\")* \"z\"", {"z", "xyxz"}, {"xy", "zz"}},
          {R"(root ::= [^a-c\n]{2,3})", {"xy", "d\xC3\xA9z", "---"}, {"x", "xa", "x\n", "wxyz"}},
          {R"(root ::= "\x41\u00e9\U0001F600\t\"" [\]\-\\])",
           {"A\xC3\xA9\xF0\x9F\x98\x80\t\"]", "A\xC3\xA9\xF0\x9F\x98\x80\t\"-"},
           {"A"}},
          {"root ::= .{2}", {"ab", "\n\xE2\x82\xAC"}, {"a", "abc"}},
          {R"g(root ::= "(" root ")" | "")g", {"", "()", "((()))"}, {"(", "())", ")"}},
          {R"(root ::= item{3} | item{5,} | item{0,1}
item ::= "ab"?)",
           {"", "ab", "ababab", "abababababab"},
           {"a", "aba"}},
          {R"(root ::= ws "x"
ws ::= ([ \t] ws)?)",
           {"x", "   \t x"},
           {" "}},
          {"root ::= \"a\" |\n\n  \"b\"\r\nother ::= \"c\"\n", {"a", "b"}, {"c"}},
          {R"(root ::= <|call|> "x")", {}, {"x", "<|call|>x"}},
          {"root ::= \"a\"\nroot ::= \"b\"", {"b"}, {"a"}},
          {R"(root ::= ("a" | "aa"){50,60})",
           {std::string(50, 'a'), std::string(120, 'a')},
           {std::string(49, 'a'), std::string(121, 'a')}},
          {R"(root ::= ([a-z]*){3,1000} "!")", {"!", "abc!"}, {"abc"}},
          {R"g(root ::= x x x x x x x x x x x x
x ::= "(" x ")" | "(" x "]" | "")g",
           {"", "((])", "()(]"},
           {"(", "]"}},
      },
      Grammar);
}

TEST(FormGrammar, NamesWhatIsWrong) {
  const std::pair<const char*, const char*> cases[] = {
      {"root ::= missing", "line 1 of the grammar: rule 'missing' is not defined"},
      {"other ::= \"a\"", "no rule 'root'"},
      {"root ::= root \"a\" | \"b\"", "rule 'root' refers to itself before anything is read"},
      {"root ::= a\na ::= b? c\nb ::= \"x\"\nc ::= a", "refers to itself before anything is read"},
      {"root ::= \"a", "does not end"},
      {"root ::= [a", "does not end"},
      {"root ::= [b-a]", "ends before it begins"},
      {"root ::= (\"a\"", "')' is expected"},
      {"root ::= *", "nothing to repeat"},
      {"root ::= \"a\"{2,1}", "at most 1 and at least 2"},
      {"root ::= \"a\"{99999999}", "repetitions"},
      {"root ::= \"\\q\"", "unknown escape"},
      {"root = \"a\"", "'::=' is expected"},
      {"root ::= \"a\"\n\n &", "line 3 of the grammar"},
      {"root ::= <|nowhere|>", "is not a control token"},
      {"root ::= !<[3]>", "cannot be held"},
      {"root ::= \"a\" root", "contradict each other"},
  };
  for (const auto& [text, what] : cases) {
    EXPECT_NE(ErrorOf(FormSpec::Kind::kGrammar, text).find(what), std::string::npos)
        << text << "\n"
        << ErrorOf(FormSpec::Kind::kGrammar, text);
  }
}

TEST(FormRegex, ReadsWholeTexts) {
  Check(
      {
          {"a|b*c", {"a", "c", "bbc"}, {"b", "ac"}},
          {"^(foo|ba[rz])$", {"foo", "bar", "baz"}, {"bax", "xfoo"}},
          {"^a|b$", {"a", "b"}, {"ab"}},
          {R"(\d{3}-\d{4,}(?:x\w+?)?)", {"123-4567", "123-45678xab_"}, {"123-456", "123-4567x"}},
          {R"([^\s\d]+\.[\u00e0-\u00ff]{1,2})", {"ab.\xC3\xA9", "x.\xC3\xA0\xC3\xBF"}, {"a b.\xC3\xA9", "ab.e"}},
          {R"((?<year>\x32\x30\d\d)[\-\/]\cJ?)", {"2026-", "2026/\n"}, {"1926-"}},
          {"a{,3}", {"a{,3}"}, {"aaa"}},
          {".*", {"", "abc"}, {"a\nb"}},
          {"[]|x", {"x"}, {""}},
          {"(a|aa){40}", {std::string(40, 'a'), std::string(80, 'a')}, {std::string(39, 'a'), std::string(81, 'a')}},
          {"x(^a|b)y|c", {"xby", "c"}, {"xay"}},
          {"\xC3\xA9+", {"\xC3\xA9\xC3\xA9"}, {"e"}},
      },
      Regex);
  for (const char* text : {"(", ")", "a**", "[a", "(?=a)", "(?!a)", "\\bfoo", "(a)\\1", "\\p{L}", "(?i)a", "a{3,2}",
                           "*a", "[b-a]", "\\", "a{9999999}", "\xFF"}) {
    EXPECT_NE(ErrorOf(FormSpec::Kind::kRegex, text), "") << text;
  }
}

TEST(FormSchema, HoldsEachKeyword) {
  const std::string label = std::string(63, 'a') + ".";
  const std::string longest = label + label + label + std::string(61, 'a');  // 253 characters
  Check(
      {
          {R"({"type":"null"})", {"null"}, {"nul", "true", ""}},
          {R"({"type":"boolean"})", {"true", "false"}, {"null"}},
          {R"({"type":"integer"})", {"0", "-12", "1234567890123456"}, {"01", "1.0", "1e3", "-", "12345678901234567"}},
          {R"({"type":"number"})", {"0", "-0.5", "1e-10", "12.25E+3"}, {".5", "1.", "1e", "1e100", "00"}},
          {R"({"type":["string","null"]})",
           {"null", "\"\"", "\"a\\n\\u00e9\\ud83d\\ude00\xC3\xA9\""},
           {"\"\n\"", "\"\\x\"", "\"\\ud83d\"", "\"a"}},
          {R"({"enum":["a",1,null,{"k":[1,true]}]})",
           {"\"a\"", "1", "null", "{\"k\":[1,true]}", "{\"k\": [1, true]}"},
           {"\"b\"", "2", "{\"k\":[1]}", "{}"}},
          {R"({"const":"a\"b"})", {R"("a\"b")"}, {R"("a")"}},
          {R"({"type":"string","enum":["a",1,"bb"],"minLength":2})", {"\"bb\""}, {"\"a\"", "1"}},
          {R"({"type":"string","minLength":2,"maxLength":3})",
           {"\"ab\"", "\"a\\n\xC3\xA9\"", "\"\\ud83d\\ude00xy\""},
           {"\"a\"", "\"abcd\""}},
          {R"({"type":"string","pattern":"^a+$"})", {"\"a\"", "\"aaa\""}, {"\"\"", "\"ab\""}},
          {R"({"type":"string","pattern":"b"})", {"\"b\"", "\"abc\""}, {"\"\"", "\"ac\""}},
          {R"({"type":"string","pattern":"^[a-z]+$","maxLength":3})", {"\"abc\""}, {"\"abcd\"", "\"A\""}},
          {R"({"allOf":[{"type":"string","pattern":"a"},{"pattern":"b$"},{"minLength":3}]})",
           {"\"aab\"", "\"xabyb\""},
           {"\"ab\"", "\"bba\""}},
          {R"({"allOf":[{"type":"string","pattern":"^a{1,3}$"},{"pattern":"^[a-z]+$"}]})",
           {"\"a\"", "\"aaa\""},
           {"\"\"", "\"aaaa\""}},
          {R"({"type":"string","pattern":"^[\"\\\\\\n]$"})", {R"("\"")", R"("\\")", R"("\n")"}, {"\"a\""}},
          {R"({"type":"string","format":"date"})",
           {"\"2024-02-29\"", "\"1999-12-31\""},
           {"\"2023-02-29\"", "\"2023-13-01\"", "\"0000-01-01\""}},
          {R"({"type":"string","format":"date-time"})",
           {"\"2024-02-29T23:59:59Z\"", "\"2024-01-01T00:00:00.5+01:00\""},
           {"\"2024-01-01T24:00:00Z\""}},
          {R"({"type":"string","format":"hostname"})",
           {"\"a.example\"", "\"" + longest + "\""},
           {"\"" + longest + "a\"", "\"-a\"", "\"a..b\""}},
          {R"({"type":"string","format":"uuid"})", {"\"01234567-89ab-CDEF-0123-456789abcdef\""}, {"\"0123\""}},
          {R"({"type":"string","format":"email"})", {"\"a.b@c.org\""}, {"\"a\"", "\"a@\""}},
          {R"({"type":"string","format":"ipv4"})", {"\"255.0.10.1\""}, {"\"256.0.0.1\"", "\"1.2.3\""}},
          {R"({"type":"string","format":"ipv6"})", {"\"::1\"", "\"2001:db8::8a2e:370:7334\""}, {"\"1:2\""}},
          {R"({"type":"string","format":"uri"})", {"\"https://example.org/a?b#c\""}, {"\"nowhere\""}},
          {R"({"type":"string","format":"int32"})", {"\"anything\""}, {}},
          {R"({"type":"integer","minimum":-3,"exclusiveMaximum":120})",
           {"-3", "0", "9", "119", "50"},
           {"-4", "120", "-0", "1200"}},
          {R"({"type":"number","minimum":0.5,"maximum":10.25})",
           {"0.5", "0.50", "1", "9.999", "10.25", "10.2"},
           {"0.4", "0", "10.26", "11", "1e0"}},
          {R"({"type":"number","exclusiveMinimum":0,"exclusiveMaximum":1})",
           {"0.1", "0.999"},
           {"0", "0.0", "1", "1.0"}},
          {R"({"type":"number","minimum":9,"exclusiveMaximum":10})",
           {"9", "9.9999999999999"},
           {"10", "9.9999999999999999", "9.999999999999999999"}},
          {R"({"type":"number","exclusiveMinimum":-1.5,"maximum":-0.25})",
           {"-1.4", "-1", "-0.25"},
           {"-1.5", "-0.2", "-1.50", "0"}},
          {R"({"type":"integer","multipleOf":7,"minimum":-20,"maximum":30})",
           {"-14", "0", "7", "28"},
           {"1", "35", "-21"}},
          {R"({"type":"integer","minimum":10})", {"10", "99", "123456"}, {"9", "-10"}},
          {R"({"type":"array","items":{"type":"integer"},"minItems":1,"maxItems":3})",
           {"[1]", "[1,2,3]", "[ 1, 2]", "[\n  1,\n  2\n]"},
           {"[]", "[1,2,3,4]", "[1,]", "[,1]"}},
          {R"({"type":"array"})", {"[]", "[1,[\"a\",{\"b\":null}]]"}, {"[", "[1"}},
          {R"({"type":"array","prefixItems":[{"type":"integer"},{"type":"boolean"}],"items":false})",
           {"[]", "[1]", "[1,true]"},
           {"[true]", "[1,true,1]"}},
          {R"({"type":"array","items":[{"type":"integer"}],"additionalItems":{"type":"null"},"minItems":3})",
           {"[1,null,null]"},
           {"[1,null]", "[1,2,3]"}},
          {R"({"type":"object","properties":{"a":{"type":"integer"},"b":{"type":"null"}},"required":["b"]})",
           {"{\"b\":null}", "{\"a\":1,\"b\":null}", "{ \"a\": 1, \"b\": null }"},
           {"{}", "{\"a\":1}", "{\"b\":null,\"a\":1}", "{\"b\":null,\"c\":1}", "{\"a\":1,}"}},
          {R"({"type":"object","properties":{"a":{"type":"integer"}},"additionalProperties":{"type":"boolean"}})",
           {"{}", "{\"a\":1,\"b\":true}", "{\"b\":true,\"c\":false}", "{\"ab\":true}"},
           {"{\"a\":true}", "{\"b\":1}", "{\"\\u0061\":true}"}},
          {R"({"type":"object"})", {"{}", "{\"x\":{\"y\":[]}}"}, {"{\"x\"}"}},
          {R"({"type":"object","patternProperties":{"^s":{"type":"string"},"n$":{"type":"integer"}},"additionalProperties":false})",
           {"{}", "{\"sx\":\"a\",\"xn\":1}"},
           {"{\"x\":1}", "{\"sx\":1}", "{\"sn\":1}", "{\"sn\":\"a\"}"}},
          {R"({"type":"object","required":["z"],"properties":{"a":{"type":"null"}}})",
           {"{\"z\":1}", "{\"a\":null,\"z\":{}}"},
           {"{\"a\":null}"}},
          {R"({"type":"object","properties":{"a":{"type":"null"},"b":{"type":"null"},"c":{"type":"null"}},"minProperties":1,"maxProperties":2})",
           {"{\"a\":null}", "{\"b\":null,\"c\":null}"},
           {"{}", "{\"a\":null,\"b\":null,\"c\":null}"}},
          {R"({"type":"object","additionalProperties":{"type":"null"},"minProperties":1,"maxProperties":2})",
           {"{\"a\":null}", "{\"a\":null,\"b\":null}"},
           {"{}", "{\"a\":null,\"b\":null,\"c\":null}"}},
          {R"({"anyOf":[{"type":"integer"},{"type":"string","maxLength":1}]})", {"1", "\"a\""}, {"true", "\"ab\""}},
          {R"({"oneOf":[{"type":"object","properties":{"k":{"const":"a"},"v":{"type":"integer"}},"required":["k","v"]},{"type":"object","properties":{"k":{"const":"b"}},"required":["k"]}]})",
           {"{\"k\":\"a\",\"v\":1}", "{\"k\":\"b\"}"},
           {"{\"k\":\"a\"}", "{\"k\":\"c\"}"}},
          {R"({"oneOf":[{"type":"integer","maximum":3},{"type":"number","exclusiveMinimum":3}]})",
           {"3", "3.5"},
           {"2.5"}},
          {R"({"$ref":"#/$defs/tree","$defs":{"tree":{"type":"object","properties":{"v":{"type":"integer"},"kids":{"type":"array","items":{"$ref":"#/$defs/tree"}}},"required":["v"]}}})",
           {"{\"v\":1}", "{\"v\":1,\"kids\":[{\"v\":2,\"kids\":[]}]}"},
           {"{\"kids\":[]}"}},
          {R"({"type":"object","properties":{"next":{"anyOf":[{"$ref":"#"},{"type":"null"}]}},"required":["next"],"additionalProperties":false})",
           {"{\"next\":null}", "{\"next\":{\"next\":null}}"},
           {"{}"}},
          {R"({"definitions":{"a b":{"type":"null"}},"$ref":"#/definitions/a%20b"})", {"null"}, {"1"}},
          {R"({"$ref":"#x","properties":{"default":{"$anchor":"x","type":"null"}}})", {"null"}, {"1"}},
          {R"({"$ref":"#x","default":{"$anchor":"x","type":"string"},"items":{"$anchor":"x","type":"null"}})",
           {"null"},
           {"1"}},
          {R"({"type":"object","properties":{"a":{"type":"null"}},"maxProperties":0})", {"{}"}, {"{\"a\":null}"}},
          {R"({"$defs":{"a/b~":{"type":"null"}},"$ref":"#/$defs/a~1b~0"})", {"null"}, {"1"}},
          {R"({"$defs":{"x":{"$anchor":"here","type":"null"}},"$ref":"#here"})", {"null"}, {"1"}},
          {R"({"type":"object","allOf":[{"properties":{"a":{"type":"integer"}},"required":["a"]},{"properties":{"a":{"minimum":5},"b":{"type":"null"}}}]})",
           {"{\"a\":5}", "{\"a\":6,\"b\":null}"},
           {"{\"a\":4}", "{\"b\":null}"}},
          {R"({"type":"object","properties":{"a":{"type":"integer"}},"anyOf":[{"required":["a"]},{"properties":{"b":{"type":"null"}},"required":["b"]}]})",
           {"{\"a\":1}", "{\"b\":null}", "{\"a\":1,\"b\":null}"},
           {"{}"}},
          {R"({"type":"object","properties":{"a":false,"b":true}})", {"{}", "{\"b\":[1]}"}, {"{\"a\":1}"}},
          {R"({"type":"integer","nullable":true})", {"1", "null"}, {"true"}},
          {R"({"properties":{"a":{"type":"null"}}})", {"{\"a\":null}"}, {"1", "\"x\""}},
          {R"({})", {"1", "[{}]", "\"x\"", "{\"a\":{}}"}, {"x"}},
          {R"({"type":"string","maxLength":100000})", {"\"" + std::string(5000, 'a') + "\""}, {}},
          {R"({"type":"array","uniqueItems":true,"maxItems":1})", {"[]", "[1]"}, {"[1,2]"}},
          {R"({"type":"array","uniqueItems":true,"items":{"enum":["a","b",1,1.0,null]}})",
           {"[]", "[\"a\"]", "[null,1,\"b\",\"a\"]"},
           {"[\"a\",\"a\"]", "[1,1]", "[\"a\",\"b\",1,null,\"a\"]", "[2]"}},
          {R"({"type":"array","uniqueItems":true,"items":{"enum":["a","b","c"]},"minItems":2,"maxItems":2})",
           {"[\"c\",\"a\"]"},
           {"[]", "[\"a\"]", "[\"a\",\"b\",\"c\"]", "[\"b\",\"b\"]"}},
          {R"({"type":"object","propertyNames":{"type":"string"},"additionalProperties":{"type":"null"}})",
           {"{}", "{\"x\":null}"},
           {"{\"x\":1}"}},
          {R"({"type":"object","propertyNames":{"enum":["a","b"]},"additionalProperties":{"type":"null"}})",
           {"{}", "{\"a\":null}", "{\"a\":null,\"b\":null}"},
           {"{\"c\":null}", "{\"a\":null,\"a\":null}", "{\"a\":1}"}},
          {R"({"type":"object","propertyNames":{"pattern":"^x","maxLength":3},"additionalProperties":{"type":"null"}})",
           {"{}", "{\"x\":null}", "{\"xyz\":null,\"x\":null}"},
           {"{\"y\":null}", "{\"xxxx\":null}"}},
          {R"({"type":"object","properties":{"ab":{"type":"null"},"b":true},"propertyNames":{"minLength":2}})",
           {"{}", "{\"ab\":null}"},
           {"{\"b\":1}", "{\"cc\":1}"}},
          {R"({"type":"object","propertyNames":false})", {"{}"}, {"{\"a\":1}"}},
          {R"({"type":"object","propertyNames":{"enum":["a","a"]},"additionalProperties":{"type":"null"}})",
           {"{}", "{\"a\":null}"},
           {"{\"a\":null,\"a\":null}"}},
          {R"({"type":"object","propertyNames":{"maxLength":65535,"minLength":1},"additionalProperties":true})",
           {"{}", "{\"abc\":1}"},
           {"{\"\":1}"}},
          {R"({"type":"array","uniqueItems":true,"minItems":2,"items":{"enum":[-1,18446744073709551615]}})",
           {"[-1,18446744073709551615]"},
           {"[-1,-1]"}},
      },
      Schema);
}

TEST(FormSchema, NamesWhatCannotBeHeldAndWhere) {
  const std::pair<const char*, const char*> cases[] = {
      {R"({"type":"object","properties":{"a":{"not":{}}}})", "'not' of the schema at '#/properties/a' cannot be held"},
      {R"({"items":{"contains":{}}})", "'contains' of the schema at '#/items'"},
      {R"({"type":"array","uniqueItems":true})", "'uniqueItems' of the schema at '#' cannot be held"},
      {R"({"uniqueItems":true,"items":{"enum":[1,2,3,4,5,6,7,8,9]}})", "at most 8 texts"},
      {R"({"uniqueItems":true,"items":{"enum":[[1],[2]]}})", "'uniqueItems'"},
      {R"({"if":{},"then":{}})", "'if'"},
      {R"({"unevaluatedProperties":false})", "'unevaluatedProperties'"},
      {R"({"dependentRequired":{"a":["b"]}})", "'dependentRequired'"},
      {R"({"propertyNames":{"anyOf":[{"pattern":"a"}]}})", "'anyOf' of the schema at '#/propertyNames'"},
      {R"x({"propertyNames":{"pattern":"(?=a)"}})x", "'pattern' of the schema at '#/propertyNames'"},
      {R"({"propertyNames":{"enum":["a"]},"required":["b"]})", "contradict each other"},
      {R"({"allOf":[{"enum":[-1]},{"enum":[18446744073709551615]}]})", "contradict each other"},
      {R"({"type":"object","properties":{"maybe":{"type":"integer","minimum":5,"maximum":4},"list":{"type":"array","minItems":2,"maxItems":1}},"required":["list"]})",
       "look at the schema at '#/properties/list'"},
      {R"({"type":"strin"})", "'type' of the schema at '#' must be one of"},
      {R"({"$ref":"#/nowhere"})", "refers to '#/nowhere', which is not there"},
      {R"({"$ref":"https://example.org/x"})", "refers to another document"},
      {R"({"$ref":"#"})", "refers to itself"},
      {R"({"allOf":[{"$ref":"#"}]})", "refers to itself"},
      {R"({"anyOf":[{"$ref":"#"},{"type":"null"}]})", "refers to itself"},
      {R"({"oneOf":[{"type":"integer"},{"type":"number"}]})", "a value may satisfy both 0 and 1"},
      {R"({"oneOf":[{"properties":{"a":{}}},{"type":"string"}]})", "a value may satisfy both"},
      {R"({"type":"number","multipleOf":0.01})", "'multipleOf'"},
      {R"({"type":"string","pattern":"(?=a)b"})", "'pattern' of the schema at '#' cannot be held: look-around"},
      {R"({"type":"string","format":"regex"})", "'format'"},
      {R"({"type":"string","minLength":-1})", "'minLength'"},
      {R"({"type":"integer","minimum":5,"maximum":4})", "contradict each other"},
      {R"({"allOf":[{"type":"string"},{"type":"null"}]})", "contradict each other"},
      {R"({"type":"object","required":["a"],"properties":{"a":false}})", "contradict each other"},
      {R"({"properties":{"b":{},"a":{"items":{"type":"string","minLength":3,"maxLength":2},"minItems":1}},"required":["a"]})",
       "contradict each other; look at the schema at '#/properties/a/items'"},
      {R"({"type":"object","properties":{"a":{"$ref":"#"}},"required":["a"]})", "contradict each other"},
      {R"({"properties":{"a":3}})", "the schema at '#/properties/a' must be an object, true or false"},
      {R"({"type":)", "the schema is not valid JSON"},
      {R"([])", "the schema must be a JSON object"},
      {R"({"minProperties":3})", "'minProperties'"},
      {R"({"const":18446744073709551617})", "'const' of the schema at '#' has a number that is too large"},
      {R"({"enum":[1,-98765432109876543210]})", "'enum' of the schema at '#' has a number that is too large"},
  };
  for (const auto& [text, what] : cases) {
    EXPECT_NE(ErrorOf(FormSpec::Kind::kJsonSchema, text).find(what), std::string::npos)
        << text << "\n"
        << ErrorOf(FormSpec::Kind::kJsonSchema, text);
  }
}

// Many schemas that a required text tells apart are not compared in pairs.
TEST(FormSchema, OneOfHoldsVeryManyTags) {
  std::string schema = R"({"oneOf":[)";
  for (int i = 0; i < 500; ++i) {
    schema += fmt::format(R"({}{{"type":"object","properties":{{"kind":{{"const":"k{}"}},"n":{{"type":"integer"}}}},)"
                          R"("required":["kind"]}})",
                          i == 0 ? "" : ",", i);
  }
  schema += "]}";
  EXPECT_EQ(ErrorOf(FormSpec::Kind::kJsonSchema, schema), "");
  const size_t at = schema.find("k499");
  schema.replace(at, 4, "k498");
  EXPECT_NE(ErrorOf(FormSpec::Kind::kJsonSchema, schema), "");
}

// What a mask says is what Accept() does, for every token, all along random answers.
void CheckMasks(const std::shared_ptr<const Form>& form, bool drop_space, int n_answers, uint32_t seed) {
  ASSERT_NE(form, nullptr);
  std::mt19937 random(seed);
  for (int answer = 0; answer < n_answers; ++answer) {
    FormState state(form, drop_space);
    for (int step = 0; step < 60; ++step) {
      const auto mask = state.Mask();
      ASSERT_TRUE(mask.ok()) << mask.status().message();
      std::vector<int32_t> allowed;
      for (int32_t id = 0; id < form->vocab()->n_tokens(); ++id) {
        FormState copy = state;
        const bool accepted = copy.Accept(id).ok();
        ASSERT_EQ((*mask)->Allows(id), accepted)
            << "token " << id << " '" << form->vocab()->Bytes(id) << "' at step " << step;
        if (accepted) allowed.push_back(id);
      }
      ASSERT_EQ((*mask)->n_allowed, std::ssize(allowed));
      ASSERT_EQ(state.MustEnd(), allowed.empty());
      ASSERT_TRUE(state.CanEnd() || !allowed.empty());
      if (allowed.empty()) break;
      ASSERT_TRUE(state.Accept(allowed[random() % allowed.size()]).ok());
    }
  }
}

TEST(FormState, MasksAreWhatAcceptDoes) {
  CheckMasks(
      Schema(
          R"({"type":"object","properties":{"a":{"type":"string","maxLength":40},"the":{"type":"array","items":{"type":"number"}}},
                        "required":["a"],"additionalProperties":{"type":"string"}})"),
      false, 6, 1);
  CheckMasks(Schema("{}"), false, 6, 2);
  CheckMasks(Schema(R"({"type":"array","minItems":1,"items":{"type":"string","minLength":35,"maxLength":90}})"), false,
             4, 3);
  CheckMasks(Grammar(R"g(root ::= " the" x | x
x ::= "(" x ")" | "(" x "]" | [^()\]]{0,50} | <|call|> x)g"),
             false, 6, 4);
  CheckMasks(Regex("(ab|aaaa)*(the|there)? ?"), true, 6, 5);
  CheckMasks(Regex(" ?the.{0,64}"), true, 6, 6);
  CheckMasks(Regex("(a|aa|aaa){0,200}b|(ab){10,50}"), false, 4, 7);
  CheckMasks(Regex(" (cd){0,40}"), true, 6, 8);
  CheckMasks(Regex("(cd){0,40}"), true, 6, 9);
}

TEST(FormState, ADroppedSpaceIsNotPartOfTheText) {
  const auto form = Regex("the");
  FormState state(form, true);
  ASSERT_TRUE(state.AcceptText("").ok());
  const auto find = [&](std::string_view text) {
    for (int32_t id = 0; id < form->vocab()->n_tokens(); ++id) {
      if (form->vocab()->Bytes(id) == text) return id;
    }
    return -1;
  };
  EXPECT_TRUE((*state.Mask())->Allows(find(" the")));
  EXPECT_FALSE((*FormState(form).Mask())->Allows(find(" the")));
  ASSERT_TRUE(state.Accept(find(" the")).ok());
  EXPECT_TRUE(state.CanEnd());
  EXPECT_TRUE(state.MustEnd());
  EXPECT_FALSE(state.Accept(find("the")).ok());
  EXPECT_FALSE(state.Accept(-1).ok());
  EXPECT_FALSE(state.Accept(1 << 20).ok());
}

TEST(FormState, TokensThatAreNoTextAreHeldToo) {
  const auto form = Grammar(R"(root ::= "a" <|call|> "b")");
  FormState state(form);
  ASSERT_TRUE(state.AcceptText("a").ok());
  const int32_t call = form->vocab()->FindControl("<|call|>");
  const auto mask = state.Mask();
  ASSERT_TRUE(mask.ok());
  EXPECT_EQ((*mask)->n_allowed, 1);
  EXPECT_TRUE((*mask)->Allows(call));
  ASSERT_TRUE(state.Accept(call).ok());
  ASSERT_TRUE(state.AcceptText("b").ok());
  EXPECT_TRUE(state.CanEnd());
}

TEST(FormBuilder, FreeTextUntilAFormStarts) {
  FormBuilder builder(SmallVocab());
  const auto schema =
      builder.JsonSchema(R"({"type":"object","properties":{"a":{"type":"integer"}},"required":["a"]})", {false});
  ASSERT_TRUE(schema.ok());
  const auto call = builder.Sequence({*schema, builder.Text("</tool>")});
  const auto root = builder.Triggered({{"<tool>", call}});
  ASSERT_TRUE(root.ok());
  const auto form = builder.Build(*root);
  ASSERT_TRUE(form.ok()) << form.status().message();
  EXPECT_TRUE(Has(*form, "anything {at all"));
  EXPECT_TRUE(Has(*form, "x <to<tool>{\"a\":1}</tool> and <tool>{\"a\":2}</tool>"));
  EXPECT_FALSE(Has(*form, "x <tool>"));
  EXPECT_FALSE(Begins(*form, "x <tool>y"));
  EXPECT_FALSE(Has(*form, "<tool>{\"a\":1}"));
  CheckMasks(*form, false, 4, 8);

  const auto once =
      builder.Triggered({{"<tool>", call}, {forms::SpellToken(SmallVocab()->FindControl("<|call|>")), *schema}}, 1, 1);
  ASSERT_TRUE(once.ok());
  const auto must = builder.Build(*once);
  ASSERT_TRUE(must.ok());
  EXPECT_FALSE(Has(*must, "no call"));
  EXPECT_TRUE(Has(*must, "a <tool>{\"a\":1}</tool> done"));
  EXPECT_FALSE(Begins(*must, "a <tool>{\"a\":1}</tool> again <tool>"));
  FormState state(*must);
  ASSERT_TRUE(state.AcceptText("so ").ok());
  ASSERT_TRUE(state.Accept(SmallVocab()->FindControl("<|call|>")).ok());
  ASSERT_TRUE(state.AcceptText("{\"a\":7}").ok());
  EXPECT_TRUE(state.CanEnd());
  // A token that nobody sees, or that ends answers, is no free text.
  FormState free(*form);
  const auto mask = free.Mask();
  ASSERT_TRUE(mask.ok());
  EXPECT_FALSE((*mask)->Allows(SmallVocab()->FindControl("<|im_end|>")));
  EXPECT_FALSE((*mask)->Allows(SmallVocab()->FindControl("<|call|>")));
  EXPECT_FALSE(builder.Triggered({}).ok());
  EXPECT_FALSE(builder.Triggered({{"", call}}).ok());
  EXPECT_FALSE(builder.OneOf({}).ok());
  EXPECT_FALSE(builder.Choices({}).ok());
  EXPECT_FALSE(builder.Choices({"a", ""}).ok());
}

TEST(FormBuilder, WhatOnlyComesFirstAndWhatComesLast) {
  FormBuilder builder(SmallVocab());
  const auto number = builder.Regex("[0-9]+");
  ASSERT_TRUE(number.ok());
  const auto root = builder.Triggered(
      {{"{ \"n\" :", *number, /*first=*/true, /*last=*/true}, {"<n>", *number}, {"!", *number, false, true}});
  ASSERT_TRUE(root.ok());
  const auto form = builder.Build(*root);
  ASSERT_TRUE(form.ok()) << form.status().message();
  for (const char* text :
       {"", "so", "{\"m\":x", " {\n\"n\"\t:12", "{\"n\":1", "x {\"n\":x", "a<n>1b<n>2c", "a<n>1!7", "!7"}) {
    EXPECT_TRUE(Has(*form, text)) << text;
  }
  for (const char* text : {"{\"n\":x", "{ \"n\": 1", "{\"n\":1,", "<n>x", "!7 ", "a<n>1!x"}) {
    EXPECT_FALSE(Begins(*form, text)) << text;
  }
  CheckMasks(*form, false, 4, 8);
  const auto until = builder.Until({{"</n>", builder.Text(".")}, {"</m>", builder.Text("!")}});
  ASSERT_TRUE(until.ok());
  const auto ends = builder.Build(*until);
  ASSERT_TRUE(ends.ok());
  EXPECT_TRUE(Has(*ends, "a <b></n>."));
  EXPECT_TRUE(Has(*ends, "</m>!"));
  EXPECT_FALSE(Begins(*ends, "a</n>!"));
  EXPECT_FALSE(Has(*ends, "a"));
  EXPECT_FALSE(builder.Until({{"a", *number, true}}).ok());
  const auto without = builder.Without({"ab", "bc"});
  ASSERT_TRUE(without.ok());
  const auto free = builder.Build(*without);
  ASSERT_TRUE(free.ok());
  EXPECT_TRUE(Has(*free, "acba"));
  EXPECT_FALSE(Begins(*free, "abc"));
  EXPECT_FALSE(Begins(*free, "xbc"));
}

TEST(FormBuilder, ChoicesAreWhole) {
  FormSpec spec;
  spec.kind = FormSpec::Kind::kChoices;
  spec.choices = {"yes", "yes please", "no"};
  const auto form = MakeForm(spec, SmallVocab());
  ASSERT_TRUE(form.ok());
  EXPECT_TRUE(Has(*form, "yes"));
  EXPECT_TRUE(Has(*form, "yes please"));
  EXPECT_FALSE(Has(*form, "yes p"));
  EXPECT_FALSE(Begins(*form, "non"));
}

// Each escape is what it is in ECMAScript; those that are not held are refused, and so are broken ones.
TEST(Form, EscapesOfExpressions) {
  const std::tuple<const char*, std::string, std::string> cases[] = {
      {R"(\d\D)", "7x", "x7"},
      {R"(\w\W)", "_-", "-_"},
      {R"(\s\S)", "\n.", ".."},
      {R"(\t\n\r\f\v\0)", std::string("\t\n\r\f\v\0", 6), "tnrfv0"},
      {R"(\x41\x7a)", "Az", "41"},
      {R"(\u00e9\u{1F600}\ud83d\ude00)", "\xc3\xa9\xf0\x9f\x98\x80\xf0\x9f\x98\x80", "e"},
      {R"(\cJ\cj)", "\n\n", "JJ"},
      {R"([\b\-\]]{3})", "\b-]", "b-]"},
      {R"([^\d\s])", "x", "7"},
      {R"(\.\*\/\\)", ".*/\\", "abcd"},
      {R"([a-c-e]{2})", "-e", "d-"},
  };
  for (const auto& [expression, whole, other] : cases) {
    const auto form = Regex(expression);
    EXPECT_TRUE(Has(form, whole)) << expression;
    EXPECT_FALSE(Has(form, other)) << expression;
  }
  const std::pair<const char*, const char*> wrong[] = {
      {R"(\x4g)", "hexadecimal digits are missing"},
      {R"(\u12)", "hexadecimal digits are missing"},
      {R"(\u{})", "hexadecimal digits are missing"},
      {R"(\u{1234567})", "hexadecimal digits are missing"},
      {R"(\u{110000})", "no such character"},
      {R"(\u{41)", ""},
      {R"(\ud83d)", "half a surrogate pair"},
      {R"(\ud83d\u0041)", "half a surrogate pair"},
      {R"(\ude00)", "half a surrogate pair"},
      {R"(\c1)", "a letter is missing after \\c"},
      {R"(\01)", "octal escapes are not supported"},
      {R"(a\b)", "\\b cannot be held"},
      {R"((a)\1)", "\\1 is not supported"},
      {R"(\q)", "\\q is not supported"},
      {"a\\", "the expression ends within an escape"},
      {"[a", "']' is missing"},
      {"[z-a]", "a range that ends before it begins"},
  };
  for (const auto& [expression, said] : wrong) {
    const std::string error = ErrorOf(FormSpec::Kind::kRegex, expression);
    EXPECT_NE(error, "") << expression;
    EXPECT_NE(error.find(said), std::string::npos) << expression << ": " << error;
  }
}

// What nests too deep is not written; what is hostile ends with an error, soon.
TEST(Form, HostileInputEnds) {
  const double start = ProcessorSeconds();
  FormState deep(Schema("{}"));
  int depth = 0;
  while (depth < 5000 && deep.AcceptText("[").ok()) ++depth;
  EXPECT_GT(depth, 200);
  EXPECT_LT(depth, 1100);
  EXPECT_TRUE(deep.Mask().ok());
  for (; depth > 0; --depth) ASSERT_TRUE(deep.AcceptText("]").ok());
  EXPECT_TRUE(deep.CanEnd());

  std::string all_of = R"({"allOf":[)";  // 2^30 combinations
  for (int i = 0; i < 30; ++i) {
    all_of += fmt::format(R"({}{{"anyOf":[{{"properties":{{"a{}":{{}}}}}},{{"properties":{{"b{}":{{}}}}}}]}})",
                          i ? "," : "", i, i);
  }
  EXPECT_NE(ErrorOf(FormSpec::Kind::kJsonSchema, all_of + "]}").find("too complex"), std::string::npos);
  std::string wide = R"({"type":"object","properties":{)";
  for (int i = 0; i < 2000; ++i) wide += fmt::format(R"({}"key{}":{{"type":"integer"}})", i ? "," : "", i);
  FormState state(Schema(wide + "}}"));
  ASSERT_TRUE(state.AcceptText("{\"key").ok());
  EXPECT_TRUE(state.Mask().ok());
  EXPECT_NE(ErrorOf(FormSpec::Kind::kRegex, "((a{1000}){1000}){1000}x(^b|c)"), "");
  EXPECT_TRUE(Begins(Regex("((a{1000}){1000}){1000}"), std::string(3000, 'a')));
  EXPECT_NE(ErrorOf(FormSpec::Kind::kJsonSchema, R"({"type":"string","pattern":"(a|b)*a(a|b){20}$","maxLength":500})"),
            "");
  EXPECT_NE(ErrorOf(FormSpec::Kind::kRegex, std::string(5000, '(')), "");
  EXPECT_NE(ErrorOf(FormSpec::Kind::kGrammar, "root ::= " + std::string(5000, '(')), "");
  EXPECT_NE(ErrorOf(FormSpec::Kind::kGrammar, std::string((1 << 20) + 1, ' ')), "");
  FormState ambiguous(Grammar("root ::= ((([a-z]{0,30}){0,30} [a-z]?){0,30} [a-z]?){0,100000}"));
  for (int i = 0; i < 40 && ambiguous.Accept('a').ok(); ++i) {
    (void)ambiguous.Mask();
  }
  EXPECT_LT(ProcessorSeconds() - start, 60);
}

std::string Repeated(std::string_view text, int n) {
  std::string out;
  for (int i = 0; i < n; ++i) out += (i ? "," : "") + std::string(text);
  return out;
}

// Schemas of less than a MiB that would take minutes or gigabytes if all of their combinations were worked out.
TEST(FormSchema, HostileSchemasTakeLittle) {
  const std::string key(100'000, 'k');
  std::string chain, choices, patterns;
  for (int i = 1; i < 45'000; ++i) chain += fmt::format(R"({{"$ref":"#/x/{}"}},)", i);
  for (int i = 0; i < 5000; ++i) choices += fmt::format(R"({}{{"minItems":{}}})", i ? "," : "", i);
  for (int i = 0; i < 280; ++i)
    patterns += fmt::format(R"({}{{"pattern":"^(a|b)*a(a|b){{12}}(|c{})$"}})", i ? "," : "", i);
  const std::string many = Repeated("0", 100'000);
  struct Hostile {
    std::string schema, what;  // "": it is held
  } const cases[] = {
      {R"({"$ref":"#/x/0","x":[)" + chain + R"({"type":"null"}]})", "more than 200 references and allOf in a row"},
      {R"({"type":"string","minLength":1,"pattern":"(a)" +
           [] {
             std::string out;
             for (int i = 1; i < 1000; ++i) out += "|a";
             return out;
           }() +
           R"(){50000}"})",
       "'pattern' of the schema at '#' cannot be held"},
      {R"({"properties":{")" + key + R"(":{"allOf":[)" + Repeated("{}", 33'000) + "]}}}", ""},
      {R"({"const":[)" + many + R"(],"anyOf":[)" + choices + "]}", "more than 20000 parts"},
      {R"({"const":[)" + Repeated("0", 10'000) + R"(],"anyOf":[)" + choices + "]}", "too complex"},
      {R"({"enum":[")" + std::string(20, 'a') + R"("],"allOf":[)" + patterns + "]}", "too many steps"},
      {R"({"allOf":[)" + Repeated(R"({"$ref":"#x"})", 20) + R"(],"default":{")" + key + R"(":[)" + many +
           R"(]},"$defs":{"d":{"$anchor":"x","type":"null"}}})",
       ""},
  };
  for (const Hostile& hostile : cases) {
    const double start = ProcessorSeconds();
    const std::string error = ErrorOf(FormSpec::Kind::kJsonSchema, hostile.schema);
    EXPECT_NE(error.find(hostile.what), std::string::npos) << hostile.schema.substr(0, 100) << "\n" << error;
    EXPECT_EQ(error.empty(), hostile.what.empty()) << hostile.schema.substr(0, 100) << "\n" << error;
    EXPECT_LT(ProcessorSeconds() - start, 10) << hostile.schema.substr(0, 100);
  }
  rusage usage{};
  ASSERT_EQ(getrusage(RUSAGE_SELF, &usage), 0);
  EXPECT_LT(usage.ru_maxrss / 1024, 1500);  // MiB, of the whole process
}

// The error is not one that goes away when the request is sent again.
TEST(FormState, WorkThatIsSpentIsAnErrorOfTheForm) {
  std::string grammar = R"(root ::= "a")";  // and then a state of too many nodes
  for (int i = 0; i < 70'000; ++i) grammar += " [a-z]?";
  FormState state(Grammar(grammar));
  const auto mask = state.Mask();
  EXPECT_EQ(mask.status().code(), StatusCode::kUnsupported) << mask.status().message();
  EXPECT_NE(mask.status().message().find("too ambiguous"), std::string::npos);
  EXPECT_EQ(state.AcceptText("a").code(), StatusCode::kUnsupported);
}

// At the deepest level that is written, masks still say what Accept() does.
TEST(FormState, MasksKnowTheLimitOfNesting) {
  for (const char* text : {R"(root ::= [^!] root [0-9] | "!")", R"(root ::= "a" root{1,3} "b" | "!")"}) {
    const auto form = Grammar(text);
    FormState state(form);
    int depth = 0;
    for (; depth < 2000; ++depth) {
      FormState next = state;
      if (!next.AcceptText("a").ok()) break;
      if (depth > 970) {
        const auto mask = state.Mask();
        ASSERT_TRUE(mask.ok()) << mask.status().message();
        for (int32_t id = 0; id < form->vocab()->n_tokens(); ++id) {
          FormState copy = state;
          ASSERT_EQ((*mask)->Allows(id), copy.Accept(id).ok()) << "token " << id << " at depth " << depth;
        }
      }
      state = next;
    }
    EXPECT_LT(depth, 1001);
    EXPECT_GT(depth, 400);
  }
}

// A mask that took too much work leaves nothing behind that makes a later one wrong.
TEST(FormCache, WorkThatFailedIsNotKept) {
  forms::NetworkBuilder builder;
  const auto root =
      forms::AddGrammar("root ::= item{2,50}\nitem ::= \"a\" | \"(\" root \")\"", *SmallVocab(), &builder);
  ASSERT_TRUE(root.ok()) << root.status().message();
  auto finished = builder.Finish(*root, SmallVocab()->usable());
  ASSERT_TRUE(finished.ok());
  const auto network = std::make_shared<const forms::Network>(*std::move(finished));
  const auto mask_after = [&](int64_t credit, bool* failed) {
    forms::FormCache cache(network, SmallVocab());
    const auto state = cache.Read(cache.automaton.start(), "a(a(aa");
    cache.credit = credit;
    *failed = cache.MaskAt(state, false) == nullptr;
    cache.credit = forms::kFormWork;
    return cache.MaskAt(state, false)->bits;
  };
  bool failed = true;
  const auto whole = mask_after(forms::kFormWork, &failed);
  ASSERT_FALSE(failed);
  int64_t credit = -1;
  for (failed = true; failed && credit < 1'000'000; ++credit) {
    ASSERT_EQ(mask_after(credit, &failed), whole) << credit;
  }
  EXPECT_GT(credit, 10);
}

TEST(FormState, AnEndTokenIsNoText) {
  std::vector<std::string> tokens;
  for (int b = 0; b < 256; ++b) tokens.push_back(SpellBytes(std::string(1, static_cast<char>(b))));
  std::vector<int32_t> types(tokens.size(), 1);
  tokens.emplace_back("<end>");
  types.push_back(4);  // user-defined: not a control token
  MetadataBuilder b;
  b.Add("tokenizer.ggml.model", "gpt2").Add("tokenizer.ggml.pre", "gpt-2").Add("tokenizer.ggml.tokens", tokens);
  b.Add("tokenizer.ggml.token_type", types).Add("tokenizer.ggml.merges", std::vector<std::string>{"t h"});
  b.Add("tokenizer.ggml.eos_token_id", int64_t{256});
  const auto tokenizer = testing::LoadFrom(b);
  ASSERT_TRUE(tokenizer.ok()) << tokenizer.status().message();
  ASSERT_TRUE((*tokenizer)->IsEndOfGeneration(256));
  const auto form =
      MakeForm({.kind = FormSpec::Kind::kRegex, .text = ".*", .choices = {}}, FormVocab::Make(**tokenizer));
  ASSERT_TRUE(form.ok());
  const auto mask = FormState(*form).Mask();
  ASSERT_TRUE(mask.ok());
  EXPECT_TRUE((*mask)->Allows('a'));
  EXPECT_FALSE((*mask)->Allows(256));
}

TEST(Form, AVocabularyWithoutABytesTokenSaysSo) {
  std::vector<std::string> tokens = {"a", "b", "ab", "<|im_end|>"};
  MetadataBuilder b;
  b.Add("tokenizer.ggml.model", "gpt2").Add("tokenizer.ggml.pre", "gpt-2").Add("tokenizer.ggml.tokens", tokens);
  b.Add("tokenizer.ggml.token_type", std::vector<int32_t>{1, 1, 1, 3});
  b.Add("tokenizer.ggml.merges", std::vector<std::string>{"a b"});
  const auto tokenizer = testing::LoadFrom(b);
  ASSERT_TRUE(tokenizer.ok());
  const auto vocab = FormVocab::Make(**tokenizer);
  EXPECT_TRUE(MakeForm({.kind = FormSpec::Kind::kRegex, .text = "(ab|c)*", .choices = {}}, vocab).ok());
  const auto form = MakeForm({.kind = FormSpec::Kind::kRegex, .text = "abc", .choices = {}}, vocab);
  ASSERT_FALSE(form.ok());
  EXPECT_NE(form.status().message().find("no token for"), std::string::npos);
}

}  // namespace
}  // namespace weir
