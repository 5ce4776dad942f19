// SPDX-License-Identifier: Apache-2.0
// How new a picture's tokens are, on a device. Contract: ops/frame_novelty.h; scratch is shared memory, in which the
// host has written the places.
#pragma once

#include "backend/cuda/device.h"
#include "ops/frame_novelty.h"

namespace weir::WEIR_GPU {

void FrameNovelty(Device& device, const FrameNoveltyArgs& args);

}  // namespace weir::WEIR_GPU
