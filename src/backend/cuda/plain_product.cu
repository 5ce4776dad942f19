// Products with F32, F16 and BF16 weights, activations in F32: one warp a row of weights, any number of activations,
// eight at a time.
#include "backend/cuda/matmul.h"

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

template <DType kType, int kRows>
WEIR_KERNEL void Few(const uint8_t* w, int64_t pitch, int64_t n_in, int64_t n_out, const float* x, int64_t x_stride,
                     bool aligned, int64_t n_rows, ProductOut out) {
  constexpr int kLoad = Plain<kType>::kLoad;
  const int64_t o = GlobalThread() / kWarp;
  if (o >= n_out) return;
  const uint8_t* row = w + o * pitch;
  float sum[kRows];
  WEIR_UNROLL
  for (int r = 0; r < kRows; ++r) sum[r] = 0;
  for (int64_t k = Lane() * kLoad; k < n_in; k += kWarp * kLoad) {
    float weight[kLoad];
    Widen<kType>(*reinterpret_cast<const uint4*>(row + k * Plain<kType>::kBytes), weight);
    const bool whole = aligned && k + kLoad <= n_in;
    WEIR_UNROLL
    for (int r = 0; r < kRows; ++r) {
      if (r >= n_rows) continue;
      const float* from = x + r * x_stride + k;
      WEIR_UNROLL
      for (int i = 0; i < kLoad; i += 4) {
        if (whole) {
          const float4 four = *reinterpret_cast<const float4*>(from + i);
          sum[r] = fmaf(weight[i], four.x, sum[r]);
          sum[r] = fmaf(weight[i + 1], four.y, sum[r]);
          sum[r] = fmaf(weight[i + 2], four.z, sum[r]);
          sum[r] = fmaf(weight[i + 3], four.w, sum[r]);
        } else {
          WEIR_UNROLL
          for (int j = i; j < i + 4; ++j) {
            if (k + j < n_in) sum[r] = fmaf(weight[j], from[j], sum[r]);
          }
        }
      }
    }
  }
  WEIR_UNROLL
  for (int r = 0; r < kRows; ++r) {
    float total = WarpSum(sum[r]);
    if (Lane() != 0 || r >= n_rows) continue;
    float* y = out.y + r * out.y_stride + o;
    if (out.bias != nullptr) total += out.bias[o];
    if (out.accumulate) total += *y;
    *y = total;
  }
}

constexpr int kThreads = 128;

template <DType kType>
void Run(Device& device, const Activations& x, const uint8_t* w, int64_t pitch, int64_t n_out, ProductOut out) {
  const bool aligned = x.x_stride % 4 == 0 && reinterpret_cast<uintptr_t>(x.x) % 16 == 0;
  const Grid grid = {Blocks(n_out, kThreads / kWarp)};
  for (int64_t r = 0; r < x.n_rows; r += kFewRows) {
    const int64_t n = x.n_rows - r < kFewRows ? x.n_rows - r : kFewRows;
    const float* rows = x.x + r * x.x_stride;
    if (n == 1) {
      device.Launch(Few<kType, 1>, grid, kThreads, 0, w, pitch, x.n_in, n_out, rows, x.x_stride, aligned, n, out);
    } else {
      device.Launch(Few<kType, kFewRows>, grid, kThreads, 0, w, pitch, x.n_in, n_out, rows, x.x_stride, aligned, n,
                    out);
    }
    out.y += kFewRows * out.y_stride;
  }
}

}  // namespace

void PlainProduct(Device& device, const Activations& x, const DeviceMatrix& w, int64_t first, int64_t n_out,
                  const ProductOut& out) {
  const uint8_t* rows = w.rows() + first * w.pitch_bytes();
  if (w.type() == DType::kF32) return Run<DType::kF32>(device, x, rows, w.pitch_bytes(), n_out, out);
  if (w.type() == DType::kF16) return Run<DType::kF16>(device, x, rows, w.pitch_bytes(), n_out, out);
  Run<DType::kBF16>(device, x, rows, w.pitch_bytes(), n_out, out);
}

}  // namespace weir::WEIR_GPU
