// SPDX-License-Identifier: Apache-2.0
// grid.h on the host: kernels as plain functions, a block's threads as fibers of one thread. For tests only.
#pragma once

#include <bit>
#include <cmath>
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
#define WEIR_UNROLL_BY(n)
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

// Each lane loads its own row, aligned as the device demands, and hands it to the others.
inline uint4 LoadRow(const uint16_t* row) {
  const auto& at = *reinterpret_cast<const uint4*>(row);
  return {at.x, at.y, at.z, at.w};  // word by word: what is not aligned is reported instead of ending the program
}
void ExchangeRows(uint32_t out[4], const uint4& mine, bool transposed, Where caller);
inline void LoadMatrices(uint32_t out[4], const uint16_t* row, Where caller = Where::current()) {
  ExchangeRows(out, LoadRow(row), false, caller);
}
inline void LoadTransposed(uint32_t out[4], const uint16_t* row, Where caller = Where::current()) {
  ExchangeRows(out, LoadRow(row), true, caller);
}

// A copy that has begun: its bytes are written when the thread waits for it, as late as a device may; until then they
// are 0xff. So a thread that reads too early reads NaN, and one that still reads the old bytes has a race.
struct PendingCopy {
  void* to;
  const void* from;
  int n_bytes;
};
void BeginCopy(const PendingCopy& copy);
void CommitCopies();
// The oldest copy of the thread's groups before the last `n_pending`; false when there is none.
bool EndCopy(int n_pending, PendingCopy* copy);

template <int kBytes>
struct alignas(kBytes) Piece {
  uint32_t words[kBytes / 4];
};
template <int kBytes>
void CopyAsync(void* to, const void* from) {
  auto& piece = *static_cast<Piece<kBytes>*>(to);
  for (uint32_t& word : piece.words) word = 0xffffffffu;
  BeginCopy({to, from, kBytes});
}
template <int kBytes>
void WritePiece(const PendingCopy& copy) {
  *static_cast<Piece<kBytes>*>(copy.to) = *static_cast<const Piece<kBytes>*>(copy.from);
}
template <int kPending>
void WaitCopies() {
  PendingCopy copy;
  while (EndCopy(kPending, &copy)) {
    if (copy.n_bytes == 16) WritePiece<16>(copy);
    if (copy.n_bytes == 8) WritePiece<8>(copy);
    if (copy.n_bytes == 4) WritePiece<4>(copy);
  }
}

inline float Exp2(float x) {
  const float y = std::exp2(x);
  return y < 0x1p-126f ? 0.0f : y;
}

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
