// Row-wise operations on the CPU.
#pragma once

#include "base/threads.h"
#include "ops/elementwise.h"

namespace weir::cpu {

void RmsNorm(const RmsNormArgs& args, ThreadPool& pool);
// Relative error below 4e-7 plus the smallest normal number.
void SwiGlu(const SwiGluArgs& args, ThreadPool& pool);

}  // namespace weir::cpu
