// weir-plugin: weights
// SPDX-License-Identifier: Apache-2.0
// The fallback for any format: weights are decoded to F32 when a model is loaded, which takes four bytes each, and
// multiply activations rounded as the contract says.
#include "backend/cuda/matmul.h"
#include "backend/cuda/weights.h"
#include "quant/format.h"

namespace weir::WEIR_GPU {
namespace {

constexpr int kThreads = 128;

// One warp per row of weights; one lane per element of each block of 32.
WEIR_KERNEL void Multiply(const float* w, int64_t n_in, int64_t n_out, const int8_t* codes, const float* scales,
                          int64_t n_rows, ProductOut out) {
  const int64_t o = GlobalThread() / kWarp;
  if (o >= n_out) return;
  float sum[kFewRows];
  WEIR_UNROLL
  for (int r = 0; r < kFewRows; ++r) sum[r] = 0;
  for (int64_t k = Lane(); k < n_in; k += kWarp) {
    const float weight = w[o * n_in + k];
    WEIR_UNROLL
    for (int r = 0; r < kFewRows; ++r) {
      if (r >= n_rows) continue;
      const float x = scales[(r * n_in + k) / kWarp] * static_cast<float>(codes[r * n_in + k]);
      sum[r] = fmaf(weight, x, sum[r]);
    }
  }
  WEIR_UNROLL
  for (int r = 0; r < kFewRows; ++r) {
    float total = WarpSum(sum[r]);
    if (Lane() != 0 || r >= n_rows) continue;
    float* y = out.y + r * out.y_stride + o;
    if (out.bias != nullptr) total += out.bias[o];
    if (out.accumulate) total += *y;
    *y = total;
  }
}

WEIR_KERNEL void CopyRows(const float* w, int64_t n_in, const int32_t* ids, float* out) {
  for (int64_t k = ThreadIdx(); k < n_in; k += NumThreads()) out[BlockIdx() * n_in + k] = w[ids[BlockIdx()] * n_in + k];
}

const float* RowsOf(const DeviceMatrix& w) { return reinterpret_cast<const float*>(w.data()); }

Suits Suit(DType type) { return IsBlocked(type) ? Suits::kEverything : Suits::kNot; }

int64_t Bytes(DType, int64_t n_out, int64_t n_in) { return n_out * n_in * static_cast<int64_t>(sizeof(float)); }

void Pack(const MatrixSource& source, const uint8_t* row, int64_t o, uint8_t* base) {
  DecodeRow(source.type, row, source.n_in, reinterpret_cast<float*>(base) + o * source.n_in);
}

void DecodedProduct(Device& device, Library&, Activations& x, const DeviceMatrix& w, int64_t first, int64_t n_out,
                    const ProductOut& out) {
  RoundActivations(device, x);
  ProductOut to = out;
  for (int64_t r = 0; r < x.n_rows; r += kFewRows, to.y += kFewRows * out.y_stride) {
    const int64_t n = x.n_rows - r < kFewRows ? x.n_rows - r : kFewRows;
    device.Launch(Multiply, Grid{Blocks(n_out, kThreads / kWarp)}, kThreads, 0, RowsOf(w) + first * x.n_in, x.n_in,
                  n_out, x.codes + r * x.n_in, x.scales + r * (x.n_in / kWarp), n, to);
  }
}

void EmbedDecoded(Device& device, const DeviceMatrix& w, const int32_t* rows, int64_t n, float* out) {
  device.Launch(CopyRows, Grid{n}, kThreads, 0, RowsOf(w), w.n_in(), rows, out);
}

}  // namespace

extern const WeightsInfo kDecodedWeights;
const WeightsInfo kDecodedWeights = {
    .suits = Suit,
    .bytes = Bytes,
    .pack = Pack,
    .product = DecodedProduct,
    .embed = EmbedDecoded,
};

}  // namespace weir::WEIR_GPU
