// SPDX-License-Identifier: Apache-2.0
// Products of weights made of codes (coded_weights.h), dispatched at run time to the widest instructions of the
// machine.
#include <array>
#include <utility>

#include "backend/cpu/coded_weights.h"
#include "backend/cpu/pack.h"
#include "backend/cpu/simd.h"

#define HWY_WANT_AVX3_DL
// Arrays of vectors need vectors of a size known at compile time. SSSE3 without SSE4 is too rare to be worth the
// compile time.
#define HWY_DISABLED_TARGETS (HWY_SVE | HWY_SVE2 | HWY_SVE_256 | HWY_SVE2_128 | HWY_RVV | HWY_SSSE3)
#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "backend/cpu/coded_product.cc"
#include "hwy/foreach_target.h"  // IWYU pragma: keep
#include "hwy/highway.h"

// After foreach_target.h: compiled once per target.
#include "backend/cpu/matmul_blocks-inl.h"
#include "backend/cpu/matmul_tile-inl.h"
#if HWY_ARCH_X86 && HWY_TARGET <= HWY_SSSE3
#include "backend/cpu/matmul_unpacked-inl.h"
#endif
#if HWY_ARCH_X86 && HWY_TARGET <= HWY_AVX3_DL
#include "backend/cpu/matmul_vnni-inl.h"
#elif HWY_ARCH_ARM_A64
#include "backend/cpu/matmul_arm-inl.h"
#elif HWY_TARGET == HWY_AVX2
#include "backend/cpu/matmul_ymm-inl.h"
#endif

HWY_BEFORE_NAMESPACE();
namespace weir::cpu::HWY_NAMESPACE {
namespace hn = hwy::HWY_NAMESPACE;

template <PackLayout kLayout>
void Blocks(const ProductArgs& args) {
#if HWY_ARCH_X86 && HWY_TARGET <= HWY_AVX3_DL
  vnni::Quantised<kLayout>(args);
#else
#if HWY_ARCH_ARM_A64
  if (arm_dots() == ArmDots::kI8mm) return i8mm::BlockPanels<kLayout, i8mm::Smmla, dotprod::Sdot>(args);
  if (arm_dots() == ArmDots::kDotProduct) return dotprod::BlockPanels<kLayout, dotprod::Sdot, dotprod::Sdot>(args);
#endif
#if HWY_TARGET == HWY_AVX2
  switch (ymm_dots()) {
    case YmmDots::kVex:
      return ymm_vex::BlockPanels<kLayout, ymm_vex::Dpbusd, ymm_vex::Dpbusd>(args);
    case YmmDots::kEvex:
      return ymm_evex::BlockPanels<kLayout, ymm_evex::Dpbusd, ymm_evex::Dpbusd>(args);
    case YmmDots::kNone:
      break;
  }
#endif
  BlockPanels<kLayout, BestDots, BestDots>(args);
#endif
}

// Formats of the same layout share a product.
template <DType kType>
constexpr auto ProductOf() -> void (*)(const ProductArgs&) {
  if constexpr (constexpr PackLayout kLayout = LayoutOf(kType); kLayout.has_codes()) {
    return Blocks<kLayout>;
  } else {
    return nullptr;  // never packed this way
  }
}

template <size_t... kTypes>
constexpr std::array<void (*)(const ProductArgs&), kNumDTypes> Products(std::index_sequence<kTypes...>) {
  return {ProductOf<static_cast<DType>(kTypes)>()...};
}

void CodedImpl(const ProductArgs& args) {
  static constexpr auto kProducts = Products(std::make_index_sequence<kNumDTypes>());
  kProducts[static_cast<size_t>(args.w->type())](args);
}

}  // namespace weir::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace weir::cpu {

HWY_EXPORT(CodedImpl);

void CodedProduct(const ProductArgs& args) { HWY_DYNAMIC_DISPATCH(CodedImpl)(args); }

}  // namespace weir::cpu
#endif
