// SPDX-License-Identifier: Apache-2.0
// What forms say that they take, beside what they take from the allocator: every allocation of this program is counted.
#include <gtest/gtest.h>
#include <malloc.h>

#include <algorithm>
#include <cstdlib>
#include <new>
#include <random>
#include <string>
#include <utility>
#include <vector>

#include "text/forms/form.h"
#include "text/vocab_test_util.h"

namespace {

int64_t live = 0, peak = 0;  // with what the allocator keeps beside each piece

}  // namespace

void* operator new(size_t n, const std::nothrow_t&) noexcept {
  void* const p = std::malloc(n);
  if (p == nullptr) return nullptr;
  live += static_cast<int64_t>(malloc_usable_size(p)) + 8;
  peak = std::max(peak, live);
  return p;
}
void* operator new(size_t n) {
  void* const p = operator new(n, std::nothrow);
  if (p == nullptr) throw std::bad_alloc();
  return p;
}
void* operator new[](size_t n) { return operator new(n); }
void* operator new[](size_t n, const std::nothrow_t&) noexcept { return operator new(n, std::nothrow); }
void operator delete(void* p) noexcept {
  if (p == nullptr) return;
  live -= static_cast<int64_t>(malloc_usable_size(p)) + 8;
  std::free(p);
}
void operator delete(void* p, size_t) noexcept { operator delete(p); }
void operator delete(void* p, const std::nothrow_t&) noexcept { operator delete(p); }
void operator delete[](void* p) noexcept { operator delete(p); }
void operator delete[](void* p, size_t) noexcept { operator delete(p); }
void operator delete[](void* p, const std::nothrow_t&) noexcept { operator delete(p); }

namespace weir {
namespace {

using testing::MetadataBuilder;
using testing::SpellBytes;

// Bytes, and words of several letters, as many as small models have.
std::unique_ptr<Tokenizer> ManyTokens(int n_tokens) {
  std::vector<std::string> tokens;
  for (int b = 0; b < 256; ++b) tokens.push_back(SpellBytes(std::string(1, static_cast<char>(b))));
  std::mt19937 random(7);
  while (static_cast<int>(tokens.size()) < n_tokens) {
    std::string word = random() % 2 == 0 ? " " : "";
    for (size_t i = 1 + random() % 9; i > 0; --i) word += static_cast<char>('a' + random() % 26);
    tokens.push_back(SpellBytes(word));
  }
  std::sort(tokens.begin() + 256, tokens.end());
  tokens.erase(std::unique(tokens.begin() + 256, tokens.end()), tokens.end());
  std::vector<int32_t> types(tokens.size(), 1);
  for (int i = 0; i < 100; ++i) {
    tokens.push_back("<|control " + std::to_string(i) + "|>");
    types.push_back(3);
  }
  MetadataBuilder b;
  b.Add("tokenizer.ggml.model", "gpt2").Add("tokenizer.ggml.pre", "gpt-2").Add("tokenizer.ggml.tokens", tokens);
  b.Add("tokenizer.ggml.token_type", types).Add("tokenizer.ggml.merges", std::vector<std::string>{"t h"});
  return testing::LoadFrom(b).value();
}

const std::shared_ptr<const FormVocab>& Vocab() {
  static const auto vocab = FormVocab::Make(*ManyTokens(20'000));
  return vocab;
}

std::string Repeated(std::string_view text, int n, std::string_view between = ",") {
  std::string out;
  for (int i = 0; i < n; ++i) {
    if (i > 0) out += between;
    out += text;
  }
  return out;
}

FormSpec Spec(FormSpec::Kind kind, std::string text) {
  FormSpec out;
  out.kind = kind;
  out.text = std::move(text);
  return out;
}

// Ordinary forms, and those that take as much of something as they can.
std::vector<FormSpec> Forms() {
  using Kind = FormSpec::Kind;
  std::vector<FormSpec> out;
  const auto schema = [&](std::string text) { out.push_back(Spec(Kind::kJsonSchema, std::move(text))); };
  const auto regex = [&](std::string text) { out.push_back(Spec(Kind::kRegex, std::move(text))); };
  const auto grammar = [&](std::string text) { out.push_back(Spec(Kind::kGrammar, std::move(text))); };
  schema("{}");
  schema(R"({"type":"object","properties":{"people":{"type":"array","items":{"type":"object","properties":{
    "name":{"type":"string"},"age":{"type":"integer","minimum":0,"maximum":150},
    "email":{"type":"string","format":"email"},"role":{"enum":["admin","user"]}},"required":["name","age"]}}}})");
  schema(R"({"type":"string","maxLength":4000})");
  grammar("root ::= ((([a-z]{0,30}){0,30} [a-z]?){0,30} [a-z]?){0,100000}");
  grammar(R"(root ::= [^!] root [0-9] | "!")");
  regex("([A-Z][a-z, ]+\\. )+");
  regex("((a{1000}){1000}){1000}");
  for (const int n : {100, 1000, 20'000, 60'000}) {
    const std::string key(static_cast<size_t>(n), 'k');
    std::string list, wide, patterns, choices;
    for (int i = 0; i < n / 12; ++i) {
      list += fmt::format(R"({}"v{}")", i ? "," : "", int64_t{7919} * i);
      choices += fmt::format(R"({}{{"minItems":{}}})", i ? "," : "", i);
    }
    for (int i = 0; i < std::min(n / 30, 2000); ++i) {
      wide += fmt::format(R"({}"key{}":{{"type":"integer"}})", i ? "," : "", i);
    }
    for (int i = 0; i < n / 40; ++i) {
      patterns += fmt::format(R"({}{{"type":"string","pattern":"(a|b)*a(a|b){{10}}x{}"}})", i ? "," : "", i);
    }
    schema(R"({"enum":[)" + list + "]}");
    schema(R"({"type":"object","properties":{)" + wide + "}}");
    schema(R"({"anyOf":[)" + patterns + "]}");
    schema(R"({"allOf":[)" + patterns + "]}");
    schema(R"({"const":[)" + Repeated("0", n / 10) + R"(],"anyOf":[)" + choices + "]}");
    schema(R"({"properties":{")" + key + R"(":{"allOf":[)" + Repeated("{}", n / 3) + "]}}}");
    schema("{\"x\":[" + Repeated("[]", n / 3) + "]}");
    regex(std::string(static_cast<size_t>(n), 'a'));
    regex(std::string(static_cast<size_t>(n), '.'));
    regex("^" + std::string(static_cast<size_t>(n), '.') + "|^a");
    regex("(x" + Repeated("|[a-y]", n / 6, "") + ")");
    grammar("root ::= \"a\"" + Repeated(" [a-z]?", n / 7, ""));
    std::string rules = "root ::= r0\n";
    const int n_rules = std::max(1, n / 28);
    for (int i = 0; i < n_rules; ++i) {
      rules += fmt::format("r{} ::= [a-z] r{} | [b-f] r{} | \"x\"\n", i, (i + 1) % n_rules, (i + 7) % n_rules);
    }
    grammar(rules);
  }
  schema(R"({"type":"string","pattern":"(a|b)*a(a|b){20}$","maxLength":500})");
  schema(R"({"type":"string","pattern":"(a|b)*a(a|b){11}$","maxLength":50})");
  schema(R"({"type":"string","minLength":1,"pattern":"(a)" + Repeated("|a", 999, "") + R"(){50000}"})");
  return out;
}

// Draws tokens that the form allows. kOk, or why the answer could not go on.
Status Write(FormState& state, int n_tokens, std::mt19937& random) {
  for (int i = 0; i < n_tokens && !state.MustEnd(); ++i) {
    WEIR_ASSIGN_OR_RETURN(const auto mask, state.Mask());
    if (mask->n_allowed == 0) break;
    int64_t skip = static_cast<int64_t>(random() % static_cast<uint64_t>(mask->n_allowed));
    int32_t token = 0;
    for (;; ++token) {
      if (mask->Allows(token) && skip-- == 0) break;
    }
    WEIR_RETURN_IF_ERROR(state.Accept(token));
  }
  return Status();
}

TEST(FormMemory, NoFormTakesMoreThanItsRoom) {
  (void)Vocab();
  for (const int64_t bytes : {int64_t{1} << 20, int64_t{4} << 20, int64_t{16} << 20, int64_t{96} << 20}) {
    int n_made = 0, n_whole = 0;
    const std::vector<FormSpec> forms = Forms();
    for (const FormSpec& spec : forms) {
      const std::string what =
          fmt::format("room {}, form {} of {} bytes", bytes, spec.text.substr(0, 60), spec.text.size());
      const int64_t before = live;
      const auto room = std::make_shared<FormRoom>(bytes);
      peak = live;
      {
        const auto form = MakeForm(spec, Vocab(), room);
        EXPECT_LE(peak - before, bytes) << what;
        if (form.ok()) {
          ++n_made;
          EXPECT_LE(live - before, room->used_bytes()) << what;
          EXPECT_LE(room->used_bytes(), bytes) << what;
          std::mt19937 random(11);
          peak = live;
          FormState state(*form);
          const Status written = Write(state, 60, random);
          EXPECT_LE(peak - before, bytes) << what;
          EXPECT_LE(live - before, room->used_bytes() + 4096) << what;
          n_whole += written.ok();
          EXPECT_TRUE(written.ok() || written.code() == StatusCode::kUnsupported) << what << ": " << written.message();
        } else {
          EXPECT_EQ(form.status().message().find('\n'), std::string::npos);
        }
      }
      EXPECT_EQ(room->used_bytes(), 0) << what;
    }
    std::printf("room %lld: %d of %zu forms made, %d answers written\n", static_cast<long long>(bytes), n_made,
                forms.size(), n_whole);
    EXPECT_GT(n_made, 10);
    EXPECT_GT(n_whole, 8);
  }
}

// Ordinary answers in the room that a session has by default, and the same tokens are allowed as without a room.
TEST(FormMemory, MasksAreThoseWithoutARoom) {
  const std::vector<FormSpec> forms = Forms();
  for (const int64_t bytes : {kLeastFormBytes, kDefaultFormBytes}) {
    for (size_t i = 0; i < 7; ++i) {
      const auto room = std::make_shared<FormRoom>(bytes);
      const auto form = MakeForm(forms[i], Vocab(), room), free_form = MakeForm(forms[i], Vocab());
      ASSERT_TRUE(form.ok() && free_form.ok()) << form.status().message();
      FormState state(*form), free(*free_form);
      std::mt19937 random(3);
      for (int step = 0; step < 120 && !free.MustEnd(); ++step) {
        const auto mask = state.Mask(), expected = free.Mask();
        ASSERT_TRUE(mask.ok() && expected.ok()) << i << ": " << mask.status().message();
        ASSERT_EQ((*mask)->bits, (*expected)->bits) << i;
        int64_t skip = static_cast<int64_t>(random() % static_cast<uint64_t>((*mask)->n_allowed));
        int32_t token = 0;
        while (!(*mask)->Allows(token) || skip-- > 0) ++token;
        ASSERT_TRUE(state.Accept(token).ok() && free.Accept(token).ok());
        ASSERT_EQ(state.CanEnd(), free.CanEnd());
      }
    }
  }
}

TEST(FormMemory, WhatOthersHaveIsNotThere) {
  const auto room = std::make_shared<FormRoom>(4 << 20);
  ASSERT_TRUE(room->Take(3 << 20));
  auto form = MakeForm(Spec(FormSpec::Kind::kRegex, "a*"), Vocab(), room);
  ASSERT_EQ(form.status().code(), StatusCode::kOverBudget);
  EXPECT_EQ(form.status().message(),
            "to make a form takes 2097152 bytes; of the 4194304 that are kept for forms others have 3145728");
  int n_asked = 0;
  room->SetReclaim([&] {
    ++n_asked;
    room->GiveBack(3 << 20);
  });
  form = MakeForm(Spec(FormSpec::Kind::kRegex, "a*"), Vocab(), room);
  EXPECT_TRUE(form.ok()) << form.status().message();
  EXPECT_EQ(n_asked, 1);
  room->SetReclaim(nullptr);

  // An answer meets the end of the room, and goes on when there is more.
  FormState state(*form);
  const int64_t left = room->bytes() - room->used_bytes();
  ASSERT_TRUE(room->Take(left));
  const auto refused = state.Mask();
  ASSERT_EQ(refused.status().code(), StatusCode::kUnsupported);
  EXPECT_NE(refused.status().message().find("left of the 4194304 bytes"), std::string::npos);
  room->GiveBack(left);
  EXPECT_TRUE(state.Mask().ok());
  EXPECT_TRUE(state.AcceptText("aa").ok());

  // So does one that could not even begin.
  const auto other = MakeForm(Spec(FormSpec::Kind::kRegex, "b*"), Vocab(), room);
  ASSERT_TRUE(other.ok());
  const int64_t rest = room->bytes() - room->used_bytes();
  ASSERT_TRUE(room->Take(rest));
  EXPECT_EQ(FormState(*other).Mask().status().code(), StatusCode::kUnsupported);
  EXPECT_EQ(FormState(*other).AcceptText("b").code(), StatusCode::kUnsupported);
  room->GiveBack(rest);
  EXPECT_TRUE(FormState(*other).Mask().ok());
  EXPECT_TRUE(CheckFormBytes(0).ok());
  EXPECT_FALSE(CheckFormBytes(100).ok());
}

TEST(FormMemory, TheVocabularyTakesWhatItSays) {
  const std::unique_ptr<Tokenizer> tokenizer = ManyTokens(50'000);
  const int64_t before = live;
  peak = live;
  const auto vocab = FormVocab::Make(*tokenizer);
  EXPECT_LE(peak - before, FormVocab::MostBytes(*tokenizer));
  EXPECT_NEAR(static_cast<double>(live - before), static_cast<double>(vocab->n_bytes()),
              static_cast<double>(vocab->n_bytes()) / 50);
}

}  // namespace
}  // namespace weir
