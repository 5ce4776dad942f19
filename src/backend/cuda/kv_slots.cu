// SPDX-License-Identifier: Apache-2.0
#include "backend/cuda/kv_slots.h"

#include <algorithm>
#include <cstring>

#include "backend/cuda/slots.h"

namespace weir::WEIR_GPU {
namespace {

// Heads of one launch: their descriptions are kernel parameters, which are limited to 4 KiB.
constexpr int kHeads = 48;
constexpr int kThreads = 128;

struct StoreHead {
  const float* x;
  uint8_t* slots;  // the first slot to write
  const float* cos;
  const float* sin;
  DType type;
};
struct StoreHeads {
  StoreHead head[kHeads];
};

WEIR_DEVICE float Rotated(const StoreHead& head, const float* x, int64_t row, int n_pairs, float magnitude, int64_t e) {
  if (head.cos == nullptr || e >= 2 * n_pairs) return x[e];
  const int64_t pair = e < n_pairs ? e : e - n_pairs;
  const float c = head.cos[row * n_pairs + pair] * magnitude, s = head.sin[row * n_pairs + pair] * magnitude;
  return e < n_pairs ? x[pair] * c - x[pair + n_pairs] * s : x[pair + n_pairs] * c + x[pair] * s;
}

// Block (row, head): one vector. For Q8_0 one warp per block of 32, with the numbers of its encoder (quant/q8_0.cc),
// bit for bit.
WEIR_KERNEL void StoreRows(StoreHeads heads, int64_t x_stride, int64_t dim, int n_pairs, float magnitude) {
  const StoreHead& head = heads.head[BlockIdxY()];
  const int64_t row = BlockIdx();
  const float* x = head.x + row * x_stride;
  if (head.type == DType::kQ8_0) {
    uint8_t* slot = head.slots + row * (dim / 32 * static_cast<int64_t>(sizeof(BlockQ8_0)));
    for (int64_t b = WarpIdx(); b < dim / 32; b += NumWarps()) {
      const float value = Rotated(head, x, row, n_pairs, magnitude, b * 32 + Lane());
      const bool finite = WarpSum(IsFinite(value) ? 0 : 1) == 0;
      const float d = WarpMax(fabsf(value)) / 127.0f;
      const float inverse = d == 0.0f ? 0.0f : 1.0f / d;
      uint8_t* block = slot + b * static_cast<int64_t>(sizeof(BlockQ8_0));
      const float scaled = roundf(value * inverse);
      // NaN, and values that overflow with a tiny scale's inverse, become what TruncateTo() makes of them.
      const int code = !(scaled > -127.0f) ? -127 : scaled >= 127.0f ? 127 : static_cast<int>(scaled);
      block[2 + Lane()] = static_cast<uint8_t>(finite ? code : 0);
      if (Lane() == 0) *reinterpret_cast<uint16_t*>(block) = finite ? FloatToHalf(d) : uint16_t{0x7e00};
    }
    return;
  }
  for (int64_t e = ThreadIdx(); e < dim; e += NumThreads()) {
    const float value = Rotated(head, x, row, n_pairs, magnitude, e);
    if (head.type == DType::kF16) {
      reinterpret_cast<uint16_t*>(head.slots)[row * dim + e] = FloatToHalf(value);
    } else {
      reinterpret_cast<float*>(head.slots)[row * dim + e] = value;
    }
  }
}

struct CompactHead {
  uint8_t* slots;
  int64_t slot_bytes;
  const int32_t* keep;
  int32_t n_keep;
};
constexpr int kCompactHeads = 96;
struct CompactHeads {
  CompactHead head[kCompactHeads];
};

constexpr int kMoveBytes = 16384;  // of one block of threads at a time
constexpr int kPartBytes = 64;     // of a slot, at least: neighbouring lanes read whole sectors

// Block (head, part): moves one part of every slot, in place, some slots at a time. All are read before any is written,
// and later ones are never read from where earlier ones were written, because slot j of the result is never before j.
// `Unit` divides slots' sizes and addresses.
template <typename Unit>
WEIR_KERNEL void CompactRows(CompactHeads heads, int n_parts) {
  auto* shared = reinterpret_cast<Unit*>(SharedMemory());
  const CompactHead& head = heads.head[BlockIdx()];
  const int slot_units = static_cast<int>(head.slot_bytes / static_cast<int64_t>(sizeof(Unit)));
  const int whole = (slot_units + n_parts - 1) / n_parts, begin = BlockIdxY() * whole;
  const int units = slot_units - begin < whole ? slot_units - begin : whole;
  if (units <= 0) return;
  auto* slots = reinterpret_cast<Unit*>(head.slots) + begin;
  const int per_pass = kMoveBytes / static_cast<int>(sizeof(Unit)) / units;
  for (int first = 0; first < head.n_keep; first += per_pass) {
    const int n_slots = head.n_keep - first < per_pass ? head.n_keep - first : per_pass, n = n_slots * units;
    if (head.keep[first + n_slots - 1] == first + n_slots - 1) continue;  // ascending: all of them keep their places
    Barrier();
    for (int i = ThreadIdx(); i < n; i += NumThreads()) {
      shared[i] = slots[static_cast<int64_t>(head.keep[first + i / units]) * slot_units + i % units];
    }
    Barrier();
    for (int i = ThreadIdx(); i < n; i += NumThreads()) {
      slots[static_cast<int64_t>(first + i / units) * slot_units + i % units] = shared[i];
    }
  }
}

struct ScoreHead {
  const uint8_t* slots;
  DType type;
  int32_t n_slots;
  float* out;
};
struct ScoreHeads {
  ScoreHead head[kHeads];
};

constexpr int kScoreThreads = 256;
constexpr int64_t kMaxVector = 1024;

WEIR_DEVICE float Norm(const ScoreHead& head, const uint8_t* slot, int64_t dim) {
  float squares = 0;
  for (int64_t e = Lane(); e < dim; e += kWarp) {
    const float value = SlotElement(head.type, slot, e);
    squares = fmaf(value, value, squares);
  }
  return sqrtf(WarpSum(squares));
}

// One warp per slot, one block per head.
WEIR_KERNEL void ValueNorms(ScoreHeads heads, int64_t dim, int64_t slot_bytes) {
  const ScoreHead& head = heads.head[BlockIdxY()];
  for (int64_t s = GlobalThread() / kWarp; s < head.n_slots; s += static_cast<int64_t>(NumBlocks()) * NumWarps()) {
    const float norm = Norm(head, head.slots + s * slot_bytes, dim);
    if (Lane() == 0) head.out[s] = norm;
  }
}

// One block per head. Its warps sum the directions of their slots separately, then together.
WEIR_KERNEL void KeyDifferences(ScoreHeads heads, int64_t dim, int64_t slot_bytes) {
  auto* sums = reinterpret_cast<float*>(SharedMemory());  // [warps, dim]
  float* scratch = sums + NumWarps() * dim;
  const ScoreHead& head = heads.head[BlockIdx()];
  float* mine = sums + WarpIdx() * dim;
  for (int64_t e = Lane(); e < dim; e += kWarp) mine[e] = 0;
  for (int64_t s = WarpIdx(); s < head.n_slots; s += NumWarps()) {
    const uint8_t* slot = head.slots + s * slot_bytes;
    const float norm = Norm(head, slot, dim);
    for (int64_t e = Lane(); e < dim && norm > 0; e += kWarp) mine[e] += SlotElement(head.type, slot, e) / norm;
  }
  Barrier();
  float squares = 0;
  for (int64_t e = ThreadIdx(); e < dim; e += NumThreads()) {
    float sum = 0;
    for (int w = 0; w < NumWarps(); ++w) sum += sums[w * dim + e];
    sums[e] = sum;
    squares = fmaf(sum, sum, squares);
  }
  const float length = sqrtf(BlockSum(squares, scratch));
  for (int64_t s = WarpIdx(); s < head.n_slots; s += NumWarps()) {
    const uint8_t* slot = head.slots + s * slot_bytes;
    const float norm = Norm(head, slot, dim);
    float dot = 0;
    for (int64_t e = Lane(); e < dim; e += kWarp) dot = fmaf(SlotElement(head.type, slot, e), sums[e], dot);
    dot = WarpSum(dot);
    if (Lane() == 0) head.out[s] = norm > 0 && length > 0 ? -dot / (norm * length) : 0.0f;
  }
}

}  // namespace

void StoreSlots(Device& device, std::span<const StoreSlotsArgs> args) {
  while (!args.empty()) {
    const StoreSlotsArgs& like = args.front();
    StoreHeads heads = {};  // a graph compares all of it with that of the previous pass
    int n = 0;
    const RopeTable* rope = nullptr;
    // Heads in one launch have the same number of rows, width and rotation.
    while (n < std::min<int64_t>(kHeads, std::ssize(args)) && args[n].n_rows == like.n_rows &&
           args[n].head_dim == like.head_dim && args[n].x_stride == like.x_stride &&
           (rope == nullptr || args[n].rope == nullptr || args[n].rope == rope)) {
      const StoreSlotsArgs& a = args[n];
      const bool rotates = a.rope != nullptr && a.rope->n_rot > 0;
      if (rotates) rope = a.rope;
      heads.head[n++] = {device.Mine(a.x), device.Mine(a.slots) + a.first_slot * SlotBytes(a.type, a.head_dim),
                         rotates ? device.Mine(a.cos) : nullptr, rotates ? device.Mine(a.sin) : nullptr, a.type};
    }
    device.Launch(StoreRows, Grid{like.n_rows, n}, kThreads, 0, heads, like.x_stride, like.head_dim,
                  rope != nullptr ? rope->n_rot / 2 : 0, rope != nullptr ? rope->magnitude : 1.0f);
    args = args.subspan(static_cast<size_t>(n));
  }
}

void CompactSlots(Device& device, std::span<const CompactSlotsArgs> args) {
  while (!args.empty()) {
    CompactHeads heads;
    const int n = static_cast<int>(std::min<int64_t>(kCompactHeads, std::ssize(args)));
    // Heads of a group share one list.
    const auto is_new = [&](int i) {
      return i == 0 || args[i].keep.data() != args[i - 1].keep.data() || args[i].keep.size() != args[i - 1].keep.size();
    };
    int64_t list_bytes = 0;
    for (int i = 0; i < n; ++i) {
      if (is_new(i)) list_bytes += Device::StagedBytes(std::ssize(args[i].keep) * 4);
    }
    device.MakeStageRoom(list_bytes);
    const int32_t* staged = nullptr;
    uint64_t sizes = 0;  // and addresses: their common powers of two
    int64_t widest = 0;
    for (int i = 0; i < n; ++i) {
      const CompactSlotsArgs& a = args[i];
      sizes |= static_cast<uint64_t>(a.slot_bytes) | reinterpret_cast<uintptr_t>(a.slots);
      widest = std::max(widest, a.slot_bytes);
      if (is_new(i)) staged = device.Stage(a.keep.data(), std::ssize(a.keep));
      heads.head[i] = {device.Mine(a.slots), a.slot_bytes, staged, static_cast<int32_t>(a.keep.size())};
    }
    const int n_parts = static_cast<int>(std::max<int64_t>(1, widest / kPartBytes));
    auto* const kernel = sizes % 8 == 0   ? CompactRows<uint64_t>
                         : sizes % 4 == 0 ? CompactRows<uint32_t>
                                          : CompactRows<uint16_t>;
    device.Launch(kernel, Grid{n, n_parts}, 512, kMoveBytes, heads, n_parts);
    args = args.subspan(static_cast<size_t>(n));
  }
}

void VectorScores(Device& device, std::span<const VectorScoresArgs> args) {
  while (!args.empty()) {
    const VectorScoresArgs& like = args.front();
    ScoreHeads heads;
    int n = 0;
    int64_t most = 0;
    while (n < std::min<int64_t>(kHeads, std::ssize(args)) && args[n].what == like.what && args[n].type == like.type &&
           args[n].head_dim == like.head_dim) {
      const VectorScoresArgs& a = args[n];
      heads.head[n++] = {device.Mine(a.slots), a.type, static_cast<int32_t>(a.n_slots), device.Mine(a.out)};
      most = std::max(most, a.n_slots);
    }
    const int64_t slot_bytes = SlotBytes(like.type, like.head_dim);
    if (like.head_dim > kMaxVector) {
      device.stream().Fail(Internal("statistics of vectors of {}", like.head_dim));
    } else if (like.what == VectorScore::kValueNorm) {
      device.Launch(ValueNorms, Grid{Blocks(most, kScoreThreads / kWarp), n}, kScoreThreads, 0, heads, like.head_dim,
                    slot_bytes);
    } else if (like.what == VectorScore::kKeyDiff) {
      device.Launch(KeyDifferences, Grid{n}, kScoreThreads, (kScoreThreads / kWarp * like.head_dim + kWarp) * 4, heads,
                    like.head_dim, slot_bytes);
    }
    args = args.subspan(static_cast<size_t>(n));
  }
}

}  // namespace weir::WEIR_GPU
