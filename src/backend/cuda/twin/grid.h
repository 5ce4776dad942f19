// SPDX-License-Identifier: Apache-2.0
// grid.h on the host: kernels as plain functions, a block's threads as fibers of one thread. For tests only.
#pragma once

#include <bit>
#include <cstdint>
#include <functional>
#include <source_location>
#include <utility>

#include "base/status.h"
#include "quant/half.h"

#define WEIR_GPU twin
#define WEIR_GPU_NAME "twin"
#define WEIR_KERNEL static
#define WEIR_SHARING(threads, blocks)
#define WEIR_DEVICE inline
#define WEIR_BOTH
#define WEIR_UNROLL
// The last parameter of a function that meets other threads: where it was called. Threads that meet come from the same
// call. WEIR_CALLER passes it on, WEIR_AND_CALLER after other arguments.
#define WEIR_CALLER_PARAM , Where caller = Where::current()
#define WEIR_CALLER caller
#define WEIR_AND_CALLER , caller

namespace weir::twin {

struct Grid {
  int64_t x = 1, y = 1, z = 1;
};
struct alignas(16) uint4 {
  uint32_t x, y, z, w;
};
struct alignas(16) float4 {
  float x, y, z, w;
};

using Where = std::source_location;

// Of the running thread.
int ThreadIdx();
int NumThreads();
int BlockIdx();
int BlockIdxY();
int BlockIdxZ();
int NumBlocks();
uint8_t* SharedMemory();
void Barrier(Where caller = Where::current());
void WarpBarrier(Where caller = Where::current());

// The value of another lane of the warp: every lane calls it, with up to 32 bytes.
inline constexpr int kExchangeBytes = 32;
void Exchange(const void* mine, int n_bytes, Where caller);
const void* FromLane(int lane);

float ShuffleXor(float value, int lanes, Where caller = Where::current());
int ShuffleXor(int value, int lanes, Where caller = Where::current());
int Dot4(uint32_t a, uint32_t b, int sum);
void MmaS8(int c[4], const uint32_t a[4], const uint32_t b[2], Where caller = Where::current());
void MmaF16(float c[4], const uint32_t a[4], const uint32_t b[2], Where caller = Where::current());

inline float FloatOfBits(uint32_t bits) { return std::bit_cast<float>(bits); }
inline uint32_t BitsOfFloat(float value) { return std::bit_cast<uint32_t>(value); }
void AtomicMax(uint32_t* to, uint32_t value);
inline float HalfToFloat(uint16_t bits) { return F16ToF32(bits); }
inline uint16_t FloatToHalf(float value) { return F32ToF16(value); }
inline float Bf16ToFloat(uint16_t bits) { return BF16ToF32(bits); }
inline uint16_t FloatToBf16(float value) { return F32ToBF16(value); }

// Calls a kernel with the parameters at these addresses.
using KernelCall = void (*)(const void* kernel, const void* const* params);

template <typename... P, size_t... kIdx>
__attribute__((no_sanitize_thread)) void CallKernel(const void* kernel, [[maybe_unused]] const void* const* params,
                                                    std::index_sequence<kIdx...>) {
  reinterpret_cast<void (*)(P...)>(const_cast<void*>(kernel))(*static_cast<const P*>(params[kIdx])...);
}
template <typename... P>
KernelCall CallOf(void (*)(P...)) {
  return [](const void* kernel, const void* const* params) {
    CallKernel<P...>(kernel, params, std::index_sequence_for<P...>());
  };
}

// The graph call (create, update or launch) to reject: 0 the next one; negative: none.
inline thread_local int64_t refuse_graph_call = -1;

// Runs a launch, block by block. kInternal for errors that a device would not tolerate.
Status RunGrid(Grid grid, int threads, int64_t shared_bytes, const std::function<void()>& body);

}  // namespace weir::twin
