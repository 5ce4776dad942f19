// SPDX-License-Identifier: Apache-2.0
// Recorded passes on the twin: a replay must match the request, whatever changed and whatever is refused.
#include <gtest/gtest.h>

#include <cstring>
#include <vector>

#include "backend/cuda/device.h"

namespace weir::twin {
namespace {

// A parameter with bytes that mean nothing.
struct Gap {
  float factor;
  double add;
  char end;
};

WEIR_KERNEL void Scale(const float* x, float* y, Gap gap, int64_t n) {
  const int64_t i = GlobalThread();
  if (i < n) y[i] = x[i] * gap.factor + static_cast<float>(gap.add);
}
WEIR_KERNEL void AddEach(const float* x, const int32_t* add, float* y, int64_t n) {
  const int64_t i = GlobalThread();
  if (i < n) y[i] = x[i] + static_cast<float>(add[i]);
}
WEIR_KERNEL void Negate(float* x, int64_t n) {
  const int64_t i = GlobalThread();
  if (i < n) x[i] = -x[i];
}

constexpr int64_t kN = 40;

class GraphTest : public ::testing::Test {
 protected:
  void SetUp() override {
    refuse_graph_call = -1;
    std::vector<float> ones(kN, 1.0f);
    device_->Copy(x_.data(), ones.data(), kN * 4);
  }
  void TearDown() override {
    device_->Synchronise();
    EXPECT_TRUE(device_->stream().status().ok()) << device_->stream().status().message();
  }
  Buffer Take(int64_t bytes) {
    return std::move(device_->Allocate(ledger_, MemTag::kOther, bytes, Access::kDevice)).value();
  }
  static Gap GapOf(float factor, double add, int noise) {
    Gap gap;
    std::memset(&gap, noise, sizeof(gap));
    gap.factor = factor;
    gap.add = add;
    gap.end = 0;
    return gap;
  }
  // y = x * factor + add + (list, if it has elements), the first n elements; as a pass.
  void Pass(float factor, const std::vector<int32_t>& list = {}, int64_t n = kN, int noise = 0, int n_negate = 0) {
    device_->Synchronise();
    device_->BeginPass(1);
    float *x = x_.as<float>(), *y = y_.as<float>(), *z = z_.as<float>();
    device_->Launch(Scale, Grid{Blocks(n, 32)}, 32, 0, x, y, GapOf(factor, 0.5, noise), n);
    device_->Copy(z, y, n * 4);
    if (!list.empty()) device_->Launch(AddEach, Grid{Blocks(n, 32)}, 32, 0, z, device_->Stage(list.data(), n), z, n);
    for (int i = 0; i < n_negate; ++i) device_->Launch(Negate, Grid{Blocks(n, 32)}, 32, 0, z, n);
    device_->EndPass();
  }
  float At(int64_t i) {
    float out[kN];
    device_->Copy(out, z_.data(), kN * 4);
    return out[i];
  }
  const PassCounts& counts() { return device_->stream().counts(); }

  Ledger ledger_;
  std::unique_ptr<Device> device_ = std::move(Device::Open(ledger_)).value();
  Buffer x_ = Take(kN * 4), y_ = Take(kN * 4), z_ = Take(kN * 4);
};

TEST_F(GraphTest, TheSecondPassIsMadeAGraphAndTheThirdIsIt) {
  for (int i = 0; i < 6; ++i) {
    Pass(2);
    EXPECT_EQ(At(39), 2.5f);
  }
  EXPECT_EQ(counts().plain, 1);
  EXPECT_EQ(counts().built, 1);
  EXPECT_EQ(counts().replayed, 4);
  EXPECT_EQ(counts().updated, 0);
}

TEST_F(GraphTest, WhatChangedIsTold) {
  for (int i = 0; i < 8; ++i) {
    Pass(static_cast<float>(i));
    EXPECT_EQ(At(3), static_cast<float>(i) + 0.5f);
  }
  EXPECT_EQ(counts().replayed, 6);
  EXPECT_EQ(counts().updated, 6);  // one of the two pieces
}

TEST_F(GraphTest, GridsAndCopiesToo) {
  for (const int64_t n : {40, 40, 8, 33, 40}) {
    Pass(static_cast<float>(n), {}, n);
    EXPECT_EQ(At(n - 1), static_cast<float>(n) + 0.5f);
    if (n == 33) {
      EXPECT_EQ(At(39), 40.5f);  // of the pass before: not touched
    }
  }
  EXPECT_EQ(counts().replayed, 3);
  EXPECT_EQ(counts().updated, 6);
}

TEST_F(GraphTest, BytesThatMeanNothingChangeNothing) {
#if !defined(__has_builtin)
  GTEST_SKIP() << "this compiler cannot clear padding";
#elif !__has_builtin(__builtin_clear_padding)
  GTEST_SKIP() << "this compiler cannot clear padding";
#endif
  for (int i = 0; i < 5; ++i) Pass(2, {}, kN, 17 * i);
  EXPECT_EQ(counts().replayed, 3);
  EXPECT_EQ(counts().updated, 0);
}

TEST_F(GraphTest, ListsOfTheHostAreOneCopyAndNoChange) {
  std::vector<int32_t> list(kN);
  for (int i = 0; i < 6; ++i) {
    for (int64_t e = 0; e < kN; ++e) list[e] = static_cast<int32_t>(10 * i + e);
    Pass(1, list);
    EXPECT_EQ(At(7), 1.5f + static_cast<float>(10 * i + 7));
  }
  EXPECT_EQ(counts().replayed, 4);
  EXPECT_EQ(counts().updated, 0);
}

TEST_F(GraphTest, NothingIsDoneBeforeSomebodyWaits) {
  const Buffer shared = std::move(device_->Allocate(ledger_, MemTag::kOther, kN * 4, Access::kShared)).value();
  for (int i = 1; i < 5; ++i) {
    device_->Synchronise();
    device_->BeginPass(1);
    device_->Launch(Scale, Grid{2}, 32, 0, x_.as<float>(), shared.as<float>(), GapOf(static_cast<float>(i), 0, 0), kN);
    device_->EndPass();
    EXPECT_EQ(shared.as<float>()[0], static_cast<float>(i - 1));
    device_->Synchronise();
    EXPECT_EQ(shared.as<float>()[0], static_cast<float>(i));
  }
}

TEST_F(GraphTest, ThreeShapesDoNotDriveEachOtherOut) {
  for (int round = 0; round < 5; ++round) {
    for (int shape = 0; shape < 3; ++shape) {
      Pass(3, {}, kN, 0, shape);
      EXPECT_EQ(At(0), shape % 2 == 0 ? 3.5f : -3.5f);
    }
  }
  EXPECT_EQ(counts().built, 3);
  EXPECT_EQ(counts().plain, 3);
  EXPECT_EQ(counts().replayed, 9);
  // A fourth takes the place of the one that was used longest ago.
  for (int i = 0; i < 2; ++i) Pass(3, {}, kN, 0, 3);
  EXPECT_EQ(counts().built, 4);
  for (const int shape : {1, 2, 3}) Pass(3, {}, kN, 0, shape);
  EXPECT_EQ(counts().replayed, 12);
  Pass(3, {}, kN, 0, 0);
  EXPECT_EQ(counts().built, 5);
  EXPECT_EQ(At(0), 3.5f);
}

TEST_F(GraphTest, ShapesThatComeOnceAreNoGraphs) {
  for (int i = 0; i < 12; ++i) Pass(3, {}, kN, 0, i);
  EXPECT_EQ(counts().plain, 12);
  EXPECT_EQ(counts().built, 0);
}

TEST_F(GraphTest, WhoeverWaitsInTheMiddleGetsWhatWasAskedForBefore) {
  for (int i = 1; i < 5; ++i) {
    device_->Synchronise();
    device_->BeginPass(1);
    device_->Launch(Scale, Grid{2}, 32, 0, x_.as<float>(), z_.as<float>(), GapOf(static_cast<float>(i), 0, 0), kN);
    EXPECT_EQ(At(5), static_cast<float>(i));
    const int32_t two[kN] = {2, 2};
    device_->Launch(AddEach, Grid{2}, 32, 0, z_.as<float>(), device_->Stage(two, kN), z_.as<float>(), kN);
    device_->EndPass();
    EXPECT_EQ(At(1), static_cast<float>(i) + 2);
  }
  EXPECT_EQ(counts().plain, 4);
  EXPECT_EQ(counts().built, 0);
}

TEST_F(GraphTest, WhatADeviceRefusesIsSentPieceByPiece) {
  // Building, sending what was built, changing, sending again.
  const std::vector<std::pair<int, int64_t>> refusals = {{2, 0}, {2, 1}, {3, 0}, {3, 1}};
  for (const auto& [pass, call] : refusals) {
    SCOPED_TRACE(testing::Message() << pass << ", " << call);
    auto device = std::move(Device::Open(ledger_)).value();
    Buffer x = std::move(device->Allocate(ledger_, MemTag::kOther, kN * 4, Access::kDevice)).value();
    Buffer z = std::move(device->Allocate(ledger_, MemTag::kOther, kN * 4, Access::kDevice)).value();
    std::vector<float> ones(kN, 1.0f), got(kN);
    device->Copy(x.data(), ones.data(), kN * 4);
    for (int i = 1; i < 8; ++i) {
      device->Synchronise();
      refuse_graph_call = i == pass ? call : -1;
      device->BeginPass(1);
      device->Launch(Scale, Grid{2}, 32, 0, x.as<float>(), z.as<float>(), GapOf(static_cast<float>(i), 0, 0), kN);
      device->EndPass();
      device->Copy(got.data(), z.data(), kN * 4);
      EXPECT_EQ(got[11], static_cast<float>(i));
    }
    const PassCounts& counts = device->stream().counts();
    EXPECT_EQ(counts.failed, 1);
    EXPECT_EQ(counts.plain, 2);
    EXPECT_EQ(counts.built, pass == 2 ? 1 : 2);  // again, after it was dropped
    EXPECT_EQ(counts.plain + counts.built + counts.replayed, 7);
  }
}

TEST_F(GraphTest, ADeviceThatAlwaysRefusesIsNotAskedForEver) {
  for (int i = 0; i < 10; ++i) {
    refuse_graph_call = 0;
    Pass(static_cast<float>(i));
    EXPECT_EQ(At(1), static_cast<float>(i) + 0.5f);
  }
  EXPECT_EQ(counts().failed, 3);
  EXPECT_EQ(counts().plain, 4);  // the first, and those that were refused; then nothing is held back
}

TEST_F(GraphTest, APassThatIsTooLongIsSentInPieces) {
  for (int i = 0; i < 3; ++i) {
    Pass(2, {}, 1, 0, static_cast<int>(WorkList::kMaxWork) + 10);
    EXPECT_EQ(At(0), 2.5f);
  }
  EXPECT_EQ(counts().plain, 3);
  EXPECT_EQ(counts().built, 0);
}

TEST_F(GraphTest, ManyRowsAreNotRecorded) {
  device_->BeginPass(9);
  EXPECT_FALSE(device_->stream().recording());
  device_->EndPass();
  device_->BeginPass(8);
  EXPECT_TRUE(device_->stream().recording());
  device_->EndPass();
}

TEST_F(GraphTest, MemoryThatMovedIsFollowed) {
  std::vector<float> got(kN);
  for (int i = 1; i < 6; ++i) {
    const Buffer to = Take(kN * 4);  // freed, and spoilt, before the next pass
    device_->Synchronise();
    device_->BeginPass(1);
    device_->Launch(Scale, Grid{2}, 32, 0, x_.as<float>(), to.as<float>(), GapOf(static_cast<float>(i), 0, 0), kN);
    device_->Launch(Negate, Grid{2}, 32, 0, to.as<float>(), kN);
    device_->EndPass();
    device_->Copy(got.data(), to.data(), kN * 4);
    EXPECT_EQ(got[39], static_cast<float>(-i));
  }
  EXPECT_EQ(counts().replayed, 3);
  EXPECT_EQ(counts().updated, 6);
}

TEST(Graphs, AreReservedBeforeTheyExist) {
  Ledger with, without;
  const auto one = Device::Open(with), other = Device::Open(without, /*graphs=*/false);
  ASSERT_TRUE(one.ok() && other.ok());
  EXPECT_GE(with.used_bytes() - without.used_bytes(), 4 * WorkList::kMaxParamBytes);
  (*other)->BeginPass(1);
  EXPECT_FALSE((*other)->stream().recording());
  Ledger small(2 * Device::kStageBytes + (int64_t{4} << 20));
  EXPECT_EQ(Device::Open(small).status().code(), StatusCode::kOverBudget);
  EXPECT_EQ(small.used_bytes(), 0);
}

}  // namespace
}  // namespace weir::twin
