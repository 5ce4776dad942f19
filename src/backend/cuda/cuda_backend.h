// SPDX-License-Identifier: Apache-2.0
// The backend over a device (device.h), whichever of the two it is. Programs ask for it by MakeCudaBackend() of
// backend.h.
#pragma once

#include <memory>

#include "backend/backend.h"
#include "backend/cuda/grid.h"

namespace weir::WEIR_GPU {

// As MakeCudaBackend(). Errors of Device::Open().
Result<std::unique_ptr<Backend>> MakeBackend(Ledger& ledger, bool graphs = true);

}  // namespace weir::WEIR_GPU
