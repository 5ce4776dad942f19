// SPDX-License-Identifier: Apache-2.0
#include "serve/chat_body.h"

#include <gtest/gtest.h>

#include <string>

namespace weir {
namespace {

TEST(ChatBody, NamesTheClientsOwnFields) {
  const Json theirs = {{"num_predict", 3}, {"top_k", nullptr}, {"top_p", 0.5}};
  Fields fields(theirs);
  ChatBody body;
  body.Take(fields, "num_predict", "max_tokens");
  body.Take(fields, "top_k", "top_k");
  body.Take(fields, "top_p", "top_p");
  EXPECT_TRUE(fields.Done().ok());
  EXPECT_EQ(body.fields(), (Json{{"max_tokens", 3}, {"top_p", 0.5}}));
  body.Add({{"role", "system"}, {"content", "a"}}, "system");
  body.Add({{"role", "user"}, {"content", "b"}}, "input[1]");
  const auto said = [&](const std::string& message) {
    return body.InTheirWords(InvalidArgument("{}", message)).message();
  };
  EXPECT_EQ(said("'max_tokens' must be a number"), "'num_predict' must be a number");
  EXPECT_EQ(said("'max_tokens_x' must be a number"), "'max_tokens_x' must be a number");
  EXPECT_EQ(said("'top_p' must be 1"), "'top_p' must be 1");
  EXPECT_EQ(said("'messages[1].content[0].type' is wrong: 'x'"), "'input[1].content[0].type' is wrong: 'x'");
  EXPECT_EQ(said("'messages[0].content' is missing"), "'system.content' is missing");
  EXPECT_EQ(said("'messages[10].role' is missing"), "'messages[10].role' is missing");
  EXPECT_EQ(said("no field"), "no field");
  EXPECT_EQ(said("'"), "'");
  EXPECT_EQ(said(""), "");
  const Status corrupt = body.InTheirWords(Corrupt("'max_tokens' is odd"));
  EXPECT_EQ(corrupt.code(), StatusCode::kCorrupt);
}

}  // namespace
}  // namespace weir
