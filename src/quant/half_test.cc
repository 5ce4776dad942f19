// SPDX-License-Identifier: Apache-2.0
#include "quant/half.h"

#include <gtest/gtest.h>

#include <cmath>
#include <cstdint>
#include <limits>

namespace weir {
namespace {

static_assert(F16ToF32(0x3c00) == 1.0f);
static_assert(F32ToF16(65504.0f) == 0x7bff);
static_assert(BF16ToF32(0x3f80) == 1.0f);
static_assert(F32ToBF16(-2.0f) == 0xc000);

constexpr float kInfinity = std::numeric_limits<float>::infinity();

TEST(HalfTest, EveryHalfHasTheValueItsFieldsSay) {
  for (uint32_t bits = 0; bits < 0x10000; ++bits) {
    const int exponent = static_cast<int>(bits >> 10) & 31;
    const int fraction = static_cast<int>(bits & 1023);
    const float value = F16ToF32(static_cast<uint16_t>(bits));
    ASSERT_EQ(std::signbit(value), (bits & 0x8000) != 0) << bits;
    if (exponent == 31) {
      ASSERT_EQ(std::isnan(value), fraction != 0) << bits;
      ASSERT_EQ(std::isinf(value), fraction == 0) << bits;
      ASSERT_FALSE(IsFiniteF16(static_cast<uint16_t>(bits)));
      continue;
    }
    const double expected = exponent == 0 ? std::ldexp(fraction, -24) : std::ldexp(1024 + fraction, exponent - 25);
    ASSERT_EQ(std::fabs(value), expected) << bits;
    ASSERT_TRUE(IsFiniteF16(static_cast<uint16_t>(bits)));
  }
}

TEST(HalfTest, EveryHalfSurvivesARoundTrip) {
  for (uint32_t bits = 0; bits < 0x10000; ++bits) {
    const uint16_t half = static_cast<uint16_t>(bits);
    const bool is_nan = (bits & 0x7fff) > 0x7c00;
    ASSERT_EQ(F32ToF16(F16ToF32(half)), is_nan ? half | 0x200 : half) << bits;  // a signalling NaN becomes quiet
  }
}

// Tests all pairs of neighbours: their midpoint rounds to the even one, anything else to the nearer one.
TEST(HalfTest, NarrowingRoundsToNearestEven) {
  for (uint32_t bits = 0; bits < 0x7c00; ++bits) {
    const uint16_t low = static_cast<uint16_t>(bits);
    const uint16_t high = static_cast<uint16_t>(bits + 1);  // the last one is infinity
    const float above = high == 0x7c00 ? 65536.0f : F16ToF32(high);
    const float middle = (F16ToF32(low) + above) / 2;  // exact
    const uint16_t even = (low & 1) == 0 ? low : high;
    for (const uint16_t sign : {0x0000, 0x8000}) {
      const float unit = sign ? -1.0f : 1.0f;
      ASSERT_EQ(F32ToF16(unit * middle), even | sign) << bits;
      ASSERT_EQ(F32ToF16(unit * std::nextafterf(middle, 0.0f)), low | sign) << bits;
      ASSERT_EQ(F32ToF16(unit * std::nextafterf(middle, kInfinity)), high | sign) << bits;
    }
  }
}

TEST(HalfTest, NarrowingExtremes) {
  EXPECT_EQ(F32ToF16(kInfinity), 0x7c00);
  EXPECT_EQ(F32ToF16(-kInfinity), 0xfc00);
  EXPECT_EQ(F32ToF16(std::numeric_limits<float>::max()), 0x7c00);
  EXPECT_EQ(F32ToF16(std::numeric_limits<float>::denorm_min()), 0);
  EXPECT_EQ(F32ToF16(-std::numeric_limits<float>::min()), 0x8000);
  EXPECT_TRUE(std::isnan(F16ToF32(F32ToF16(std::numeric_limits<float>::quiet_NaN()))));
  // A NaN whose payload is entirely in the truncated bits.
  EXPECT_TRUE(std::isnan(F16ToF32(F32ToF16(std::bit_cast<float>(0x7f800001u)))));
}

TEST(BFloatTest, EveryValueSurvivesARoundTrip) {
  for (uint32_t bits = 0; bits < 0x10000; ++bits) {
    const uint16_t value = static_cast<uint16_t>(bits);
    const bool is_nan = (bits & 0x7fff) > 0x7f80;
    ASSERT_EQ(F32ToBF16(BF16ToF32(value)), is_nan ? value | 0x40 : value) << bits;
    ASSERT_EQ(IsFiniteBF16(value), std::isfinite(BF16ToF32(value))) << bits;
  }
}

TEST(BFloatTest, NarrowingRoundsToNearestEven) {
  for (uint32_t bits = 0; bits < 0x7f80; ++bits) {
    const uint32_t middle = bits << 16 | 0x8000;
    ASSERT_EQ(F32ToBF16(std::bit_cast<float>(middle)), bits + (bits & 1)) << bits;
    ASSERT_EQ(F32ToBF16(std::bit_cast<float>(middle - 1)), bits) << bits;
    ASSERT_EQ(F32ToBF16(std::bit_cast<float>(middle + 1)), bits + 1) << bits;
  }
  EXPECT_TRUE(std::isnan(BF16ToF32(F32ToBF16(std::bit_cast<float>(0x7fffffffu)))));
  EXPECT_TRUE(std::isnan(BF16ToF32(F32ToBF16(std::bit_cast<float>(0xff800001u)))));
}

}  // namespace
}  // namespace weir
