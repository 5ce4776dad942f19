// SPDX-License-Identifier: Apache-2.0
#include "backend/cuda/scenes.h"

#include "backend/cuda/slots.h"
#include "ops/kv_slots.h"

namespace weir::WEIR_GPU {
namespace {

constexpr int kThreads = 256;

struct ScenesCall {
  const uint8_t* keys = nullptr;
  DType type = DType::kF16;
  int64_t slot_bytes = 0, n_slots = 0, dim = 0;
  float change = 0;
  const int32_t* place = nullptr;  // [n_slots]
  float* out = nullptr;            // [n_slots]
};

// Whether 1 - cos of two keys is above call.change, for a warp.
WEIR_DEVICE bool Differ(const ScenesCall& call, int64_t a, int64_t b) {
  const uint8_t* x = call.keys + a * call.slot_bytes;
  const uint8_t* y = call.keys + b * call.slot_bytes;
  float xy = 0, xx = 0, yy = 0;
  for (int64_t e = Lane(); e < call.dim; e += kWarp) {
    const float p = SlotElement(call.type, x, e), q = SlotElement(call.type, y, e);
    xy = fmaf(p, q, xy);
    xx = fmaf(p, p, xx);
    yy = fmaf(q, q, yy);
  }
  xy = WarpSum(xy);
  const float squares = WarpSum(xx) * WarpSum(yy);
  return 1 - (squares > 0 ? xy / sqrtf(squares) : 0.0f) > call.change;
}

// The slot of [begin, end) at that place, or -1.
WEIR_DEVICE int64_t Find(const ScenesCall& call, int64_t begin, int64_t end, int32_t place) {
  const int64_t last = end;
  while (begin < end) {
    const int64_t middle = (begin + end) / 2;
    if (call.place[middle] % kBeginsFrame < place) {
      begin = middle + 1;
    } else {
      end = middle;
    }
  }
  return begin < last && call.place[begin] % kBeginsFrame == place ? begin : -1;
}

// One block: frame after frame, a warp per slot of the frame.
WEIR_KERNEL void FindScenes(ScenesCall call) {
  auto* scratch = reinterpret_cast<float*>(SharedMemory());
  int64_t first_begin = 0, first_end = 0;
  int scene = 0;
  for (int64_t begin = 0, end; begin < call.n_slots; begin = end) {
    end = begin + 1;
    if (call.place[begin] == kNotInScene) {
      if (ThreadIdx() == 0) call.out[begin] = 0;
      continue;
    }
    while (end < call.n_slots && call.place[end] != kNotInScene && call.place[end] < kBeginsFrame) ++end;
    float n_common = 0, n_changed = 0;  // counts: exact far beyond any pot
    for (int64_t s = begin + WarpIdx(); s < end; s += NumWarps()) {
      const int64_t at = Find(call, first_begin, first_end, call.place[s] % kBeginsFrame);
      const bool changed = at >= 0 && Differ(call, s, at);
      if (Lane() == 0) {
        n_common += at >= 0;
        n_changed += changed;
        call.out[s] = changed ? 1 : -1;
      }
    }
    n_common = BlockSum(n_common, scratch);
    n_changed = BlockSum(n_changed, scratch);
    const bool begins = 2 * n_changed >= n_common;
    if (begins) ++scene, first_begin = begin, first_end = end;
    for (int64_t s = begin + ThreadIdx(); s < end; s += NumThreads()) {
      call.out[s] = static_cast<float>(begins || call.out[s] > 0 ? scene : -scene);
    }
  }
}

}  // namespace

void Scenes(Device& device, std::span<const ScenesArgs> args) {
  for (const ScenesArgs& head : args) {
    ScenesCall call;
    call.keys = device.Mine(head.keys);
    call.type = head.type;
    call.slot_bytes = SlotBytes(head.type, head.head_dim);
    call.n_slots = head.n_slots;
    call.dim = head.head_dim;
    call.change = head.change;
    call.place = head.places;
    call.out = device.Mine(head.out);
    device.Launch(FindScenes, Grid{1}, kThreads, kWarp * 4, call);
  }
}

}  // namespace weir::WEIR_GPU
