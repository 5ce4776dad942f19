// SPDX-License-Identifier: Apache-2.0
#include "backend/cuda/experts.h"

#include "backend/cuda/matmul.h"

namespace weir::WEIR_GPU {
namespace {

constexpr int kThreads = 256;

WEIR_KERNEL void GatherEach(const float* x, const int32_t* rows, float* y, int64_t dim) {
  const float* from = x + rows[BlockIdx()] * dim;
  for (int64_t i = ThreadIdx(); i < dim; i += NumThreads()) y[BlockIdx() * dim + i] = from[i];
}

// A block of threads for each entry and some columns. The first entry of a row adds all of that row's, in their order.
WEIR_KERNEL void ScatterEach(const float* x, const int32_t* rows, const float* weights, float* y, int64_t n,
                             int64_t dim) {
  const int entry = BlockIdxY();
  const int32_t row = rows[entry];
  for (int i = 0; i < entry; ++i) {
    if (rows[i] == row) return;
  }
  const int64_t column = GlobalThread();
  if (column >= dim) return;
  float sum = y[row * dim + column];
  for (int64_t i = entry; i < n; ++i) {
    if (rows[i] == row) sum = fmaf(weights[i], x[i * dim + column], sum);
  }
  y[row * dim + column] = sum;
}

WEIR_KERNEL void GateEach(GateRowsArgs a) {
  auto* shared = reinterpret_cast<float*>(SharedMemory());
  const float* x = a.x + BlockIdx() * a.n_in;
  float dot = 0;
  for (int64_t i = ThreadIdx(); i < a.n_in; i += NumThreads()) dot = fmaf(x[i], a.w[i], dot);
  const float gate = 1.0f / (1.0f + expf(-BlockSum(dot, shared)));
  for (int64_t i = ThreadIdx(); i < a.dim; i += NumThreads()) a.y[BlockIdx() * a.dim + i] *= gate;
}

}  // namespace

void GroupedMatMul(Device& device, Library& library, const GroupedMatMulArgs& args) {
  uint8_t* const scratch = device.Mine(static_cast<uint8_t*>(args.scratch));
  for (const RowGroup& group : args.groups) {
    // Groups follow each other, so that all of them may use the same scratch.
    Activations x =
        ActivationsOver(scratch, device.Mine(args.x) + group.first_row * args.n_in, args.n_in, group.n_rows, args.n_in);
    for (const StackedOut& out : args.outs) {
      const float* bias = out.bias == nullptr ? nullptr : device.Mine(out.bias) + group.matrix * out.n_out;
      Product(device, library, x, static_cast<const DeviceMatrix&>(*out.w), group.matrix * out.n_out, out.n_out,
              {device.Mine(out.y) + group.first_row * out.n_out, out.n_out, bias, false});
    }
  }
}

void GatherRows(Device& device, const GatherRowsArgs& args) {
  if (args.n_rows == 0) return;
  device.Launch(GatherEach, Grid{args.n_rows}, kThreads, 0, device.Mine(args.x), device.Stage(args.rows, args.n_rows),
                device.Mine(args.y), args.dim);
}

void ScatterAddRows(Device& device, const ScatterAddRowsArgs& args) {
  if (args.n_rows == 0) return;
  device.MakeStageRoom(2 * Device::StagedBytes(args.n_rows * 4));
  const int32_t* rows = device.Stage(args.rows, args.n_rows);
  const float* weights = device.Stage(args.weights, args.n_rows);
  device.Launch(ScatterEach, Grid{Blocks(args.dim, kThreads), args.n_rows}, kThreads, 0, device.Mine(args.x), rows,
                weights, device.Mine(args.y), args.n_rows, args.dim);
}

void GateRows(Device& device, const GateRowsArgs& args) {
  device.Mine(args.x), device.Mine(args.w), device.Mine(args.y);
  device.Launch(GateEach, Grid{args.n_rows}, kThreads, kWarp * 4, args);
}

}  // namespace weir::WEIR_GPU
