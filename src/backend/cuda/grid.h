// SPDX-License-Identifier: Apache-2.0
// The interface kernels are written against: blocks of threads, warps of 32, shared memory, barriers. Under nvcc this
// is CUDA itself. Under a host compiler it is a twin (twin/grid.h) that runs the same kernel source block by block, so
// that every kernel is tested, index by index and barrier by barrier, on machines without a device.
//
// Everything in this folder is in namespace weir::WEIR_GPU (`cuda` or `twin`): both can be linked into one program.
//
//   WEIR_KERNEL void Double(const float* x, float* y, int64_t n) {
//     const int64_t i = GlobalThread();
//     if (i < n) y[i] = 2 * x[i];
//   }
//   stream.Launch(Double, {Blocks(n, 256)}, 256, /*shared_bytes=*/0, x, y, n);
//
// Rules that the twin enforces (twin/watch.h) and a device relies on: all threads of a block reach the same Barrier()
// calls, all lanes of a warp the same WarpBarrier, Shuffle and Mma calls. What one thread writes and another reads or
// writes is separated by a Barrier(), or within a warp by a WarpBarrier(); a shuffle orders no memory. A kernel
// accesses its shared memory and the device's, aligned and within their bounds, and reads no shared memory that it did
// not write.
#pragma once

#include <cmath>
#include <cstdint>

#ifdef __CUDACC__
#include "backend/cuda/grid_device.h"
#else
#include "backend/cuda/twin/grid.h"
#endif

namespace weir::WEIR_GPU {

inline constexpr int kWarp = 32;

WEIR_DEVICE int Lane() { return ThreadIdx() % kWarp; }
WEIR_DEVICE int WarpIdx() { return ThreadIdx() / kWarp; }
WEIR_DEVICE int NumWarps() { return NumThreads() / kWarp; }
WEIR_DEVICE int64_t GlobalThread() { return static_cast<int64_t>(BlockIdx()) * NumThreads() + ThreadIdx(); }

// The same value in every lane, summed in an order that does not depend on the lane.
WEIR_DEVICE float WarpSum(float value WEIR_CALLER_PARAM) {
  for (int step = kWarp / 2; step > 0; step /= 2) value += ShuffleXor(value, step WEIR_AND_CALLER);
  return value;
}
WEIR_DEVICE float WarpMax(float value WEIR_CALLER_PARAM) {
  for (int step = kWarp / 2; step > 0; step /= 2) value = fmaxf(value, ShuffleXor(value, step WEIR_AND_CALLER));
  return value;
}
WEIR_DEVICE int WarpSum(int value WEIR_CALLER_PARAM) {
  for (int step = kWarp / 2; step > 0; step /= 2) value += ShuffleXor(value, step WEIR_AND_CALLER);
  return value;
}

// Sum over a block. `scratch` is shared memory of kWarp floats with no other use; REQUIRES: whole warps.
WEIR_DEVICE float BlockSum(float value, float* scratch WEIR_CALLER_PARAM) {
  value = WarpSum(value WEIR_AND_CALLER);
  Barrier(WEIR_CALLER);
  if (Lane() == 0) scratch[WarpIdx()] = value;
  Barrier(WEIR_CALLER);
  return WarpSum(Lane() < NumWarps() ? scratch[Lane()] : 0.0f WEIR_AND_CALLER);
}

WEIR_DEVICE bool IsFinite(float value) { return (BitsOfFloat(value) & 0x7f800000u) != 0x7f800000u; }

// Blocks that cover n items, `per_block` each.
inline int64_t Blocks(int64_t n, int64_t per_block) { return (n + per_block - 1) / per_block; }

}  // namespace weir::WEIR_GPU
