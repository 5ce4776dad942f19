// SPDX-License-Identifier: Apache-2.0
// Row-wise operations, squares and angles on a device. Contracts: ops/elementwise.h, ops/squares.h, ops/rope.h,
// ops/rotate.h.
#pragma once

#include <span>

#include "backend/cuda/device.h"
#include "ops/elementwise.h"
#include "ops/rope.h"
#include "ops/rotate.h"
#include "ops/squares.h"

namespace weir::WEIR_GPU {

void RmsNorm(Device& device, const RmsNormArgs& args);
void LayerNorm(Device& device, const LayerNormArgs& args);
void Gelu(Device& device, const GeluArgs& args);
void Relu(Device& device, const ReluArgs& args);
void SwiGlu(Device& device, const SwiGluArgs& args);
void ClampedSwiGlu(Device& device, const ClampedSwiGluArgs& args);
void GeGlu(Device& device, const GeGluArgs& args);
void SoftCap(Device& device, const SoftCapArgs& args);
void Add(Device& device, const AddArgs& args);
void Mul(Device& device, const MulArgs& args);
void SigmoidGate(Device& device, const SigmoidGateArgs& args);
void Scale(Device& device, const ScaleArgs& args);
void Clamp(Device& device, const ClampArgs& args);
void SumRows(Device& device, const SumRowsArgs& args);
void Squares(Device& device, const SquaresArgs& args);
void Rotate(Device& device, const RotateArgs& args);
// REQUIRES: table.device.
void RopeAngles(Device& device, const RopeTable& table, std::span<const int64_t> pos, float* cos, float* sin);

}  // namespace weir::WEIR_GPU
