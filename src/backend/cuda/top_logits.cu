// SPDX-License-Identifier: Apache-2.0
#include "backend/cuda/top_logits.h"

#include <cstring>

#include "base/workspace.h"

namespace weir::WEIR_GPU {
namespace {

constexpr int kThreads = 512;
constexpr int kKeys = 4096;  // of a block, in shared memory

// A logit and its id as one number, in rank order: larger is earlier. 0 is not used by any logit.
WEIR_DEVICE uint64_t KeyOf(float logit, int64_t id) {
  uint32_t bits = BitsOfFloat(logit == 0 ? 0.0f : logit);
  bits = bits >> 31 != 0 ? ~bits : bits | 0x80000000u;
  if (!IsFinite(logit)) bits = 0xffffffffu;
  return static_cast<uint64_t>(bits) << 32 | ~static_cast<uint32_t>(id);
}

// The k largest of each block's keys, in falling order. Keys are those of `logits`, or of `keys` where it is nullptr.
WEIR_KERNEL void KeepLargest(const float* logits, const uint64_t* keys, int64_t n, int64_t k, uint64_t* out) {
  auto* mine = reinterpret_cast<uint64_t*>(SharedMemory());
  const int64_t first = static_cast<int64_t>(BlockIdx()) * kKeys;
  for (int i = ThreadIdx(); i < kKeys; i += kThreads) {
    const int64_t at = first + i;
    mine[i] = at >= n ? 0 : logits != nullptr ? KeyOf(logits[at], at) : keys[at];
  }
  if (k == 1) {
    uint64_t best = 0;
    for (int i = ThreadIdx(); i < kKeys; i += kThreads) best = mine[i] > best ? mine[i] : best;
    mine[ThreadIdx()] = best;
    for (int half = kThreads / 2; half > 0; half /= 2) {
      Barrier();
      if (ThreadIdx() < half && mine[ThreadIdx() + half] > mine[ThreadIdx()])
        mine[ThreadIdx()] = mine[ThreadIdx() + half];
    }
  } else {
    // Bitonic sort of the existing keys.
    int size = 2;
    while (size < kKeys && size < n - first) size *= 2;
    for (int length = 2; length <= size; length *= 2) {
      for (int step = length / 2; step > 0; step /= 2) {
        Barrier();
        for (int i = ThreadIdx(); i < size / 2; i += kThreads) {
          const int a = i / step * 2 * step + i % step, b = a + step;
          const bool falls = (a & length) == 0;
          if ((mine[a] < mine[b]) == falls) {
            const uint64_t other = mine[a];
            mine[a] = mine[b];
            mine[b] = other;
          }
        }
      }
    }
  }
  Barrier();
  for (int64_t i = ThreadIdx(); i < k; i += kThreads) out[BlockIdx() * k + i] = mine[i];
}

WEIR_KERNEL void Unpack(const uint64_t* keys, const float* logits, int64_t k, int32_t* ids, float* values) {
  const int64_t i = GlobalThread();
  if (i >= k) return;
  const uint32_t id = ~static_cast<uint32_t>(keys[i]);
  ids[i] = static_cast<int32_t>(id);
  values[i] = logits[id];
}

struct Scratch {
  uint64_t* keys[2];
  uint8_t* results;  // ids, then values
};

Scratch LayOut(Workspace& space, int64_t n) {
  Scratch out;
  for (uint64_t*& keys : out.keys) {
    n = Blocks(n, kKeys) * kMaxTopLogits;
    keys = reinterpret_cast<uint64_t*>(space.Bytes(n * 8));
  }
  out.results = space.Bytes(kMaxTopLogits * 8);
  return out;
}

}  // namespace

int64_t TopLogitsScratchBytes(int64_t n) {
  Workspace space(nullptr);
  LayOut(space, n);
  return space.used();
}

void TopLogits(Device& device, const TopLogitsArgs& args) {
  Workspace space(device.Mine(static_cast<uint8_t*>(args.scratch)));
  const Scratch scratch = LayOut(space, args.n);
  const float* logits = device.Mine(args.logits);
  const uint64_t* keys = nullptr;
  int64_t n = args.n;
  for (int pass = 0; pass == 0 || n > args.k; ++pass) {
    uint64_t* const to = scratch.keys[pass % 2];
    const int64_t n_blocks = Blocks(n, kKeys);
    device.Launch(KeepLargest, Grid{n_blocks}, kThreads, kKeys * 8, pass == 0 ? logits : nullptr, keys, n, args.k, to);
    keys = to;
    n = n_blocks * args.k;
  }
  auto* ids = reinterpret_cast<int32_t*>(scratch.results);
  device.Launch(Unpack, Grid{Blocks(args.k, kThreads)}, kThreads, 0, keys, logits, args.k, ids,
                reinterpret_cast<float*>(ids + args.k));
  // One copy, one wait.
  uint8_t results[kMaxTopLogits * 8];
  device.Copy(results, scratch.results, args.k * 8);
  std::memcpy(args.ids, results, static_cast<size_t>(args.k) * 4);
  std::memcpy(args.values, results + args.k * 4, static_cast<size_t>(args.k) * 4);
}

}  // namespace weir::WEIR_GPU
