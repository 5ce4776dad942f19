// SPDX-License-Identifier: Apache-2.0
// Scenes of a head's frames, on a device. Contract: ops/scenes.h; places are in shared memory, written by the host.
#pragma once

#include <span>

#include "backend/cuda/device.h"
#include "ops/scenes.h"

namespace weir::WEIR_GPU {

void Scenes(Device& device, std::span<const ScenesArgs> args);

}  // namespace weir::WEIR_GPU
