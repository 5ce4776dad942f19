// SPDX-License-Identifier: Apache-2.0
// Builds without CUDA.
#include "backend/backend.h"

namespace weir {

Result<std::unique_ptr<Backend>> MakeCudaBackend(Ledger&, bool) {
  return Unsupported("this build has no CUDA (cmake -DWEIR_CUDA=ON makes one that has)");
}

}  // namespace weir
