// weir-plugin: weights
// SPDX-License-Identifier: Apache-2.0
// F32, F16 and BF16 as in the file, rows 16-byte aligned and padded with zeros. Products with F32 activations: one warp
// per row of weights, any number of activations, eight at a time. Many activations go to the library, if it supports
// them.
#include <algorithm>
#include <cstring>

#include "backend/cuda/joined.h"
#include "backend/cuda/matmul.h"
#include "backend/cuda/weights.h"

namespace weir::WEIR_GPU {
namespace {

template <DType kType>
struct Plain {
  static constexpr int kBytes = kType == DType::kF32 ? 4 : 2;
  static constexpr int kLoad = 16 / kBytes;  // elements of one load
};

// Elements of 16 bytes.
template <DType kType>
WEIR_DEVICE void Widen(const uint4& bytes, float* out) {
  const uint32_t words[4] = {bytes.x, bytes.y, bytes.z, bytes.w};
  WEIR_UNROLL
  for (int i = 0; i < 4; ++i) {
    if (kType == DType::kF32) {
      out[i] = FloatOfBits(words[i]);
    } else {
      const auto low = static_cast<uint16_t>(words[i]), high = static_cast<uint16_t>(words[i] >> 16);
      out[2 * i % Plain<kType>::kLoad] = kType == DType::kF16 ? HalfToFloat(low) : Bf16ToFloat(low);
      out[(2 * i + 1) % Plain<kType>::kLoad] = kType == DType::kF16 ? HalfToFloat(high) : Bf16ToFloat(high);
    }
  }
}

// As in planar_weights.cu.
template <DType kType, int kRows>
WEIR_KERNEL void Few(Joined<const uint8_t*> joined, int64_t pitch, int64_t n_in, const float* x, int64_t x_stride,
                     bool aligned, int64_t n_rows) {
  constexpr int kLoad = Plain<kType>::kLoad, kOuts = FewOuts(kRows);
  const JoinedPart<const uint8_t*> part = PartOf(joined, GlobalThread() / kWarp);
  const ProductOut& out = part.out;
  const int64_t o = (GlobalThread() / kWarp - part.begin) * kOuts, n_out = part.n_out;
  if (o >= n_out) return;
  float sum[kRows][kOuts];
  WEIR_UNROLL
  for (int i = 0; i < kRows * kOuts; ++i) sum[i / kOuts][i % kOuts] = 0;
  WEIR_UNROLL_BY(kRows == 1 ? 4 : 1)
  for (int64_t k = Lane() * kLoad; k < n_in; k += kWarp * kLoad) {
    float weight[kOuts][kLoad];
    WEIR_UNROLL
    for (int j = 0; j < kOuts; ++j) {
      const uint8_t* row = part.w + (part.first + (o + j < n_out ? o + j : o)) * pitch;
      Widen<kType>(*reinterpret_cast<const uint4*>(row + k * Plain<kType>::kBytes), weight[j]);
    }
    const bool whole = aligned && k + kLoad <= n_in;
    WEIR_UNROLL
    for (int r = 0; r < kRows; ++r) {
      if (r >= n_rows) continue;
      const float* from = x + r * x_stride + k;
      float value[kLoad];
      if (whole) {
        WEIR_UNROLL
        for (int i = 0; i < kLoad; i += 4) {
          const float4 four = *reinterpret_cast<const float4*>(from + i);
          value[i] = four.x, value[i + 1] = four.y, value[i + 2] = four.z, value[i + 3] = four.w;
        }
      } else {
        WEIR_UNROLL
        for (int i = 0; i < kLoad; ++i) value[i] = k + i < n_in ? from[i] : 0.0f;
      }
      WEIR_UNROLL
      for (int j = 0; j < kOuts; ++j) {
        WEIR_UNROLL
        for (int i = 0; i < kLoad; ++i) sum[r][j] = fmaf(weight[j][i], value[i], sum[r][j]);
      }
    }
  }
  WEIR_UNROLL
  for (int i = 0; i < kRows * kOuts; ++i) {
    const int r = i / kOuts, j = i % kOuts;
    float total = WarpSum(sum[r][j]);
    if (Lane() != 0 || r >= n_rows || o + j >= n_out) continue;
    float* y = out.y + r * out.y_stride + o + j;
    if (out.bias != nullptr) total += out.bias[o + j];
    if (out.accumulate) total += *y;
    *y = total;
  }
}

constexpr int kThreads = 128;

int64_t PitchBytes(DType type, int64_t n_in) { return (RowBytes(type, n_in) + 15) / 16 * 16; }

template <DType kType>
void Run(Device& device, const Activations& x, std::span<const MatrixPart> parts) {
  const bool aligned = x.x_stride % 4 == 0 && reinterpret_cast<uintptr_t>(x.x) % 16 == 0;
  const int64_t pitch = PitchBytes(kType, x.n_in);
  for (int64_t r = 0; r < x.n_rows; r += kFewRows) {
    const int64_t n = std::min(x.n_rows - r, kFewRows);
    auto joined = Join<const uint8_t*>(parts, n, [](const DeviceMatrix& w) { return w.data(); });
    for (JoinedPart<const uint8_t*>& part : joined.part) part.out.y += r * part.out.y_stride;
    device.Launch(n == 1 ? Few<kType, 1> : Few<kType, kFewRows>, Grid{Blocks(joined.n_warps, kThreads / kWarp)},
                  kThreads, 0, joined, pitch, x.n_in, x.x + r * x.x_stride, x.x_stride, aligned, n);
  }
}

WEIR_KERNEL void Clear(uint32_t* word) { *word = 0; }

// Largest finite magnitude of all elements, one block per row. Magnitudes compare like their bits.
WEIR_KERNEL void FindLargest(const float* x, int64_t x_stride, int64_t n_in, uint32_t* largest_bits) {
  float largest = 0;
  for (int64_t k = ThreadIdx(); k < n_in; k += NumThreads()) {
    const float value = fabsf(x[BlockIdx() * x_stride + k]);
    if (IsFinite(value)) largest = fmaxf(largest, value);
  }
  largest = WarpMax(largest);
  if (Lane() == 0) AtomicMax(largest_bits, BitsOfFloat(largest));
}

// scale[0]: FindLargest()'s; scale[1], written here: the power of two that halves are divided by.
WEIR_KERNEL void Narrow(const float* x, int64_t x_stride, int64_t n_in, int64_t n, bool bf16, float* scale,
                        uint16_t* values) {
  const int64_t i = GlobalThread();
  if (i >= n) return;
  float factor = 1;
  while (scale[0] > 32768.0f * factor) factor *= 2;
  if (i == 0) scale[1] = factor;
  const float value = x[i / n_in * x_stride + i % n_in];
  values[i] = bf16 ? FloatToBf16(value) : FloatToHalf(value / factor);
}

WEIR_KERNEL void AddBias(const float* bias, int64_t n_out, int64_t n, float* y, int64_t y_stride) {
  const int64_t i = GlobalThread();
  if (i < n) y[i / n_out * y_stride + i % n_out] += bias[i % n_out];
}

WEIR_KERNEL void EmbedPlain(const uint8_t* w, int64_t pitch, DType type, int64_t n_in, const int32_t* ids, float* out) {
  const uint8_t* row = w + ids[BlockIdx()] * pitch;
  for (int64_t k = ThreadIdx(); k < n_in; k += NumThreads()) {
    float value = 0;
    if (type == DType::kF32) {
      value = reinterpret_cast<const float*>(row)[k];
    } else {
      const uint16_t bits = reinterpret_cast<const uint16_t*>(row)[k];
      value = type == DType::kF16 ? HalfToFloat(bits) : Bf16ToFloat(bits);
    }
    out[BlockIdx() * n_in + k] = value;
  }
}

constexpr int kWideThreads = 256;

void MakeNarrow(Device& device, DType type, Activations& x) {
  if (x.narrow.type == type) return;
  auto* largest = reinterpret_cast<uint32_t*>(x.narrow.scale);
  device.Launch(Clear, Grid{1}, 1, 0, largest);
  if (type == DType::kF16)
    device.Launch(FindLargest, Grid{x.n_rows}, kWideThreads, 0, x.x, x.x_stride, x.n_in, largest);
  const int64_t n = x.n_rows * x.n_in;
  device.Launch(Narrow, Grid{Blocks(n, kWideThreads)}, kWideThreads, 0, x.x, x.x_stride, x.n_in, n,
                type == DType::kBF16, x.narrow.scale, x.narrow.values);
  x.narrow.type = type;
}

// False when the library has no kernel.
bool LibraryProduct(Device& device, Library& library, Activations& x, const DeviceMatrix& w, int64_t first,
                    int64_t n_out, const ProductOut& out) {
  const DType type = w.type();
  const int64_t pitch = PitchBytes(type, w.n_in());
  const int64_t w_stride = pitch / RowBytes(type, 1);
  const uint8_t* rows = w.data() + first * pitch;
  bool did = false;
  if (type == DType::kF32) {
    did = library.Multiply(type, x.x, x.x_stride, x.n_rows, x.n_in, rows, w_stride, n_out, nullptr, out.y, out.y_stride,
                           out.accumulate);
  } else {
    MakeNarrow(device, type, x);
    did = library.Multiply(type, x.narrow.values, x.n_in, x.n_rows, x.n_in, rows, w_stride, n_out,
                           type == DType::kF16 ? x.narrow.scale + 1 : nullptr, out.y, out.y_stride, out.accumulate);
  }
  if (!did || out.bias == nullptr) return did;
  const int64_t n = x.n_rows * n_out;
  device.Launch(AddBias, Grid{Blocks(n, kWideThreads)}, kWideThreads, 0, out.bias, n_out, n, out.y, out.y_stride);
  return true;
}

void PlainJoin(Device& device, Activations& x, std::span<const MatrixPart> parts) {
  const DType type = parts[0].w->type();
  if (type == DType::kF32) return Run<DType::kF32>(device, x, parts);
  if (type == DType::kF16) return Run<DType::kF16>(device, x, parts);
  Run<DType::kBF16>(device, x, parts);
}

Suits Suit(DType type) { return IsBlocked(type) || type == DType::kI32 ? Suits::kNot : Suits::kFamily; }

int64_t Bytes(DType type, int64_t n_out, int64_t n_in) { return n_out * PitchBytes(type, n_in); }

void Pack(const MatrixSource& source, const uint8_t* row, int64_t o, uint8_t* base) {
  std::memcpy(base + o * PitchBytes(source.type, source.n_in), row,
              static_cast<size_t>(RowBytes(source.type, source.n_in)));
}

void PlainProduct(Device& device, Library& library, Activations& x, const DeviceMatrix& w, int64_t first, int64_t n_out,
                  const ProductOut& out) {
  const bool many = x.n_rows > kFewRows && library.Has(w.type());
  if (many && LibraryProduct(device, library, x, w, first, n_out, out)) return;
  const MatrixPart part = {&w, first, n_out, out};
  PlainJoin(device, x, {&part, 1});
}

void EmbedPlainRows(Device& device, const DeviceMatrix& w, const int32_t* rows, int64_t n, float* out) {
  device.Launch(EmbedPlain, Grid{n}, kWideThreads, 0, w.data(), PitchBytes(w.type(), w.n_in()), w.type(), w.n_in(),
                rows, out);
}

}  // namespace

extern const WeightsInfo kPlainWeights;
const WeightsInfo kPlainWeights = {
    .suits = Suit,
    .bytes = Bytes,
    .pack = Pack,
    .product = PlainProduct,
    .join = PlainJoin,
    .embed = EmbedPlainRows,
};

}  // namespace weir::WEIR_GPU
