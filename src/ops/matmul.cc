// SPDX-License-Identifier: Apache-2.0
#include "ops/matmul.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <vector>

#include "base/memory.h"
#include "quant/format.h"

namespace weir {

Status CheckMatrixSource(const MatrixSource& source) {
  const DTypeInfo& info = InfoOf(source.type);
  if (source.type == DType::kI32) return Unsupported("tensor {}: I32 is not a weight type", source.name);
  if (source.data == nullptr) return InvalidArgument("tensor {}: no data", source.name);
  const auto n_out = static_cast<long long>(source.n_out), n_in = static_cast<long long>(source.n_in);
  if (source.n_out < 1 || source.n_in < 1 || source.n_out > kMaxMatrixSide || source.n_in > kMaxMatrixSide) {
    return Corrupt("tensor {}: {} x {} is not a matrix size", source.name, n_out, n_in);
  }
  if (source.n_in % info.block_elements != 0) {
    return Corrupt("tensor {}: rows of {} elements are not whole {} blocks of {}", source.name, n_in, info.name,
                   info.block_elements);
  }
  if (source.row_order != nullptr) {
    const int64_t n_rows = source.n_rows > 0 ? source.n_rows : source.n_out;
    for (int64_t o = 0; o < source.n_out; ++o) {
      if (source.row_order[o] < 0 || source.row_order[o] >= n_rows) {
        return InvalidArgument("tensor {}: row order has {} at {} of {} rows", source.name, source.row_order[o], o,
                               n_rows);
      }
    }
  }
  return Status();
}

void QuantizeRowQ8(const float* x, int64_t n, int8_t* q, float* d) {
  for (int64_t b = 0; b < n / kQ8Block; ++b, x += kQ8Block, q += kQ8Block) {
    float largest = 0;
    bool finite = true;
    for (int i = 0; i < kQ8Block; ++i) {
      finite &= std::isfinite(x[i]);
      largest = std::max(largest, std::fabs(x[i]));
    }
    if (!finite || largest < kQ8Smallest) {
      d[b] = finite ? 0.0f : std::numeric_limits<float>::quiet_NaN();
      std::fill(q, q + kQ8Block, int8_t{0});
      continue;
    }
    d[b] = largest / 127.0f;
    const float inverse = 127.0f / largest;
    for (int i = 0; i < kQ8Block; ++i) q[i] = static_cast<int8_t>(std::nearbyint(x[i] * inverse));
  }
}

namespace ref {
namespace {

class RefMatrix final : public Matrix {
 public:
  RefMatrix(const MatrixSource& s, HostBuffer rows)
      : Matrix(s.type, s.n_out, s.n_in), row_bytes_(RowBytes(s.type, s.n_in)), rows_(std::move(rows)) {
    bytes_ = row_bytes_ * s.n_out;
    for (int64_t o = 0; o < s.n_out; ++o) {
      const uint8_t* from = s.data + (s.row_order != nullptr ? s.row_order[o] : o) * row_bytes_;
      std::copy(from, from + row_bytes_, rows_.data() + o * row_bytes_);
    }
  }
  const uint8_t* Row(int64_t o) const { return rows_.data() + o * row_bytes_; }

 private:
  int64_t row_bytes_;
  HostBuffer rows_;
};

}  // namespace

Result<std::unique_ptr<Matrix>> PrepareMatrix(const MatrixSource& source, Ledger& ledger) {
  WEIR_RETURN_IF_ERROR(CheckMatrixSource(source));
  if (!AllFinite(source.type, source.data, source.n_out * source.n_in)) {
    return Corrupt("tensor {}: a weight is NaN or infinite", source.name);
  }
  WEIR_ASSIGN_OR_RETURN(HostBuffer rows, HostBuffer::Allocate(ledger, MemTag::kWeights,
                                                              RowBytes(source.type, source.n_in) * source.n_out));
  return std::unique_ptr<Matrix>(std::make_unique<RefMatrix>(source, std::move(rows)));
}

void MatMul(const MatMulArgs& args) {
  const int64_t n_in = args.n_in;
  std::vector<double> x_plain(static_cast<size_t>(args.n_rows * n_in)), x_rounded;
  for (int64_t r = 0; r < args.n_rows; ++r) {
    for (int64_t k = 0; k < n_in; ++k) x_plain[r * n_in + k] = args.x[r * args.x_stride + k];
  }
  bool any_blocked = false;
  for (const MatMulOut& out : args.outs) any_blocked |= IsBlocked(out.w->type());
  if (any_blocked) {
    x_rounded.resize(x_plain.size());
    std::vector<int8_t> q(static_cast<size_t>(n_in));
    std::vector<float> d(static_cast<size_t>(n_in / kQ8Block));
    for (int64_t r = 0; r < args.n_rows; ++r) {
      QuantizeRowQ8(args.x + r * args.x_stride, n_in, q.data(), d.data());
      for (int64_t k = 0; k < n_in; ++k) x_rounded[r * n_in + k] = static_cast<double>(q[k]) * d[k / kQ8Block];
    }
  }
  std::vector<float> w(static_cast<size_t>(n_in));
  for (const MatMulOut& out : args.outs) {
    const auto& matrix = static_cast<const RefMatrix&>(*out.w);
    const std::vector<double>& x = IsBlocked(matrix.type()) ? x_rounded : x_plain;
    for (int64_t o = 0; o < matrix.n_out(); ++o) {
      DecodeRow(matrix.type(), matrix.Row(o), n_in, w.data());
      for (int64_t r = 0; r < args.n_rows; ++r) {
        double sum = 0;
        for (int64_t k = 0; k < n_in; ++k) sum += x[r * n_in + k] * w[k];
        float& y = out.y[r * out.y_stride + o];
        if (out.bias != nullptr) sum += out.bias[o];
        if (out.accumulate) sum += y;
        y = static_cast<float>(sum);
      }
    }
  }
}

void EmbedRows(const Matrix& table, const int32_t* ids, int64_t n, float* out) {
  const auto& matrix = static_cast<const RefMatrix&>(table);
  for (int64_t i = 0; i < n; ++i) DecodeRow(matrix.type(), matrix.Row(ids[i]), matrix.n_in(), out + i * matrix.n_in());
}

}  // namespace ref
}  // namespace weir
