// SPDX-License-Identifier: Apache-2.0
#include "base/base64.h"

#include <gtest/gtest.h>

#include <vector>

namespace weir {
namespace {

TEST(Base64, VectorsOfTheRfc) {
  const std::vector<std::pair<const char*, const char*>> vectors = {{"", ""},
                                                                    {"Zg==", "f"},
                                                                    {"Zm8=", "fo"},
                                                                    {"Zm9v", "foo"},
                                                                    {"Zm9vYg==", "foob"},
                                                                    {"Zm9vYmE=", "fooba"},
                                                                    {"Zm9vYmFy", "foobar"}};
  for (const auto& [text, bytes] : vectors) {
    const auto got = DecodeBase64(text);
    ASSERT_TRUE(got.ok()) << text;
    EXPECT_EQ(*got, bytes);
    EXPECT_EQ(EncodeBase64(bytes), text);
    std::string bare = text;
    while (bare.ends_with('=')) bare.pop_back();
    ASSERT_TRUE(DecodeBase64(bare).ok()) << bare;
    EXPECT_EQ(*DecodeBase64(bare), bytes);
  }
  const std::string high("\x00\xff\xff\x80\x81", 5);
  EXPECT_EQ(*DecodeBase64("AP//gIE="), high);
  EXPECT_EQ(EncodeBase64(high), "AP//gIE=");
}

TEST(Base64, WhatItIsNot) {
  for (const char* text : {"Z", "Zm9vY", "Zg=", "Zg===", "=", "====", "Zm=v", "Zm 9", "Zm9\n", "Zm-_",
                           "Zh==", "Zm9=", "Zm9vZ===", "Z===", "\xff\xff\xff\xff"}) {
    EXPECT_FALSE(DecodeBase64(text).ok()) << text;
  }
}

}  // namespace
}  // namespace weir
