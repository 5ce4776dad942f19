// SPDX-License-Identifier: Apache-2.0
// Row-wise operations on the CPU.
#pragma once

#include "base/threads.h"
#include "ops/elementwise.h"

namespace weir::cpu {

void RmsNorm(const RmsNormArgs& args, ThreadPool& pool);
void LayerNorm(const LayerNormArgs& args, ThreadPool& pool);
// Absolute error below 4e-7 * max(1, |x|). NaN stays NaN.
void Gelu(const GeluArgs& args, ThreadPool& pool);
void Relu(const ReluArgs& args, ThreadPool& pool);
void Clamp(const ClampArgs& args, ThreadPool& pool);
// Error below 4e-7 of the value plus 1e-36 * |up|. NaN stays NaN.
void SwiGlu(const SwiGluArgs& args, ThreadPool& pool);
// Error below 4e-7 of the value plus 1e-36 * |x|. NaN stays NaN.
void SigmoidGate(const SigmoidGateArgs& args, ThreadPool& pool);
// Error below 6e-6 of the value, where the exponent of a large gate is rounded, plus 1e-34. NaN stays NaN.
void ClampedSwiGlu(const ClampedSwiGluArgs& args, ThreadPool& pool);
// Error below 1e-6 * max(1, |gate|) * |up|. NaN stays NaN.
void GeGlu(const GeGluArgs& args, ThreadPool& pool);
// Error below 1e-6 of the value. NaN stays NaN.
void SoftCap(const SoftCapArgs& args, ThreadPool& pool);

}  // namespace weir::cpu
