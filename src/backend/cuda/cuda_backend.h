// SPDX-License-Identifier: Apache-2.0
// The backend over a device (device.h), CUDA or the twin. Programs get it from MakeCudaBackend() in backend.h.
#pragma once

#include <memory>

#include "backend/backend.h"
#include "backend/cuda/grid.h"

namespace weir::WEIR_GPU {

// As MakeCudaBackend(). Errors of Device::Open().
Result<std::unique_ptr<Backend>> MakeBackend(Ledger& ledger, bool graphs = true);

}  // namespace weir::WEIR_GPU
