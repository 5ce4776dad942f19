// SPDX-License-Identifier: Apache-2.0
#include "io/json.h"

#include <gtest/gtest.h>

#include <string>

namespace weir {
namespace {

std::string ErrorOf(const std::string& text) {
  const auto parsed = ParseJsonObject(text);
  return parsed.ok() ? "" : parsed.status().message();
}

// {"k":[x,x,...]}, n times.
std::string List(const std::string& x, int64_t n) {
  std::string out = R"({"k":[)";
  for (int64_t i = 0; i < n; ++i) out += (i > 0 ? "," : "") + x;
  return out + "]}";
}
std::string Object(int64_t n_keys) {
  std::string out = "{";
  for (int64_t i = 0; i < n_keys; ++i) out += (i > 0 ? ",\"" : "\"") + std::to_string(i) + "\":0";
  return out + "}";
}

// Every limit is the last number that is allowed.
TEST(Json, LimitsAreWhatTheySay) {
  const auto nested = [](int depth) {
    return R"({"k":)" + std::string(static_cast<size_t>(depth - 1), '[') +
           std::string(static_cast<size_t>(depth - 1), ']') + "}";
  };
  EXPECT_EQ(ErrorOf(nested(kMaxJsonDepth)), "");
  EXPECT_EQ(ErrorOf(nested(kMaxJsonDepth + 1)), "the JSON is nested deeper than 32");
  EXPECT_EQ(ErrorOf(Object(kMaxJsonKeysOfOne)), "");
  EXPECT_EQ(ErrorOf(Object(kMaxJsonKeysOfOne + 1)), "an object of the JSON holds more than 2048 keys");
  // One key more than those of the list.
  EXPECT_EQ(ErrorOf(List(R"({"a":0})", kMaxJsonKeys - 1)), "");
  EXPECT_EQ(ErrorOf(List(R"({"a":0})", kMaxJsonKeys)), "the JSON holds more than 65536 keys");
  // Of the text as it stands, before it is known what is a value: itself, each bracket and each comma count.
  EXPECT_EQ(ErrorOf(List("0", kMaxJsonValues - 2)), "");
  EXPECT_EQ(ErrorOf(List("0", kMaxJsonValues - 1)), "the JSON holds more than 1048576 values");
}

// What looks like structure within a string is none.
TEST(Json, StringsAreNotCounted) {
  EXPECT_EQ(ErrorOf(R"({"k":"[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[\"[{"})"), "");
  EXPECT_EQ(ErrorOf(R"({"k":"\\"})"), "");
  EXPECT_EQ(ErrorOf(R"({"k":1}})"), "the body is not valid JSON");
}

}  // namespace
}  // namespace weir
