// SPDX-License-Identifier: Apache-2.0
#include "backend/backend.h"

namespace weir {
namespace {

class RefBackend final : public Backend {
 public:
  std::string name() const override { return "ref (scalar, 1 thread)"; }
};

}  // namespace

std::unique_ptr<Backend> MakeRefBackend() { return std::make_unique<RefBackend>(); }

}  // namespace weir
