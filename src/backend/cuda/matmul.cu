// SPDX-License-Identifier: Apache-2.0
#include "backend/cuda/matmul.h"

#include <algorithm>
#include <atomic>

#include "backend/cuda/weights.h"
#include "base/threads.h"
#include "base/workspace.h"
#include "quant/format.h"

namespace weir::WEIR_GPU {
namespace {

constexpr int kThreads = 256;
// Of a matrix that is packed: rows of a task, and bytes below which starting threads takes longer.
constexpr int64_t kPackedRows = 64, kPackedAlone = 1 << 20;

// One warp per block of 32, with the numbers of QuantizeRowQ8(), bit for bit.
WEIR_KERNEL void Round(const float* x, int64_t x_stride, int64_t n_rows, int64_t n_blocks, int8_t* codes, float* scales,
                       int32_t* sums) {
  const int64_t block = GlobalThread() / kWarp;
  if (block >= n_rows * n_blocks) return;
  const int64_t row = block / n_blocks;
  const float value = x[row * x_stride + block % n_blocks * kWarp + Lane()];
  const float largest = WarpMax(fabsf(value));
  // A maximum drops NaN, so check for it separately.
  const bool finite = WarpSum(IsFinite(value) ? 0 : 1) == 0;
  int code = 0;
  float scale = finite ? 0.0f : NAN;
  if (finite && largest >= kQ8Smallest) {
    scale = largest / 127.0f;
    code = static_cast<int>(rintf(value * (127.0f / largest)));
  }
  codes[block * kWarp + Lane()] = static_cast<int8_t>(code);
  const int sum = WarpSum(code);
  if (Lane() == 0) {
    scales[block] = scale;
    sums[block] = sum;
  }
}

// Whether two products of a call can be one launch. Sums that are added to may be each other's.
bool CanJoin(const MatMulOut& a, const MatMulOut& b) {
  return a.w->type() == b.w->type() && !a.accumulate && !b.accumulate &&
         static_cast<const DeviceMatrix*>(a.w)->weights().join != nullptr;
}

}  // namespace

const WeightsInfo& WeightsFor(DType type) {
  const auto all = AllWeightsInfos();
  return **std::max_element(all.begin(), all.end(), [type](const WeightsInfo* a, const WeightsInfo* b) {
    return a->suits(type) < b->suits(type);
  });
}

DeviceMatrix::DeviceMatrix(const MatrixSource& source, Buffer buffer)
    : Matrix(source.type, source.n_out, source.n_in), buffer_(std::move(buffer)), weights_(WeightsFor(source.type)) {
  bytes_ = weights_.bytes(type_, n_out_, n_in_);
}

int64_t DeviceMatrix::PackedBytes(DType type, int64_t n_out, int64_t n_in) {
  return WeightsFor(type).bytes(type, n_out, n_in);
}

Result<std::unique_ptr<Matrix>> DeviceMatrix::Make(Device& device, const MatrixSource& source, Ledger& ledger) {
  WEIR_RETURN_IF_ERROR(CheckMatrixSource(source));
  const int64_t bytes = PackedBytes(source.type, source.n_out, source.n_in);
  const int64_t row_bytes = RowBytes(source.type, source.n_in);
  WEIR_ASSIGN_OR_RETURN(Buffer buffer, device.Allocate(ledger, MemTag::kWeights, bytes, Access::kDevice));
  // Assembled on the host, one matrix at a time, by several threads: a model has thousands of millions of weights.
  WEIR_ASSIGN_OR_RETURN(const HostBuffer packed, HostBuffer::Allocate(ledger, MemTag::kWeights, bytes));
  const WeightsInfo& weights = WeightsFor(source.type);
  ThreadPool threads(bytes < kPackedAlone ? 1 : 0);
  std::atomic<bool> finite = true;
  threads.For(Blocks(source.n_out, kPackedRows), [&](int64_t task, int) {
    for (int64_t o = task * kPackedRows; o < std::min(source.n_out, (task + 1) * kPackedRows); ++o) {
      const uint8_t* row = source.data + (source.row_order != nullptr ? source.row_order[o] : o) * row_bytes;
      if (!AllFinite(source.type, row, source.n_in)) finite = false;
      weights.pack(source, row, o, packed.data());
    }
  });
  if (!finite) return Corrupt("tensor {}: a weight is NaN or infinite", source.name);
  device.Copy(buffer.data(), packed.data(), bytes);
  if (!device.stream().status().ok()) return device.stream().status();
  return std::unique_ptr<Matrix>(new DeviceMatrix(source, std::move(buffer)));
}

int64_t ActivationBytes(int64_t max_rows, int64_t max_in) {
  const int64_t n = max_rows * max_in;
  const int64_t per_block = AlignedBytes(max_rows * (max_in / kQ8Block) * 4);
  return AlignedBytes(n) + 2 * per_block + AlignedBytes(2 * n) + AlignedBytes(8);
}

Activations ActivationsOver(void* scratch, const float* x, int64_t x_stride, int64_t n_rows, int64_t n_in) {
  Workspace space(static_cast<uint8_t*>(scratch));
  const int64_t n = n_rows * n_in, n_scales = n_rows * (n_in / kQ8Block);
  Activations out;
  out.x = x;
  out.x_stride = x_stride;
  out.n_rows = n_rows;
  out.n_in = n_in;
  out.codes = reinterpret_cast<int8_t*>(space.Bytes(n));
  out.scales = space.Floats(n_scales);
  out.sums = reinterpret_cast<int32_t*>(space.Bytes(n_scales * 4));
  out.narrow.values = reinterpret_cast<uint16_t*>(space.Bytes(2 * n));
  out.narrow.scale = space.Floats(2);
  return out;
}

void RoundActivations(Device& device, Activations& x) {
  if (x.rounded) return;
  const int64_t n_blocks = x.n_in / kQ8Block;
  device.Launch(Round, Grid{Blocks(x.n_rows * n_blocks, kThreads / kWarp)}, kThreads, 0, x.x, x.x_stride, x.n_rows,
                n_blocks, x.codes, x.scales, x.sums);
  x.rounded = true;
}

void Product(Device& device, Library& library, Activations& x, const DeviceMatrix& w, int64_t first, int64_t n_out,
             const ProductOut& out) {
  w.weights().product(device, library, x, w, first, n_out, out);
}

void MatMul(Device& device, Library& library, const MatMulArgs& args) {
  Activations x = ActivationsOver(device.Mine(static_cast<uint8_t*>(args.scratch)), device.Mine(args.x), args.x_stride,
                                  args.n_rows, args.n_in);
  for (std::span<const MatMulOut> left = args.outs; !left.empty();) {
    MatrixPart parts[kMostJoined];
    size_t n = 0;
    do {
      const MatMulOut& out = left[n];
      const auto* w = static_cast<const DeviceMatrix*>(out.w);
      parts[n++] = {w, 0, w->n_out(), {device.Mine(out.y), out.y_stride, device.Mine(out.bias), out.accumulate}};
    } while (n < std::min<size_t>(left.size(), kMostJoined) && x.n_rows <= kFewRows && CanJoin(left[0], left[n]));
    const MatrixPart& part = parts[0];
    if (n > 1) {
      part.w->weights().join(device, x, std::span(parts, n));
    } else {
      Product(device, library, x, *part.w, part.first, part.n_out, part.out);
    }
    left = left.subspan(n);
  }
}

void EmbedRows(Device& device, const Matrix& table, const int32_t* ids, int64_t n, float* out) {
  const auto& w = static_cast<const DeviceMatrix&>(table);
  const int32_t* rows = device.Stage(ids, n);
  w.weights().embed(device, w, rows, n, device.Mine(out));
}

}  // namespace weir::WEIR_GPU
