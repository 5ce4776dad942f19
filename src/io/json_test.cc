// SPDX-License-Identifier: Apache-2.0
#include "io/json.h"

#include <gtest/gtest.h>

#include <cstdint>
#include <string>
#include <vector>

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

// What stands behind the text is not part of it.
TEST(Json, NothingBehindTheTextIsRead) { EXPECT_TRUE(ParseJsonObject(std::string_view("{}]").substr(0, 2)).ok()); }

class FieldsTest : public ::testing::Test {
 protected:
  // What is wrong with a field of each kind; "" where nothing is.
  template <typename... Range>
  static std::string Wrong(const char* json, auto value, Range... range) {
    const Json object = Json::parse(json);
    Fields fields(object, "where.");
    fields.Get("k", &value, range...);
    return fields.Done().message();
  }
};

TEST_F(FieldsTest, ValuesOfTheWrongKindAreNamed) {
  EXPECT_EQ(Wrong(R"({"k":"x"})", std::string()), "");
  EXPECT_EQ(Wrong(R"({"k":null})", std::string()), "");
  EXPECT_EQ(Wrong(R"({"k":1})", std::string()), "'where.k' must be a string");
  EXPECT_EQ(Wrong(R"({"k":true})", false), "");
  EXPECT_EQ(Wrong(R"({"k":0})", false), "'where.k' must be true or false");
  EXPECT_EQ(Wrong(R"({"k":0.5})", 0.0f, 0.0, 1.0), "");
  EXPECT_EQ(Wrong(R"({"k":"0"})", 0.0f, 0.0, 1.0), "'where.k' must be a number from 0 to 1");
  EXPECT_EQ(Wrong(R"({"k":1.01})", 0.0f, 0.0, 1.0), "'where.k' must be a number from 0 to 1");
  EXPECT_EQ(Wrong(R"({"K":1})", false), "'where.K' is not a known field");
}

// The ends of a range are in it; numbers beyond 64 bits, fractions and those that are written as such are not whole.
TEST_F(FieldsTest, WholeNumbersHaveARange) {
  const auto wrong = [](const char* json) { return Wrong(json, int64_t{0}, int64_t{-2}, int64_t{7}); };
  const std::string no = "'where.k' must be a whole number from -2 to 7";
  for (const char* good : {R"({"k":-2})", R"({"k":7})", R"({"k":null})", "{}"}) EXPECT_EQ(wrong(good), "") << good;
  for (const char* bad : {R"({"k":-3})", R"({"k":8})", R"({"k":1.0})", R"({"k":"1"})", R"({"k":true})", R"({"k":[1]})",
                          R"({"k":18446744073709551615})", R"({"k":18446744073709551616})"}) {
    EXPECT_EQ(wrong(bad), no) << bad;
  }
  EXPECT_EQ(Wrong(R"({"k":9223372036854775807})", int64_t{0}, int64_t{0}, INT64_MAX), "");
  EXPECT_NE(Wrong(R"({"k":9223372036854775808})", int64_t{0}, INT64_MIN, INT64_MAX), "");
}

TEST_F(FieldsTest, ValuesComeThrough) {
  const Json object = Json::parse(R"({"share":0.5,"n":-7,"text":"t","flag":false})");
  Fields fields(object);
  float share = 0;
  int64_t n = 0;
  std::string text;
  bool flag = true;
  fields.Get("share", &share, 0.0, 1.0);
  fields.Get("n", &n, int64_t{-10}, int64_t{10});
  fields.Get("text", &text);
  fields.Get("flag", &flag);
  EXPECT_TRUE(fields.Done().ok()) << fields.Done().message();
  EXPECT_EQ(share, 0.5f);
  EXPECT_EQ(n, -7);
  EXPECT_EQ(text, "t");
  EXPECT_FALSE(flag);
}

TEST_F(FieldsTest, TheFirstErrorIsKept) {
  const Json object = Json::parse(R"({"a":1,"b":2,"only":[1],"none":null})");
  Fields fields(object);
  bool flag = true;
  EXPECT_TRUE(fields.Has("a"));
  EXPECT_FALSE(fields.Has("none"));
  EXPECT_FALSE(fields.Has("x"));
  EXPECT_EQ(fields.Get("none"), nullptr);
  fields.Ignore("b");
  fields.Take(Status());
  fields.Only("only", Json::array({1}));
  fields.Only("absent", 0);
  EXPECT_NE(fields.Get("a"), nullptr);
  EXPECT_TRUE(fields.Done().ok()) << fields.Done().message();
  fields.Only("b", 3);
  EXPECT_EQ(fields.Done().message(), "'b' is not supported with any other value than 3");
  fields.Get("a", &flag);
  fields.Take(InvalidArgument("late"));
  EXPECT_EQ(fields.Done().message(), "'b' is not supported with any other value than 3");
  EXPECT_TRUE(flag);
}

TEST_F(FieldsTest, WhatIsNoObjectIsNamed) {
  const Json list = Json::array({1});
  std::string text = "as it was";
  Fields body(list), part(list, "part.");
  body.Get("k", &text);
  EXPECT_FALSE(body.Has("k"));
  EXPECT_EQ(body.Done().message(), "the body must be an object");
  EXPECT_EQ(part.Done().message(), "'part' must be an object");
  EXPECT_EQ(text, "as it was");
}

TEST(Json, TokenIdsAreWithinTheVocabulary) {
  const auto ids = [](const char* text) { return TokenIds(Json::parse(text), "ids", 5); };
  EXPECT_EQ(*ids("[0,4,4]"), (std::vector<int32_t>{0, 4, 4}));
  EXPECT_TRUE(ids("[]")->empty());
  EXPECT_EQ(ids("{}").status().message(), "'ids' must be a list of token ids");
  for (const char* bad : {"[0,5]", "[0,-1]", "[0,1.0]", "[0,\"1\"]", "[0,18446744073709551615]", "[0,null]"}) {
    EXPECT_EQ(ids(bad).status().message(), "'ids[1]' must be a token id from 0 to 4") << bad;
  }
}

// Bytes that are no UTF-8 are replaced: what is sent is always JSON.
TEST(Json, TextOfAnyBytesIsJson) {
  EXPECT_EQ(JsonText("a\xff\xc3"), "\"a\xef\xbf\xbd\xef\xbf\xbd\"");
  EXPECT_FALSE(Json::parse(JsonText({{"k\x80", "\xed\xa0\x80"}}), nullptr, false).is_discarded());
}

}  // namespace
}  // namespace weir
