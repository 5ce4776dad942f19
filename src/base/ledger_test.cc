// SPDX-License-Identifier: Apache-2.0
#include "base/ledger.h"

#include <thread>
#include <utility>
#include <vector>

#include "gtest/gtest.h"

namespace weir {
namespace {

TEST(Ledger, CountsByTagAndGivesBack) {
  Ledger ledger(1000);
  {
    Result<Reservation> a = ledger.Reserve(MemTag::kKv, 600), b = ledger.Reserve(MemTag::kMeta, 400);
    ASSERT_TRUE(a.ok() && b.ok());
    EXPECT_EQ(a->bytes(), 600);
    EXPECT_EQ(ledger.used_bytes(), 1000);
    EXPECT_EQ(ledger.used_bytes(MemTag::kKv), 600);
    EXPECT_EQ(ledger.used_bytes(MemTag::kMeta), 400);
    EXPECT_EQ(ledger.used_bytes(MemTag::kWeights), 0);
  }
  EXPECT_EQ(ledger.used_bytes(), 0);
  EXPECT_EQ(ledger.used_bytes(MemTag::kKv), 0);
  EXPECT_EQ(ledger.peak_bytes(), 1000);
}

TEST(Ledger, RefusesTheFirstByteTooMany) {
  Ledger ledger(1000);
  Result<Reservation> a = ledger.Reserve(MemTag::kKv, 999);
  ASSERT_TRUE(a.ok());
  Result<Reservation> b = ledger.Reserve(MemTag::kWorkspace, 2);
  ASSERT_FALSE(b.ok());
  EXPECT_EQ(b.status().code(), StatusCode::kOverBudget);
  for (const char* figure : {"workspace", "2", "999", "1000"}) {
    EXPECT_NE(b.status().message().find(figure), std::string::npos) << b.status().message();
  }
  EXPECT_EQ(ledger.used_bytes(), 999) << "a refusal holds nothing";
  EXPECT_EQ(ledger.peak_bytes(), 999);
  EXPECT_TRUE(ledger.Reserve(MemTag::kWorkspace, 1).ok());
}

TEST(Ledger, HugeAndNegativeCounts) {
  Ledger ledger(1000);
  Result<Reservation> held = ledger.Reserve(MemTag::kKv, 1000);
  EXPECT_EQ(ledger.Reserve(MemTag::kKv, INT64_MAX).status().code(), StatusCode::kOverBudget);
  EXPECT_EQ(ledger.Reserve(MemTag::kKv, -1).status().code(), StatusCode::kInvalidArgument);
  EXPECT_EQ(ledger.Reserve(MemTag::kKv, INT64_MIN).status().code(), StatusCode::kInvalidArgument);
  EXPECT_TRUE(ledger.Reserve(MemTag::kKv, 0).ok());
  EXPECT_EQ(ledger.used_bytes(), 1000);
  Ledger unlimited;
  Result<Reservation> most = unlimited.Reserve(MemTag::kKv, INT64_MAX - 1);
  ASSERT_TRUE(most.ok());
  EXPECT_EQ(unlimited.Reserve(MemTag::kKv, 2).status().code(), StatusCode::kOverBudget) << "sums must not overflow";
}

TEST(Reservation, MovesAndReleasesOnce) {
  Ledger ledger(100);
  Reservation a = *ledger.Reserve(MemTag::kKv, 60);
  Reservation b = std::move(a);
  EXPECT_EQ(a.bytes(), 0);  // NOLINT: a moved-from reservation is empty by contract
  EXPECT_EQ(b.bytes(), 60);
  EXPECT_EQ(ledger.used_bytes(), 60);
  Reservation c = *ledger.Reserve(MemTag::kMeta, 40);
  b = std::move(c);
  EXPECT_EQ(ledger.used_bytes(), 40) << "assignment gives back what was held";
  EXPECT_EQ(ledger.used_bytes(MemTag::kKv), 0);
  Reservation& alias = b;
  b = std::move(alias);
  EXPECT_EQ(b.bytes(), 40);
  b.Release();
  b.Release();
  EXPECT_EQ(ledger.used_bytes(), 0);
}

TEST(Ledger, FailNthRefusesExactlyOne) {
  Ledger ledger;
  ledger.FailNth(2);
  EXPECT_TRUE(ledger.Reserve(MemTag::kKv, 1).ok());
  EXPECT_EQ(ledger.Reserve(MemTag::kKv, 1).status().code(), StatusCode::kOverBudget);
  EXPECT_TRUE(ledger.Reserve(MemTag::kKv, 1).ok());
}

TEST(Ledger, ThreadsNeverOverdraw) {
  Ledger ledger(1000);
  std::vector<std::thread> threads;
  for (int t = 0; t < 4; ++t) {
    threads.emplace_back([&] {
      for (int i = 0; i < 2000; ++i) {
        Result<Reservation> r = ledger.Reserve(MemTag::kOther, 300);
        EXPECT_LE(ledger.used_bytes(), 1000);
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(ledger.used_bytes(), 0);
  EXPECT_LE(ledger.peak_bytes(), 1000);
  EXPECT_GE(ledger.peak_bytes(), 300);
}

}  // namespace
}  // namespace weir
