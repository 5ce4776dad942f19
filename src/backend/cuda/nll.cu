// SPDX-License-Identifier: Apache-2.0
#include "backend/cuda/nll.h"

#include <algorithm>

#include "base/workspace.h"

namespace weir::WEIR_GPU {
namespace {

constexpr int64_t kTile = 4096;  // vocabulary entries at a time
constexpr int kThreads = 256;

// Per row: running state over the vocabulary.
struct Running {
  float* max;
  float* sum;     // of exp(z - max)
  float* target;  // the target's z
};

WEIR_KERNEL void AddTile(const float* logits, int64_t first, int64_t n, float softcap, const int32_t* targets,
                         Running running) {
  auto* shared = reinterpret_cast<float*>(SharedMemory());
  const int row = BlockIdx();
  const float* z = logits + row * kTile;
  const auto logit = [&](int64_t i) { return softcap > 0 ? softcap * tanhf(z[i] / softcap) : z[i]; };
  float max = -INFINITY;
  for (int64_t i = ThreadIdx(); i < n; i += NumThreads()) max = fmaxf(max, logit(i));
  max = WarpMax(max);
  if (Lane() == 0) shared[WarpIdx()] = max;
  Barrier();
  max = WarpMax(Lane() < NumWarps() ? shared[Lane()] : -INFINITY);
  const float old = first == 0 ? -INFINITY : running.max[row];
  max = fmaxf(max, old);
  float sum = 0;
  for (int64_t i = ThreadIdx(); i < n; i += NumThreads()) sum += expf(logit(i) - max);
  sum = BlockSum(sum, shared);
  Barrier();
  if (ThreadIdx() > 0) return;
  running.sum[row] = first == 0 ? sum : fmaf(running.sum[row], expf(old - max), sum);
  running.max[row] = max;
  const int64_t target = targets[row] - first;
  if (targets[row] >= 0 && target >= 0 && target < n) running.target[row] = logit(target);
}

WEIR_KERNEL void Finish(const int32_t* targets, int64_t n_rows, Running running, float* nll) {
  const int64_t row = GlobalThread();
  if (row >= n_rows) return;
  nll[row] = targets[row] < 0 ? 0.0f : running.max[row] + logf(running.sum[row]) - running.target[row];
}

}  // namespace

int64_t NllScratchBytes(int64_t max_rows, int64_t max_in) {
  return ActivationBytes(max_rows, max_in) + AlignedBytes(max_rows * kTile * 4) + 4 * AlignedBytes(max_rows * 4);
}

void HeadNll(Device& device, Library& library, const NllArgs& args) {
  auto* scratch = device.Mine(static_cast<uint8_t*>(args.scratch));
  Activations x = ActivationsOver(scratch, device.Mine(args.x), args.n_in, args.n_rows, args.n_in);
  Workspace space(scratch + ActivationBytes(args.n_rows, args.n_in));
  float* logits = space.Floats(args.n_rows * kTile);
  const Running running = {space.Floats(args.n_rows), space.Floats(args.n_rows), space.Floats(args.n_rows)};
  float* nll = space.Floats(args.n_rows);
  const int32_t* targets = device.Stage(args.target, args.n_rows);
  const auto& head = static_cast<const DeviceMatrix&>(*args.head);
  const float* bias = device.Mine(args.bias);
  for (int64_t first = 0; first < head.n_out(); first += kTile) {
    const int64_t n = std::min(kTile, head.n_out() - first);
    Product(device, library, x, head, first, n, {logits, kTile, bias != nullptr ? bias + first : nullptr, false});
    device.Launch(AddTile, Grid{args.n_rows}, kThreads, kWarp * 4, logits, first, n, args.softcap, targets, running);
  }
  device.Launch(Finish, Grid{Blocks(args.n_rows, kThreads)}, kThreads, 0, targets, args.n_rows, running, nll);
  device.Copy(args.nll, nll, args.n_rows * 4);
  device.Synchronise();
}

}  // namespace weir::WEIR_GPU
