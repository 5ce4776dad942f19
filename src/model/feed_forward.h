// SPDX-License-Identifier: Apache-2.0
// The part of a hybrid model's layer that looks at one row at a time.
#pragma once

#include <memory>
#include <string>

#include "backend/backend.h"
#include "base/workspace.h"
#include "model/experts.h"
#include "model/weights.h"

namespace weir {

class FeedForward {
 public:
  virtual ~FeedForward() = default;
  virtual int64_t WeightBytes() const = 0;
  // The widest row that one of its products reads.
  virtual int64_t widest() const = 0;
  virtual int64_t WorkspaceBytes(int64_t n_rows) const = 0;
  // Of ForwardArgs::host_workspace.
  virtual int64_t HostBytes(int64_t /*n_rows*/) const { return 0; }
  // y = the result for x, or y += it if `add`; both [n_rows, n_embd]. `scratch` is for products.
  virtual void Run(const float* x, int64_t n_rows, float* y, bool add, Workspace space, uint8_t* host,
                   void* scratch) = 0;
};

// down * (silu(gate * x) . (up * x)), tensors ffn_gate, ffn_up, ffn_down of layer `blk`.
Result<std::unique_ptr<FeedForward>> LoadGatedFeedForward(WeightLoader& loader, const std::string& blk, int64_t n_embd,
                                                          int64_t n_ff, Backend& backend);
// down * max(up * x, 0)^2 (Nemotron-H), tensors ffn_up, ffn_down.
Result<std::unique_ptr<FeedForward>> LoadSquaredReluFeedForward(WeightLoader& loader, const std::string& blk,
                                                                int64_t n_embd, int64_t n_ff, Backend& backend);

// Experts, with all of their tensors (model/experts.h).
Result<std::unique_ptr<FeedForward>> LoadExpertsFeedForward(WeightLoader& loader, const std::string& blk,
                                                            int64_t n_embd, const ExpertsConfig& config,
                                                            Backend& backend);

}  // namespace weir
