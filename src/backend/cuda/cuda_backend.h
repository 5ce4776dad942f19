// The backend over a device (device.h), whichever of the two it is. Programs ask for it by MakeCudaBackend() of
// backend.h.
#pragma once

#include <memory>

#include "backend/backend.h"
#include "backend/cuda/grid.h"

namespace weir::WEIR_GPU {

// Errors of Device::Open(). What the backend itself holds on the device is reserved in `ledger`, which outlives it.
Result<std::unique_ptr<Backend>> MakeBackend(Ledger& ledger);

}  // namespace weir::WEIR_GPU
