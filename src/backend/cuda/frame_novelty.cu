// SPDX-License-Identifier: Apache-2.0
#include "backend/cuda/frame_novelty.h"

#include <algorithm>

#include "backend/cuda/slots.h"
#include "ops/kv_slots.h"

namespace weir::WEIR_GPU {
namespace {

constexpr int kThreads = 256;

struct NoveltyCall {
  const uint8_t* keys = nullptr;
  DType type = DType::kF16;
  int64_t slot_bytes = 0, n_slots = 0, dim = 0;
  const int32_t* place = nullptr;   // [n_slots]
  const int32_t* recent = nullptr;  // [n_recent], ascending
  int64_t n_recent = 0;
  float* mean = nullptr;  // [n_recent, dim]: mean of the unit keys at each
  float* out = nullptr;   // [n_slots]
};

// 1 / |key|, for a warp; 1 for the zero vector, which is unchanged.
WEIR_DEVICE float InverseNorm(const NoveltyCall& call, const uint8_t* key) {
  float squares = 0;
  for (int64_t e = Lane(); e < call.dim; e += kWarp) {
    const float x = SlotElement(call.type, key, e);
    squares = fmaf(x, x, squares);
  }
  squares = WarpSum(squares);
  return squares > 0 ? 1.0f / sqrtf(squares) : 1.0f;
}

// One block per recent place. Its warps sum their slots separately, then together.
WEIR_KERNEL void MeanOfRecent(NoveltyCall call) {
  auto* sums = reinterpret_cast<float*>(SharedMemory());  // [warps, dim]
  float* scratch = sums + NumWarps() * call.dim;
  float* mine = sums + WarpIdx() * call.dim;
  for (int64_t e = Lane(); e < call.dim; e += kWarp) mine[e] = 0;
  const int32_t wanted = kRecentPlace + call.recent[BlockIdx()];
  float n = 0;  // a count: exact far beyond any pot
  for (int64_t s = WarpIdx(); s < call.n_slots; s += NumWarps()) {
    if (call.place[s] != wanted) continue;
    const uint8_t* key = call.keys + s * call.slot_bytes;
    const float inverse = InverseNorm(call, key);
    for (int64_t e = Lane(); e < call.dim; e += kWarp) {
      mine[e] = fmaf(SlotElement(call.type, key, e), inverse, mine[e]);
    }
    ++n;
  }
  n = BlockSum(Lane() == 0 ? n : 0.0f, scratch);
  for (int64_t e = ThreadIdx(); e < call.dim; e += NumThreads()) {
    float sum = 0;
    for (int w = 0; w < NumWarps(); ++w) sum += sums[w * call.dim + e];
    call.mean[BlockIdx() * call.dim + e] = sum / n;
  }
}

// One warp per slot.
WEIR_KERNEL void Compare(NoveltyCall call) {
  const int64_t s = GlobalThread() / kWarp;
  if (s >= call.n_slots) return;
  const int32_t place = call.place[s];
  float novelty = 0;
  if (place != kNoPlace && place < kRecentPlace) {
    int64_t at = 0;
    for (int64_t end = call.n_recent; at < end;) {
      const int64_t middle = (at + end) / 2;
      if (call.recent[middle] < place) {
        at = middle + 1;
      } else {
        end = middle;
      }
    }
    novelty = 1;
    if (at < call.n_recent && call.recent[at] == place) {
      const uint8_t* key = call.keys + s * call.slot_bytes;
      float dot = 0;
      for (int64_t e = Lane(); e < call.dim; e += kWarp) {
        dot = fmaf(SlotElement(call.type, key, e), call.mean[at * call.dim + e], dot);
      }
      novelty = -WarpSum(dot) * InverseNorm(call, key);
    }
  }
  if (Lane() == 0) call.out[s] = novelty;
}

}  // namespace

void FrameNovelty(Device& device, const FrameNoveltyArgs& args) {
  NoveltyCall call;
  call.keys = device.Mine(args.keys);
  call.type = args.type;
  call.slot_bytes = SlotBytes(args.type, args.head_dim);
  call.n_slots = args.n_slots;
  call.dim = args.head_dim;
  call.out = device.Mine(args.out);
  call.place = FrameNoveltyPlaces(args);
  // The host makes the list, because it wrote the places.
  auto* recent = reinterpret_cast<int32_t*>(device.Mine(args.scratch) + (args.n_slots * 4 + 7) / 8 * 8);
  for (int64_t s = 0; s < args.n_slots; ++s) {
    if (call.place[s] >= kRecentPlace) recent[call.n_recent++] = call.place[s] - kRecentPlace;
  }
  std::sort(recent, recent + call.n_recent);
  call.n_recent = std::unique(recent, recent + call.n_recent) - recent;
  call.recent = recent;
  call.mean = reinterpret_cast<float*>(args.scratch + 3 * ((args.n_slots * 4 + 7) / 8 * 8));
  device.Launch(MeanOfRecent, Grid{call.n_recent}, kThreads, (kThreads / kWarp * args.head_dim + kWarp) * 4, call);
  device.Launch(Compare, Grid{Blocks(args.n_slots, kThreads / kWarp)}, kThreads, 0, call);
}

}  // namespace weir::WEIR_GPU
