// SPDX-License-Identifier: Apache-2.0
// The twin itself: what it must refuse, or tests on it would prove little.
#include <gtest/gtest.h>

#include <vector>

#include "backend/cuda/device.h"
#include "gpu/devices.h"

namespace weir::twin {
namespace {

WEIR_KERNEL void Halve(const float* x, float* y, int64_t n) {
  const int64_t i = GlobalThread();
  if (i < n) y[i] = x[i] / 2;
}

WEIR_KERNEL void SumWithBarrier(const float* x, float* out) {
  *out = BlockSum(x[ThreadIdx()], reinterpret_cast<float*>(SharedMemory()));
}

WEIR_KERNEL void HalfWait() {
  if (ThreadIdx() < 5) Barrier();
}

WEIR_KERNEL void WriteBeyond() { SharedMemory()[64] = 0; }

WEIR_KERNEL void Reverse(float* x) {
  const float mine = x[ThreadIdx()];
  Barrier();
  x[NumThreads() - 1 - ThreadIdx()] = mine;
}

class Twin : public ::testing::Test {
 protected:
  Buffer Take(int64_t bytes, Access access = Access::kDevice) {
    return std::move(device_->Allocate(ledger_, MemTag::kOther, bytes, access)).value();
  }
  Ledger ledger_;
  std::unique_ptr<Device> device_ = std::move(Device::Open(ledger_)).value();
};

TEST_F(Twin, KernelsRunInOrderWhenSomebodyWaits) {
  const Buffer x = Take(400), y = Take(400, Access::kShared);
  std::vector<float> values(100);
  for (int i = 0; i < 100; ++i) values[i] = static_cast<float>(i);
  device_->Copy(x.data(), values.data(), 400);
  y.as<float>()[7] = -1;
  device_->Launch(Halve, Grid{4}, 32, 0, x.as<float>(), y.as<float>(), int64_t{100});
  EXPECT_EQ(y.as<float>()[7], -1);  // not yet
  device_->Synchronise();
  EXPECT_EQ(y.as<float>()[7], 3.5f);
  EXPECT_EQ(y.as<float>()[99], 49.5f);
}

TEST_F(Twin, BarriersAndShuffles) {
  const Buffer x = Take(96 * 4), out = Take(4);
  const std::vector<float> ones(96, 1.0f);
  device_->Copy(x.data(), ones.data(), 96 * 4);
  device_->Launch(SumWithBarrier, Grid{1}, 96, 128, x.as<float>(), out.as<float>());
  float sum = 0;
  device_->Copy(&sum, out.data(), 4);
  EXPECT_EQ(sum, 96);
  std::vector<float> order(96);
  for (int i = 0; i < 96; ++i) order[i] = static_cast<float>(i);
  device_->Copy(x.data(), order.data(), 96 * 4);
  device_->Launch(Reverse, Grid{1}, 96, 0, x.as<float>());
  device_->Copy(order.data(), x.data(), 96 * 4);
  for (int i = 0; i < 96; ++i) EXPECT_EQ(order[i], 95 - i);
}

TEST_F(Twin, RefusesABarrierThatSomeThreadsMiss) {
  device_->Launch(HalfWait, Grid{1}, 32, 0);
  device_->Synchronise();
  EXPECT_EQ(device_->stream().status().code(), StatusCode::kInternal);
}

TEST_F(Twin, RefusesSharedMemoryThatNobodyAskedFor) {
  device_->Launch(WriteBeyond, Grid{1}, 32, 64);
  device_->Synchronise();
  EXPECT_EQ(device_->stream().status().code(), StatusCode::kInternal);
}

TEST_F(Twin, RefusesOperandsOfTheHost) {
  const std::vector<float> host(8);
  device_->Mine(host.data());
  EXPECT_EQ(device_->stream().status().code(), StatusCode::kInternal);
}

using TwinDeathTest = Twin;
TEST_F(TwinDeathTest, TheHostCannotTouchTheDevicesMemory) {
  const Buffer x = Take(64);
  EXPECT_DEATH(*const_cast<volatile float*>(x.as<float>()) = 1, "");
}

TEST_F(Twin, CopiesMayOverlap) {
  const Buffer x = Take(4096 * 4);
  std::vector<float> values(4096), got(4096);
  for (int i = 0; i < 4096; ++i) values[i] = static_cast<float>(i);
  for (const int shift : {-3, 5}) {
    device_->Copy(x.data(), values.data(), 4096 * 4);
    device_->Copy(x.data() + (1000 + shift) * 4, x.data() + 1000 * 4, 2000 * 4);
    device_->Copy(got.data(), x.data(), 4096 * 4);
    for (int i = 0; i < 2000; ++i) ASSERT_EQ(got[1000 + shift + i], 1000 + i) << shift;
  }
}

TEST_F(Twin, TheLedgerHoldsWhatTheDeviceDoes) {
  const int64_t before = ledger_.used_bytes();
  {
    const Buffer a = Take(5000), b = Take(1, Access::kShared);
    EXPECT_EQ(ledger_.used_bytes() - before, 2 * kPageBytes + kPageBytes);
    EXPECT_TRUE(device_->Owns(a.data() + 4999));
    EXPECT_FALSE(device_->Owns(a.data() + 3 * kPageBytes));
  }
  EXPECT_EQ(ledger_.used_bytes(), before);
  Ledger small(kPageBytes);
  EXPECT_EQ(device_->Allocate(small, MemTag::kOther, 5000, Access::kDevice).status().code(), StatusCode::kOverBudget);
}

}  // namespace
}  // namespace weir::twin
