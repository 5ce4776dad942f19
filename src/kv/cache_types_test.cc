// SPDX-License-Identifier: Apache-2.0
#include "kv/cache_types.h"

#include <string>

#include "gtest/gtest.h"
#include "ops/kv_slots.h"

namespace weir {
namespace {

TEST(CacheTypes, EveryTypeOfSlotsHasItsName) {
  const std::string names = CacheTypeNames();
  int n = 0;
  for (size_t at = 0; at < names.size();) {
    size_t end = names.find_first_of(", ", at);
    if (end == std::string::npos) end = names.size();
    const std::string name = names.substr(at, end - at);
    at = names.find_first_not_of(", ", end);
    if (at == std::string::npos) at = names.size();
    if (name == "or") continue;
    for (const CachePart part : {CachePart::kKeys, CachePart::kValues}) {
      const Result<DType> type = ParseCacheType(name, part);
      ASSERT_TRUE(type.ok()) << name;
      EXPECT_TRUE(IsSlotType(*type)) << name;
    }
    ++n;
  }
  EXPECT_EQ(n, std::ssize(kSlotTypes) + 1);  // and "small"
}

TEST(CacheTypes, SmallKeysHaveMoreBitsThanSmallValues) {
  EXPECT_EQ(ParseCacheType("small", CachePart::kKeys).value(), DType::kQ5_0);
  EXPECT_EQ(ParseCacheType("small", CachePart::kValues).value(), DType::kQ4_0);
}

TEST(CacheTypes, OthersAreRefusedWithTheList) {
  for (const char* name : {"", "q3_0", "Q4_0", "q4_k", "small "}) {
    const Result<DType> type = ParseCacheType(name, CachePart::kKeys);
    ASSERT_FALSE(type.ok()) << name;
    EXPECT_NE(type.status().message().find("q4_0"), std::string::npos);
  }
}

}  // namespace
}  // namespace weir
