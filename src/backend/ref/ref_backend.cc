// SPDX-License-Identifier: Apache-2.0
#include "backend/backend.h"
#include "ops/scaled_matrix.h"

namespace weir {
namespace {

class RefBackend final : public Backend {
 public:
  std::string name() const override { return "ref (scalar, 1 thread)"; }
  void MatMul(const MatMulArgs& args) override {
    if (!HasScales(args.outs)) return ref::MatMul(args);
    MatMulWithScales(args, ref::MatMul);
  }
  void GroupedMatMul(const GroupedMatMulArgs& args) override {
    if (!HasScales(args.outs)) return ref::GroupedMatMul(args);
    GroupedMatMulWithScales(args, ref::GroupedMatMul);
  }
};

}  // namespace

std::unique_ptr<Backend> MakeRefBackend() { return std::make_unique<RefBackend>(); }

}  // namespace weir
