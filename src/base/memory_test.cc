// SPDX-License-Identifier: Apache-2.0
#include "base/memory.h"

#include <sys/mman.h>

#include <cstdint>
#include <utility>
#include <vector>

#include "base/threads.h"
#include "gtest/gtest.h"

namespace weir {
namespace {

TEST(HostBuffer, ZeroedAlignedAndReserved) {
  Ledger ledger;
  Result<HostBuffer> buffer = HostBuffer::Allocate(ledger, MemTag::kKv, 3 * kPageBytes - 5);
  ASSERT_TRUE(buffer.ok());
  EXPECT_EQ(buffer->bytes(), 3 * kPageBytes);
  EXPECT_EQ(ledger.used_bytes(MemTag::kKv), 3 * kPageBytes);
  EXPECT_EQ(reinterpret_cast<uintptr_t>(buffer->data()) % kPageBytes, 0u);
  for (int64_t i = 0; i < buffer->bytes(); ++i) ASSERT_EQ(buffer->data()[i], 0);
  buffer->as<float>()[1] = 2.5f;
  EXPECT_EQ(buffer->as<float>()[1], 2.5f);
}

TEST(HostBuffer, PagesAreResidentAtOnce) {
  Ledger ledger;
  Result<HostBuffer> buffer = HostBuffer::Allocate(ledger, MemTag::kKv, 64 * kPageBytes);
  ASSERT_TRUE(buffer.ok());
  std::vector<unsigned char> resident(64, 0);
  ASSERT_EQ(mincore(buffer->data(), static_cast<size_t>(buffer->bytes()), resident.data()), 0);
  for (const unsigned char page : resident) ASSERT_EQ(page & 1, 1);
}

// Large blocks are aligned to a huge page, take no more pages than reserved, and are zeroed and resident like small
// ones, including the last page.
TEST(HostBuffer, LargeBlocksAreResidentToTheLastPage) {
  Ledger ledger;
  const int64_t huge = int64_t{2} << 20;
  ThreadPool threads(3);
  for (const int64_t bytes : {huge, huge + 1, 3 * huge - kPageBytes, 17 * huge + 1}) {
    // Parallelised over threads for a large block.
    Result<HostBuffer> buffer = HostBuffer::Allocate(ledger, MemTag::kKv, bytes, bytes > huge ? &threads : nullptr);
    ASSERT_TRUE(buffer.ok());
    EXPECT_EQ(reinterpret_cast<uintptr_t>(buffer->data()) % static_cast<uintptr_t>(huge), 0u);
    EXPECT_EQ(ledger.used_bytes(), PageRound(bytes));
    std::vector<unsigned char> resident(static_cast<size_t>(buffer->bytes() / kPageBytes), 0);
    ASSERT_EQ(mincore(buffer->data(), static_cast<size_t>(buffer->bytes()), resident.data()), 0);
    for (const unsigned char page : resident) ASSERT_EQ(page & 1, 1);
    for (int64_t i = 0; i < buffer->bytes(); i += 511) ASSERT_EQ(buffer->data()[i], 0);
    buffer->data()[buffer->bytes() - 1] = 1;
  }
  EXPECT_EQ(ledger.used_bytes(), 0);
}

TEST(HostBuffer, MovesAndGivesBack) {
  Ledger ledger;
  {
    HostBuffer a = std::move(HostBuffer::Allocate(ledger, MemTag::kKv, 100)).value();
    HostBuffer b = std::move(HostBuffer::Allocate(ledger, MemTag::kMeta, 100)).value();
    uint8_t* data = a.data();
    b = std::move(a);
    EXPECT_EQ(b.data(), data);
    EXPECT_EQ(a.data(), nullptr);  // NOLINT: a moved-from buffer is empty by contract
    EXPECT_EQ(a.bytes(), 0);
    EXPECT_EQ(ledger.used_bytes(), kPageBytes);
    EXPECT_EQ(ledger.used_bytes(MemTag::kMeta), 0);
  }
  EXPECT_EQ(ledger.used_bytes(), 0);
}

TEST(HostBuffer, EmptyOverBudgetAndImpossible) {
  Ledger ledger(10 * kPageBytes);
  Result<HostBuffer> empty = HostBuffer::Allocate(ledger, MemTag::kKv, 0);
  ASSERT_TRUE(empty.ok());
  EXPECT_EQ(empty->data(), nullptr);
  EXPECT_EQ(HostBuffer::Allocate(ledger, MemTag::kKv, 10 * kPageBytes + 1).status().code(), StatusCode::kOverBudget);
  EXPECT_EQ(ledger.used_bytes(), 0);
}

// A machine without enough memory returns an error at once, and the reservation is released.
TEST(HostBuffer, MoreThanTheMachineHasIsAnAnswer) {
  Ledger ledger;
  const int64_t available = AvailableHostBytes();
  ASSERT_GT(available, 0);
  if (available == INT64_MAX) GTEST_SKIP() << "this system does not say how much memory it has";
  auto buffer = HostBuffer::Allocate(ledger, MemTag::kKv, available + (int64_t{4} << 30));
  EXPECT_EQ(buffer.status().code(), StatusCode::kOverBudget);
  EXPECT_EQ(ledger.used_bytes(), 0);
}

TEST(PageRound, Edges) {
  EXPECT_EQ(PageRound(0), 0);
  EXPECT_EQ(PageRound(1), kPageBytes);
  EXPECT_EQ(PageRound(kPageBytes), kPageBytes);
  EXPECT_EQ(PageRound(kPageBytes + 1), 2 * kPageBytes);
}

}  // namespace
}  // namespace weir
