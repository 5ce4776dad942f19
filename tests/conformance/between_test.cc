// SPDX-License-Identifier: Apache-2.0
// Session::AppendOptions::between: a session that reads in the middle of another one's chunk changes neither.
#include <functional>

#include "support/tiny.h"

namespace weir::testing {
namespace {

SessionOptions Options(const std::string& policy) {
  SessionOptions options;
  options.policy = std::move(ParsePolicySpec(policy)).value();
  options.pot_slots = 40;
  options.chunk_rows = 16;
  return options;
}

TEST(Between, ChangesNeitherSession) {
  for (const char* name : {"llama", "gemma3", "gemma3n", "qwen35", "qwen3moe", "deepseek2", "falcon_h1", "lfm2"}) {
    for (const char* policy : {"h2o", "weir"}) {
      SCOPED_TRACE(std::string(name) + ", " + policy);
      Tiny tiny(name);
      const auto make = [&] { return std::move(Session::Make(*tiny.model, *tiny.backend, Options(policy))).value(); };
      const std::vector<int32_t> tokens = RandomTokens(100, tiny.model->config().n_vocab);
      const std::span<const int32_t> all(tokens), text = all.first(90), question = all.subspan(7, 60);
      const auto alone = make(), other_alone = make(), session = make(), other = make();
      ASSERT_TRUE(alone->Append(text).ok());
      ASSERT_TRUE(other_alone->Append(question.first(5)).ok());
      for (const int32_t& token : question.subspan(5)) ASSERT_TRUE(other_alone->Append({&token, 1}).ok());

      size_t n_read = 0;
      Status read;
      const std::function<void()> between = [&] {
        const std::span<const int32_t> next =
            question.subspan(n_read, std::min<size_t>(n_read == 0 ? 5 : 1, question.size() - n_read));
        if (!read.ok() || next.empty()) return;
        read = other->Append(next);
        n_read += next.size();
      };
      Session::AppendOptions options;
      options.between = &between;
      ASSERT_TRUE(session->Append(text, options).ok());
      ASSERT_TRUE(read.ok()) << read.message();
      EXPECT_GE(n_read, 8U);
      for (const int32_t& token : question.subspan(n_read)) ASSERT_TRUE(other->Append({&token, 1}).ok());

      EXPECT_EQ(LogitsOf(*session), LogitsOf(*alone));
      EXPECT_EQ(Held(*session), Held(*alone));
      EXPECT_EQ(LogitsOf(*other), LogitsOf(*other_alone));
      EXPECT_EQ(Held(*other), Held(*other_alone));
    }
  }
}

}  // namespace
}  // namespace weir::testing
