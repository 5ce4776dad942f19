#include "backend/cuda/matmul.h"

#include <algorithm>
#include <cstring>

#include "base/workspace.h"
#include "quant/format.h"

namespace weir::WEIR_GPU {
namespace {

constexpr int kThreads = 256;

// One warp a block of 32: the numbers of QuantizeRowQ8(), bit for bit.
WEIR_KERNEL void Round(const float* x, int64_t x_stride, int64_t n_rows, int64_t n_blocks, int8_t* codes, float* scales,
                       int32_t* sums) {
  const int64_t block = GlobalThread() / kWarp;
  if (block >= n_rows * n_blocks) return;
  const int64_t row = block / n_blocks;
  const float value = x[row * x_stride + block % n_blocks * kWarp + Lane()];
  const float largest = WarpMax(fabsf(value));
  // A NaN is lost in a maximum, so that it is asked for by itself.
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

WEIR_KERNEL void Clear(uint32_t* word) { *word = 0; }

// Largest finite magnitude of everything, one block a row. Magnitudes order as their bits do.
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

template <DType kType>
WEIR_KERNEL void EmbedPlanar(Planar w, const int32_t* ids, float* out) {
  const int64_t row = ids[BlockIdx()];
  for (int64_t i = ThreadIdx(); i < w.n_blocks * kPlanarWords; i += NumThreads()) {
    const int64_t b = i / kPlanarWords, block = row * w.n_blocks + b;
    uint32_t words[kPlanarWords];
    LoadWords<kType>(w, block, words);
    const BlockScale scale = ScaleOf<kType>(w, block);
    float* to = out + (BlockIdx() * w.n_blocks + b) * kPlanarBlock;
    WEIR_UNROLL
    for (int e = 0; e < kPlanarBlock; ++e) {
      if (e / 4 == i % kPlanarWords) to[e] = ElementOf(scale, words, e);
    }
  }
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

int64_t PitchBytes(DType type, int64_t n_in) { return (RowBytes(type, n_in) + 15) / 16 * 16; }

void MakeRounded(Device& device, Activations& x) {
  if (x.rounded) return;
  const int64_t n_blocks = x.n_in / kPlanarBlock;
  device.Launch(Round, Grid{Blocks(x.n_rows * n_blocks, kThreads / kWarp)}, kThreads, 0, x.x, x.x_stride, x.n_rows,
                n_blocks, x.codes, x.scales, x.sums);
  x.rounded = true;
}

void MakeNarrow(Device& device, DType type, Activations& x) {
  if (x.narrow.type == type) return;
  auto* largest = reinterpret_cast<uint32_t*>(x.narrow.scale);
  device.Launch(Clear, Grid{1}, 1, 0, largest);
  if (type == DType::kF16) device.Launch(FindLargest, Grid{x.n_rows}, kThreads, 0, x.x, x.x_stride, x.n_in, largest);
  const int64_t n = x.n_rows * x.n_in;
  device.Launch(Narrow, Grid{Blocks(n, kThreads)}, kThreads, 0, x.x, x.x_stride, x.n_in, n, type == DType::kBF16,
                x.narrow.scale, x.narrow.values);
  x.narrow.type = type;
}

void LibraryProduct(Device& device, Library& library, Activations& x, const DeviceMatrix& w, int64_t first,
                    int64_t n_out, const ProductOut& out) {
  const DType type = w.type();
  const int64_t w_stride = w.pitch_bytes() / RowBytes(type, 1);
  const uint8_t* rows = w.rows() + first * w.pitch_bytes();
  if (type == DType::kF32) {
    library.Multiply(type, x.x, x.x_stride, x.n_rows, x.n_in, rows, w_stride, n_out, nullptr, out.y, out.y_stride,
                     out.accumulate);
  } else {
    MakeNarrow(device, type, x);
    library.Multiply(type, x.narrow.values, x.n_in, x.n_rows, x.n_in, rows, w_stride, n_out,
                     type == DType::kF16 ? x.narrow.scale + 1 : nullptr, out.y, out.y_stride, out.accumulate);
  }
  if (out.bias == nullptr) return;
  const int64_t n = x.n_rows * n_out;
  device.Launch(AddBias, Grid{Blocks(n, kThreads)}, kThreads, 0, out.bias, n_out, n, out.y, out.y_stride);
}

}  // namespace

DeviceMatrix::DeviceMatrix(const MatrixSource& source, Buffer buffer)
    : Matrix(source.type, source.n_out, source.n_in), buffer_(std::move(buffer)) {
  bytes_ = PackedBytes(type_, n_out_, n_in_);
  if (is_planar()) {
    planar_ = PlanarAt(buffer_.data(), PlanarLayoutOf(type_, n_out_, n_in_), type_, n_in_);
  } else {
    pitch_bytes_ = PitchBytes(type_, n_in_);
  }
}

int64_t DeviceMatrix::PackedBytes(DType type, int64_t n_out, int64_t n_in) {
  return PlanarFormatOf(type).is_block ? PlanarLayoutOf(type, n_out, n_in).bytes : n_out * PitchBytes(type, n_in);
}

Result<std::unique_ptr<Matrix>> DeviceMatrix::Make(Device& device, const MatrixSource& source, Ledger& ledger) {
  WEIR_RETURN_IF_ERROR(CheckMatrixSource(source));
  if (!AllFinite(source.type, source.data, source.n_out * source.n_in)) {
    return Corrupt("tensor %s: a weight is NaN or infinite", source.name);
  }
  const int64_t bytes = PackedBytes(source.type, source.n_out, source.n_in);
  const int64_t row_bytes = RowBytes(source.type, source.n_in);
  WEIR_ASSIGN_OR_RETURN(Buffer buffer, device.Allocate(ledger, MemTag::kWeights, bytes, Access::kDevice));
  // Put together on the host, one matrix at a time.
  WEIR_ASSIGN_OR_RETURN(const HostBuffer packed, HostBuffer::Allocate(ledger, MemTag::kWeights, bytes));
  const PlanarLayout layout = PlanarLayoutOf(source.type, source.n_out, source.n_in);
  for (int64_t o = 0; o < source.n_out; ++o) {
    const uint8_t* row = source.data + (source.row_order != nullptr ? source.row_order[o] : o) * row_bytes;
    if (PlanarFormatOf(source.type).is_block) {
      PackPlanarRow(source.type, row, source.n_in, o, layout, packed.data());
    } else {
      std::memcpy(packed.data() + o * PitchBytes(source.type, source.n_in), row, static_cast<size_t>(row_bytes));
    }
  }
  device.Copy(buffer.data(), packed.data(), bytes);
  if (!device.stream().status().ok()) return device.stream().status();
  return std::unique_ptr<Matrix>(new DeviceMatrix(source, std::move(buffer)));
}

int64_t ActivationBytes(int64_t max_rows, int64_t max_in) {
  const int64_t n = max_rows * max_in;
  const int64_t per_block = AlignedBytes(max_rows * (max_in / kPlanarBlock) * 4);
  return AlignedBytes(n) + 2 * per_block + AlignedBytes(2 * n) + AlignedBytes(8);
}

Activations ActivationsOver(void* scratch, const float* x, int64_t x_stride, int64_t n_rows, int64_t n_in) {
  Workspace space(static_cast<uint8_t*>(scratch));
  const int64_t n = n_rows * n_in, n_scales = n_rows * (n_in / kPlanarBlock);
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

void Product(Device& device, Library& library, Activations& x, const DeviceMatrix& w, int64_t first, int64_t n_out,
             const ProductOut& out) {
  if (w.is_planar()) {
    MakeRounded(device, x);
    PlanarProduct(device, x, w, first, n_out, out);
  } else if (x.n_rows > kFewRows && library.Has(w.type())) {
    LibraryProduct(device, library, x, w, first, n_out, out);
  } else {
    PlainProduct(device, x, w, first, n_out, out);
  }
}

void MatMul(Device& device, Library& library, const MatMulArgs& args) {
  Activations x = ActivationsOver(device.Mine(static_cast<uint8_t*>(args.scratch)), device.Mine(args.x), args.x_stride,
                                  args.n_rows, args.n_in);
  for (const MatMulOut& out : args.outs) {
    const auto& w = static_cast<const DeviceMatrix&>(*out.w);
    Product(device, library, x, w, 0, w.n_out(),
            {device.Mine(out.y), out.y_stride, device.Mine(out.bias), out.accumulate});
  }
}

void EmbedRows(Device& device, const Matrix& table, const int32_t* ids, int64_t n, float* out) {
  const auto& w = static_cast<const DeviceMatrix&>(table);
  const int32_t* rows = device.Stage(ids, n);
  if (w.is_planar()) {
    WEIR_FOR_PLANAR(w.type(), kType,
                    device.Launch(EmbedPlanar<kType>, Grid{n}, kThreads, 0, w.planar(), rows, device.Mine(out)));
  } else {
    device.Launch(EmbedPlain, Grid{n}, kThreads, 0, w.rows(), w.pitch_bytes(), w.type(), w.n_in(), rows,
                  device.Mine(out));
  }
}

}  // namespace weir::WEIR_GPU
