// SPDX-License-Identifier: Apache-2.0
#include "backend/simd.h"

#include <algorithm>
#include <atomic>
#include <string>
#include <vector>

#include "backend/cpu/simd.h"

#define HWY_WANT_AVX3_DL
#include "hwy/highway.h"
#if HWY_ARCH_ARM_A64 && defined(__linux__)
#include <sys/auxv.h>
#endif
#if HWY_ARCH_X86_64
#include <cpuid.h>
#endif

namespace weir::cpu {
namespace {

ArmDots BestArmDots() {
#if HWY_ARCH_ARM_A64 && defined(__linux__)
  constexpr unsigned long kAsimdDp = 1ul << 20, kI8mm = 1ul << 13;  // from <asm/hwcap.h> of newer kernels
  if ((getauxval(AT_HWCAP) & kAsimdDp) == 0) return ArmDots::kNone;
  return (getauxval(AT_HWCAP2) & kI8mm) == 0 ? ArmDots::kDotProduct : ArmDots::kI8mm;
#elif HWY_ARCH_ARM_A64 && defined(__ARM_FEATURE_MATMUL_INT8)
  return ArmDots::kI8mm;
#elif HWY_ARCH_ARM_A64 && defined(__ARM_FEATURE_DOTPROD)
  return ArmDots::kDotProduct;
#else
  return ArmDots::kNone;
#endif
}

YmmDots BestYmmDots() {
#if HWY_ARCH_X86_64
  unsigned a = 0, b = 0, c = 0, d = 0;
  // The system has to keep the registers, as for AVX2.
  if (!__builtin_cpu_supports("avx2") || __get_cpuid_max(0, nullptr) < 7) return YmmDots::kNone;
  __cpuid_count(7, 1, a, b, c, d);
  if ((a >> 4 & 1) != 0) return YmmDots::kVex;
  if (__builtin_cpu_supports("avx512vl") && __builtin_cpu_supports("avx512vnni")) return YmmDots::kEvex;
#endif
  return YmmDots::kNone;
}

bool HasBf16() {
#if HWY_ARCH_X86_64
  return __builtin_cpu_supports("avx512bf16");
#else
  return false;
#endif
}

struct Level {
  std::string name;
  int64_t target;
  ArmDots arm = ArmDots::kNone;
  bool bf16 = false;
  YmmDots ymm = YmmDots::kNone;
};

const std::vector<Level>& Levels() {
  static const std::vector<Level> levels = [] {
    std::vector<Level> out;
    for (const int64_t target : hwy::SupportedAndGeneratedTargets()) {
      out.push_back({hwy::TargetName(target), target});
    }
    std::reverse(out.begin(), out.end());  // Highway lists the best first
    for (auto at = out.begin(); at != out.end() && BestYmmDots() != YmmDots::kNone; ++at) {
      if (at->target != HWY_AVX2) continue;
      out.insert(at + 1, {at->name + "_VNNI", at->target, ArmDots::kNone, false, BestYmmDots()});
      break;
    }
    if (out.back().target <= HWY_AVX3_DL && HasBf16())
      out.push_back({out.back().name + "_BF16", out.back().target, ArmDots::kNone, true});
    if (BestArmDots() != ArmDots::kNone)
      out.push_back({out.back().name + "_DOTPROD", out.back().target, ArmDots::kDotProduct});
    if (BestArmDots() == ArmDots::kI8mm)
      out.push_back({out[out.size() - 2].name + "_I8MM", out.back().target, ArmDots::kI8mm});
    return out;
  }();
  return levels;
}

std::atomic<const Level*> chosen{nullptr};  // nullptr: the best

const Level& Current() {
  const Level* level = chosen.load(std::memory_order_relaxed);
  return level == nullptr ? Levels().back() : *level;
}

}  // namespace

ArmDots arm_dots() { return Current().arm; }
YmmDots ymm_dots() { return Current().ymm; }
bool has_bf16_pairs() { return Current().bf16; }

}  // namespace weir::cpu

namespace weir {

std::span<const char* const> SimdLevels() {
  static const std::vector<const char*> names = [] {
    std::vector<const char*> out;
    for (const cpu::Level& level : cpu::Levels()) out.push_back(level.name.c_str());
    return out;
  }();
  return names;
}

bool LimitSimd(std::string_view name) {
  const std::vector<cpu::Level>& levels = cpu::Levels();  // before any limit, so that it has all of them
  const cpu::Level* found = nullptr;
  for (const cpu::Level& level : levels) {
    if (level.name == name) found = &level;
  }
  if (found == nullptr && !name.empty()) return false;
  cpu::chosen.store(found, std::memory_order_relaxed);
  hwy::SetSupportedTargetsForTest(found == nullptr ? 0 : found->target);
  hwy::GetChosenTarget().Update(hwy::SupportedTargets());
  return true;
}

const char* SimdLevel() { return cpu::Current().name.c_str(); }

}  // namespace weir
