// SPDX-License-Identifier: Apache-2.0
// Optional instructions that Highway's targets do not distinguish, if the machine has them and they are allowed
// (backend/simd.h).
#pragma once

namespace weir::cpu {

enum class ArmDots { kNone, kDotProduct, kI8mm };
ArmDots arm_dots();

// VNNI on vectors of 256 bits: the encoding of AVX-VNNI, or that of AVX-512 where only this one is there.
enum class YmmDots { kNone, kVex, kEvex };
YmmDots ymm_dots();

// AVX-512 BF16: products of pairs of bfloat16.
bool has_bf16_pairs();

}  // namespace weir::cpu
