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
  const float sum = BlockSum(x[ThreadIdx()], reinterpret_cast<float*>(SharedMemory()));
  if (ThreadIdx() == 0) *out = sum;
}

WEIR_KERNEL void HalfWait() {
  if (ThreadIdx() < 5) Barrier();
}

WEIR_KERNEL void WriteBeyond() { SharedMemory()[64] = 0; }

// What follows is wrong, each in one way, except where a name says otherwise.

WEIR_KERNEL void HalfAWarpSums(float* out) {
  if (Lane() < 16) out[Lane()] = WarpSum(1.0f);
}
WEIR_KERNEL void ALaneLeaves(float* out) {
  if (Lane() == 31) return;
  const float sum = WarpSum(1.0f);
  if (Lane() == 0) *out = sum;
}
WEIR_KERNEL void WarpsSumApart(float* out) {
  float sum = 0;
  if (Lane() < 16) {
    sum = WarpSum(1.0f);
  } else {
    sum = WarpSum(2.0f);
  }
  out[Lane()] = sum;
}
WEIR_KERNEL void BlocksSumApart(float* out) {
  auto* shared = reinterpret_cast<float*>(SharedMemory());
  float sum = 0;
  if (WarpIdx() == 0) {
    sum = BlockSum(1.0f, shared);
  } else {
    sum = BlockSum(2.0f, shared);
  }
  out[ThreadIdx()] = sum;
}
WEIR_KERNEL void BarriersApart() {
  if (ThreadIdx() < 32) {
    Barrier();
  } else {
    Barrier();
  }
}

WEIR_KERNEL void ReadsTooEarly(float* out) {
  auto* shared = reinterpret_cast<float*>(SharedMemory());
  shared[ThreadIdx()] = 0;
  Barrier();
  shared[ThreadIdx()] = 1;
  out[ThreadIdx()] = shared[NumThreads() - 1 - ThreadIdx()];
}
WEIR_KERNEL void WritesTooEarly(float* out) {
  auto* shared = reinterpret_cast<float*>(SharedMemory());
  shared[ThreadIdx()] = 1;
  Barrier();
  out[ThreadIdx()] = shared[NumThreads() - 1 - ThreadIdx()];
  shared[ThreadIdx()] = 2;  // of all readers none has waited
}
WEIR_KERNEL void WritesWhatAllRead(float* out) {
  auto* shared = reinterpret_cast<float*>(SharedMemory());
  if (ThreadIdx() == 0) *shared = 1;
  Barrier();
  const float value = *shared;
  if (ThreadIdx() == 40) *shared = 2;
  out[ThreadIdx()] = value;
}
WEIR_KERNEL void AShuffleIsNoBarrier(float* out) {
  auto* shared = reinterpret_cast<float*>(SharedMemory());
  shared[Lane()] = 0;
  WarpBarrier();
  shared[Lane()] = 1;
  const float sum = WarpSum(1.0f);
  out[Lane()] = sum + shared[31 - Lane()];
}
WEIR_KERNEL void RightWithinAWarp(float* out) {
  auto* shared = reinterpret_cast<float*>(SharedMemory()) + WarpIdx() * kWarp;
  shared[Lane()] = 1;
  WarpBarrier();
  const float other = shared[31 - Lane()];
  WarpBarrier();
  shared[Lane()] = 2;
  out[ThreadIdx()] = other;
}
WEIR_KERNEL void AWarpBarrierIsNotABlocks(float* out) {
  auto* shared = reinterpret_cast<float*>(SharedMemory());
  shared[ThreadIdx()] = 0;
  Barrier();
  shared[ThreadIdx()] = 1;
  WarpBarrier();
  out[ThreadIdx()] = shared[NumThreads() - 1 - ThreadIdx()];
}
WEIR_KERNEL void RightBytesOfAWord(uint8_t* out) {
  SharedMemory()[ThreadIdx()] = static_cast<uint8_t>(ThreadIdx());
  out[GlobalThread()] = SharedMemory()[ThreadIdx()];
}
WEIR_KERNEL void AllWriteOne(float* out) { *out = 1; }
WEIR_KERNEL void BlocksWriteOne(float* out) {
  if (ThreadIdx() == 0) *out = 1;
}
WEIR_KERNEL void BlocksReadWhatOneWrites(float* x) {
  if (BlockIdx() == 1) {
    *x = 1;
  } else {
    x[1 + BlockIdx()] = *x;
  }
}
WEIR_KERNEL void RightLaunchAfterLaunch(float* x) {
  if (GlobalThread() == 0) *x += 1;
}

WEIR_KERNEL void LoadsFourFloats(const float* x, float* out) {
  const float4 four = *reinterpret_cast<const float4*>(x);
  *out = four.x + four.w;
}
WEIR_KERNEL void LoadsAWord(const uint8_t* x, float* out) {
  *out = static_cast<float>(*reinterpret_cast<const uint32_t*>(x));
}

struct Rows {
  float a[4][8];
  float b[4];
};
WEIR_KERNEL void WritesBeyondARow(int columns) {
  auto& rows = *reinterpret_cast<Rows*>(SharedMemory());
  for (int i = 0; i < columns; ++i) rows.a[ThreadIdx() % 4][i] = 0;
}
WEIR_KERNEL void ReadsBeyondShared(float* out) { *out = reinterpret_cast<float*>(SharedMemory())[16]; }
WEIR_KERNEL void ReadsWhatNobodyWrote(float* out) {
  auto* shared = reinterpret_cast<float*>(SharedMemory());
  if (ThreadIdx() < 31) shared[ThreadIdx()] = 1;
  Barrier();
  out[ThreadIdx()] = shared[ThreadIdx()];
}
WEIR_KERNEL void WritesAt(float* x, int64_t i) { x[i] = 1; }
WEIR_KERNEL void ReadsAt(const float* x, int64_t i, float* out) { *out = x[i]; }
WEIR_KERNEL void MultipliesInts(const float* x, int row, int width, float* out) { *out = x[row * width % 4]; }
WEIR_KERNEL void RoundsToInt(const float* x, int* out) { *out = static_cast<int>(*x); }

// Each thread copies 16 bytes and reads 4 of its neighbour's; `wait` and `meet` say of what it leaves nothing out.
WEIR_KERNEL void CopiesAndReads(const float* x, float* out, bool wait, bool meet) {
  auto* shared = reinterpret_cast<float*>(SharedMemory());
  CopyAsync<16>(shared + 4 * ThreadIdx(), x + 4 * ThreadIdx());
  CommitCopies();
  if (wait) WaitCopies<0>();
  if (meet) Barrier();
  out[ThreadIdx()] = shared[4 * (NumThreads() - 1 - ThreadIdx())];
}
// Of two groups, the first one is waited for.
WEIR_KERNEL void WaitsForAGroup(const float* x, float* out, int read) {
  auto* shared = reinterpret_cast<float*>(SharedMemory());
  CopyAsync<8>(shared, x);
  CommitCopies();
  CopyAsync<4>(shared + 2, x + 2);
  CommitCopies();
  WaitCopies<1>();
  *out = shared[read];
}
WEIR_KERNEL void CopiesOverWhatIsRead(const float* x, float* out) {
  auto* shared = reinterpret_cast<float*>(SharedMemory());
  if (ThreadIdx() == 0) *shared = 1;
  Barrier();
  const float value = *shared;
  if (ThreadIdx() == 40) {
    CopyAsync<4>(shared, x);
    CommitCopies();
  }
  Barrier();
  WaitCopies<0>();
  out[ThreadIdx()] = value;
}
// Element (row, column) of four matrices is 64 * matrix + 8 * row + column: numbers that halves hold.
WEIR_KERNEL void LoadsMatrices(float* out, bool transposed, int shift) {
  auto* halves = reinterpret_cast<uint16_t*>(SharedMemory());
  for (int i = 0; i < 8; ++i) halves[8 * Lane() + i] = FloatToHalf(static_cast<float>(8 * Lane() + i));
  WarpBarrier();
  uint32_t words[4];
  if (transposed) {
    LoadTransposed(words, halves + 8 * Lane() + shift);
  } else {
    LoadMatrices(words, halves + 8 * Lane() + shift);
  }
  for (int j = 0; j < 4; ++j) {
    out[8 * Lane() + 2 * j] = HalfToFloat(static_cast<uint16_t>(words[j]));
    out[8 * Lane() + 2 * j + 1] = HalfToFloat(static_cast<uint16_t>(words[j] >> 16));
  }
}

// Right.
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

// The rules of twin/watch.h, each broken once.
class TwinRules : public Twin {
 protected:
  void SetUp() override {
#ifndef __SANITIZE_THREAD__
    GTEST_SKIP() << "this compiler does not report the kernels' accesses";
#endif
    out_ = Take(4096);
    const std::vector<float> zeros(1024, 0.0f);
    device_->Copy(out_.data(), zeros.data(), 4096);
  }
  float* out() { return out_.as<float>(); }
  float* from() { return out() + 512; }
  // The message of a launch; "" when the twin lets it pass.
  template <typename... P, typename... A>
  std::string Run(void (*kernel)(P...), Grid grid, int threads, int64_t shared_bytes, const A&... args) {
    device_->Launch(kernel, grid, threads, shared_bytes, args...);
    device_->Synchronise();
    const Status status = device_->stream().status();
    if (status.ok()) return "";
    // A stream keeps its first failure.
    out_ = Buffer();
    device_ = std::move(Device::Open(ledger_)).value();
    out_ = Take(4096);
    return std::string(status.message());
  }
  static bool Says(const std::string& message, const char* what) {
    if (message.find(what) != std::string::npos) return true;
    ADD_FAILURE() << "not \"" << what << "\": " << message;
    return false;
  }

  Buffer out_;
};

TEST_F(TwinRules, LanesMeetInOneShuffle) {
  Says(Run(HalfAWarpSums, Grid{1}, 32, 0, out()), "never reach");
  Says(Run(ALaneLeaves, Grid{1}, 32, 0, out()), "never reach");
  Says(Run(ALaneLeaves, Grid{1}, 16, 0, out()), "never reach");  // half a warp is launched
  Says(Run(WarpsSumApart, Grid{1}, 32, 0, out()), "others of its warp");
}

TEST_F(TwinRules, ThreadsMeetInOneBarrier) {
  Says(Run(BarriersApart, Grid{1}, 64, 0), "others of its block");
  Says(Run(BlocksSumApart, Grid{1}, 64, 128, out()), "others of its block");
}

TEST_F(TwinRules, NoRaceInSharedMemory) {
  // Of two accesses that meet, the one that the twin runs later is reported.
  Says(Run(ReadsTooEarly, Grid{1}, 64, 256, out()), "another thread's");
  Says(Run(WritesTooEarly, Grid{1}, 64, 256, out()), "another thread's");
  Says(Run(WritesWhatAllRead, Grid{1}, 64, 256, out()), "another thread's");
  Says(Run(AShuffleIsNoBarrier, Grid{1}, 32, 128, out()), "another thread's");
  Says(Run(AWarpBarrierIsNotABlocks, Grid{1}, 64, 256, out()), "another thread's");
  EXPECT_EQ(Run(RightWithinAWarp, Grid{1}, 64, 256, out()), "");
  EXPECT_EQ(Run(RightBytesOfAWord, Grid{2}, 64, 64, reinterpret_cast<uint8_t*>(out())), "");
}

TEST_F(TwinRules, NoRaceInDeviceMemory) {
  Says(Run(AllWriteOne, Grid{1}, 2, 0, out()), "another thread's write");
  Says(Run(BlocksWriteOne, Grid{2}, 32, 0, out()), "another thread's write");
  Says(Run(BlocksReadWhatOneWrites, Grid{2}, 1, 0, out()), "another thread's read");
  Says(Run(BlocksReadWhatOneWrites, Grid{4}, 1, 0, out()), "another thread's");
  for (int i = 0; i < 3; ++i) EXPECT_EQ(Run(RightLaunchAfterLaunch, Grid{4}, 32, 0, out()), "");
}

TEST_F(TwinRules, LoadsAreAligned) {
  EXPECT_EQ(Run(LoadsFourFloats, Grid{1}, 1, 0, out() + 4, out()), "");
  Says(Run(LoadsFourFloats, Grid{1}, 1, 0, out() + 5, out()), "address that its type does not allow");
  EXPECT_EQ(Run(LoadsAWord, Grid{1}, 1, 0, out_.data() + 4, out()), "");
  Says(Run(LoadsAWord, Grid{1}, 1, 0, out_.data() + 6, out()), "address that its type does not allow");
}

TEST_F(TwinRules, NothingIsTouchedBeyondItsBounds) {
  const int64_t bytes = sizeof(Rows);
  Says(Run(WritesBeyondARow, Grid{1}, 1, bytes, 9), "beyond the array");
  EXPECT_EQ(Run(WritesBeyondARow, Grid{1}, 1, bytes, 8), "");
  Says(Run(ReadsBeyondShared, Grid{1}, 1, 64, out()), "outside");
  Says(Run(ReadsBeyondShared, Grid{1}, 1, 66, out()), "beyond the shared memory");
  EXPECT_EQ(Run(WritesAt, Grid{1}, 1, 0, out(), 1023), "");
  Says(Run(WritesAt, Grid{1}, 1, 0, out(), 1024), "outside");
  const std::vector<float> host(8);
  Says(Run(ReadsAt, Grid{1}, 1, 0, host.data(), 3, out()), "outside");
}

TEST_F(TwinRules, LaunchesFitEveryDevice) {
  Says(Run(HalfWait, Grid{1}, 1025, 0), "a launch of");
  Says(Run(HalfWait, Grid{1}, 32, 100 << 10), "a launch of");
  Says(Run(HalfWait, Grid{1, 65536}, 32, 0), "a launch of");
  Says(Run(HalfWait, Grid{1, 1, 65536}, 32, 0), "a launch of");
}

TEST_F(TwinRules, CopiesStayWithinAnAllocation) {
  std::vector<float> host(1025);
  device_->Copy(out_.data(), host.data(), 4096);
  device_->Copy(host.data(), out_.data() + 4, 4092);
  EXPECT_TRUE(device_->stream().status().ok());
  device_->Copy(host.data(), out_.data() + 4, 4096);
  Says(std::string(device_->stream().status().message()), "ends beyond an allocation");
}

TEST_F(TwinRules, TheRestOfAPageIsNobodys) {
  out_ = Take(100);
  EXPECT_EQ(Run(WritesAt, Grid{1}, 1, 0, out(), 24), "");
  Says(Run(WritesAt, Grid{1}, 1, 0, out(), 25), "outside");
}

TEST_F(TwinRules, SharedMemoryIsWrittenFirst) {
  Says(Run(ReadsWhatNobodyWrote, Grid{1}, 32, 128, out()), "no thread has written");
  EXPECT_EQ(Run(ReadsWhatNobodyWrote, Grid{1}, 31, 124, out()), "");
}

TEST_F(TwinRules, CopiesAreWaitedFor) {
  std::vector<float> x(256), got(64);
  for (int i = 0; i < 256; ++i) x[i] = static_cast<float>(i);
  device_->Copy(from(), x.data(), 1024);
  EXPECT_EQ(Run(CopiesAndReads, Grid{1}, 64, 1024, from(), out(), true, true), "");
  device_->Copy(got.data(), out(), 256);
  for (int i = 0; i < 64; ++i) EXPECT_EQ(got[i], static_cast<float>(4 * (63 - i)));
  // Too early by one wait: a thread finds no number, not the one that a slow device may still bring.
  EXPECT_EQ(Run(CopiesAndReads, Grid{1}, 64, 1024, from(), out(), false, true), "");
  device_->Copy(got.data(), out(), 256);
  for (int i = 0; i < 64; ++i) EXPECT_TRUE(std::isnan(got[i]));
  for (int read = 0; read < 3; ++read) {
    EXPECT_EQ(Run(WaitsForAGroup, Grid{1}, 1, 16, from(), out(), read), "");
    device_->Copy(got.data(), out(), 4);
    EXPECT_EQ(std::isnan(got[0]), read == 2);
  }
  Says(Run(CopiesOverWhatIsRead, Grid{1}, 64, 256, from(), out()), "another thread's");
}

TEST_F(TwinRules, CopiesThatNoBarrierFollowsAreARace) {
  Says(Run(CopiesAndReads, Grid{1}, 64, 1024, from(), out(), true, false), "no thread has written");
}

TEST_F(TwinRules, MatricesOfHalves) {
  std::vector<float> got(256);
  for (const bool transposed : {false, true}) {
    EXPECT_EQ(Run(LoadsMatrices, Grid{1}, 32, 512, out(), transposed, 0), "");
    device_->Copy(got.data(), out(), 1024);
    for (int i = 0; i < 256; ++i) {
      const int lane = i / 8, j = i / 2 % 4, g = lane / 4, k = lane % 4 * 2 + i % 2;
      EXPECT_EQ(got[i], static_cast<float>(64 * j + (transposed ? 8 * k + g : 8 * g + k))) << i;
    }
    Says(Run(LoadsMatrices, Grid{1}, 32, 1024, out(), transposed, 1), "address that its type does not allow");
  }
}

TEST_F(TwinRules, IntegersHoldTheirValues) {
  Says(Run(MultipliesInts, Grid{1}, 1, 0, out(), 65536, 32768, out() + 8), "overflows");
  const float large = 3e9f;
  device_->Copy(out(), &large, 4);
  Says(Run(RoundsToInt, Grid{1}, 1, 0, out(), reinterpret_cast<int*>(out() + 8)), "cannot hold");
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
