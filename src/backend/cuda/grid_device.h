// SPDX-License-Identifier: Apache-2.0
// grid.h on a device: thin wrappers around CUDA.
#pragma once

#include <cuda_bf16.h>
#include <cuda_fp16.h>
#include <cuda_runtime.h>

#include <cstdint>

#include "base/status.h"

#define WEIR_GPU cuda
#define WEIR_GPU_NAME "cuda"
#define WEIR_KERNEL __global__ static
// After WEIR_KERNEL: limits registers so that this many blocks of this many threads share a multiprocessor.
#define WEIR_SHARING(threads, blocks) __launch_bounds__(threads, blocks)
#define WEIR_DEVICE __device__ __forceinline__
#define WEIR_BOTH __host__ __device__
#define WEIR_UNROLL _Pragma("unroll")
#define WEIR_PRAGMA(text) _Pragma(#text)
#define WEIR_UNROLL_BY(n) WEIR_PRAGMA(unroll(n))
// For the twin, which checks that threads that meet come from the same call.
#define WEIR_CALLER_PARAM
#define WEIR_CALLER
#define WEIR_AND_CALLER

namespace weir::cuda {

struct Grid {
  int64_t x = 1, y = 1, z = 1;
};

WEIR_DEVICE int ThreadIdx() { return static_cast<int>(threadIdx.x); }
WEIR_DEVICE int NumThreads() { return static_cast<int>(blockDim.x); }
WEIR_DEVICE int BlockIdx() { return static_cast<int>(blockIdx.x); }
WEIR_DEVICE int BlockIdxY() { return static_cast<int>(blockIdx.y); }
WEIR_DEVICE int BlockIdxZ() { return static_cast<int>(blockIdx.z); }
WEIR_DEVICE int NumBlocks() { return static_cast<int>(gridDim.x); }

extern __shared__ uint4 shared_memory[];
// The block's shared memory, 16-byte aligned, of the size given at launch; initially undefined.
WEIR_DEVICE uint8_t* SharedMemory() { return reinterpret_cast<uint8_t*>(shared_memory); }
WEIR_DEVICE void Barrier() { __syncthreads(); }
// For a warp whose lanes read shared memory that others of its lanes wrote, or write what others read.
WEIR_DEVICE void WarpBarrier() { __syncwarp(); }

WEIR_DEVICE float ShuffleXor(float value, int lanes) { return __shfl_xor_sync(0xffffffffu, value, lanes); }
WEIR_DEVICE int ShuffleXor(int value, int lanes) { return __shfl_xor_sync(0xffffffffu, value, lanes); }

// sum + the dot product of four signed bytes each.
WEIR_DEVICE int Dot4(uint32_t a, uint32_t b, int sum) { return __dp4a(static_cast<int>(a), static_cast<int>(b), sum); }

WEIR_DEVICE float FloatOfBits(uint32_t bits) { return __uint_as_float(bits); }
WEIR_DEVICE uint32_t BitsOfFloat(float value) { return __float_as_uint(value); }
WEIR_DEVICE void AtomicMax(uint32_t* to, uint32_t value) { atomicMax(to, value); }
WEIR_DEVICE float HalfToFloat(uint16_t bits) { return __half2float(__ushort_as_half(bits)); }
WEIR_DEVICE uint16_t FloatToHalf(float value) { return __half_as_ushort(__float2half_rn(value)); }
WEIR_DEVICE float Bf16ToFloat(uint16_t bits) { return __uint_as_float(static_cast<uint32_t>(bits) << 16); }
WEIR_DEVICE uint16_t FloatToBf16(float value) { return __bfloat16_as_ushort(__float2bfloat16_rn(value)); }

// Volatile: the compiler must not sink a product that all lanes compute together into a branch that only some take.
// c += a * b, a 16 x 32 times 32 x 8 product of signed bytes over the warp's registers (PTX mma.m16n8k32). With g =
// lane / 4 and t = lane % 4: a[0] is row g, columns 4t .. 4t+3 of the left matrix, a[1] row g + 8, a[2] and a[3] the
// same 16 columns further; b[0] is column g, rows 4t .. 4t+3 of the right one, b[1] the same 16 rows further; c[0],
// c[1] are row g, columns 2t, 2t+1, and c[2], c[3] row g + 8.
WEIR_DEVICE void MmaS8(int c[4], const uint32_t a[4], const uint32_t b[2]) {
  asm volatile("mma.sync.aligned.m16n8k32.row.col.s32.s8.s8.s32 {%0,%1,%2,%3}, {%4,%5,%6,%7}, {%8,%9}, {%0,%1,%2,%3};"
               : "+r"(c[0]), "+r"(c[1]), "+r"(c[2]), "+r"(c[3])
               : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b[0]), "r"(b[1]));
}

// The same for halves, 16 x 16 times 16 x 8 into floats (mma.m16n8k16): a[0] is row g, columns 2t, 2t+1, a[1] row g +
// 8, a[2] and a[3] the same 8 columns further; b[0] is column g, rows 2t, 2t+1, b[1] the same 8 rows further; c as
// above.
WEIR_DEVICE void MmaF16(float c[4], const uint32_t a[4], const uint32_t b[2]) {
  asm volatile("mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32 {%0,%1,%2,%3}, {%4,%5,%6,%7}, {%8,%9}, {%0,%1,%2,%3};"
               : "+f"(c[0]), "+f"(c[1]), "+f"(c[2]), "+f"(c[3])
               : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b[0]), "r"(b[1]));
}

// Four 8 x 8 matrices of halves from shared memory: lanes 8j .. 8j+7 give the 16-byte aligned addresses of matrix j's
// rows. With g = lane / 4 and t = lane % 4: out[j] is row g, columns 2t, 2t+1 of matrix j; transposed, rows 2t, 2t+1 of
// column g.
WEIR_DEVICE void LoadMatrices(uint32_t out[4], const uint16_t* row) {
  const auto at = static_cast<uint32_t>(__cvta_generic_to_shared(row));
  asm volatile("ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%0,%1,%2,%3}, [%4];"
               : "=r"(out[0]), "=r"(out[1]), "=r"(out[2]), "=r"(out[3])
               : "r"(at)
               : "memory");
}
WEIR_DEVICE void LoadTransposed(uint32_t out[4], const uint16_t* row) {
  const auto at = static_cast<uint32_t>(__cvta_generic_to_shared(row));
  asm volatile("ldmatrix.sync.aligned.m8n8.x4.trans.shared.b16 {%0,%1,%2,%3}, [%4];"
               : "=r"(out[0]), "=r"(out[1]), "=r"(out[2]), "=r"(out[3])
               : "r"(at)
               : "memory");
}

// Copies 4, 8 or 16 aligned bytes from device to shared memory. The thread's copies since its last CommitCopies() form
// a group; WaitCopies() returns when at most so many of its groups have not ended. Other threads see them after a
// barrier.
template <int kBytes>
WEIR_DEVICE void CopyAsync(void* to, const void* from) {
  const auto at = static_cast<uint32_t>(__cvta_generic_to_shared(to));
  if constexpr (kBytes == 16) {
    asm volatile("cp.async.cg.shared.global [%0], [%1], 16;" ::"r"(at), "l"(from) : "memory");
  } else {
    asm volatile("cp.async.ca.shared.global [%0], [%1], %2;" ::"r"(at), "l"(from), "n"(kBytes) : "memory");
  }
}
WEIR_DEVICE void CommitCopies() { asm volatile("cp.async.commit_group;" ::: "memory"); }
template <int kPending>
WEIR_DEVICE void WaitCopies() {
  asm volatile("cp.async.wait_group %0;" ::"n"(kPending) : "memory");
}

// 2^x, to 2 units in the last place; 0 where the result is subnormal.
WEIR_DEVICE float Exp2(float x) {
  float y;
  asm("ex2.approx.ftz.f32 %0, %1;" : "=f"(y) : "f"(x));
  return y;
}

// CUDA starts a kernel by its address alone (the twin calls it, and also needs the types of its parameters).
struct KernelCall {};
template <typename... P>
KernelCall CallOf(void (*)(P...)) {
  return {};
}

inline Status StatusOf(cudaError_t error, const char* what) {
  return error == cudaSuccess ? Status() : Internal("CUDA: {}: {}", what, cudaGetErrorString(error));
}

}  // namespace weir::cuda
