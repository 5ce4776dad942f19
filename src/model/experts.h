// SPDX-License-Identifier: Apache-2.0
// A feed-forward layer with experts: a router sends every row to a few of them, and the row's result is their weighted
// sum, beside a shared expert that some families have:
//
//   y = sum_i weight_i * expert_i(x) + sigmoid(s . x) * shared(x),  expert(x) = down(act(gate * x) . (up * x))
//
// Some families have no gate, down(act(up * x)), or no s.
//
// A prompt's rows are grouped by expert, so that one read of an expert's weights serves all its rows; a single row
// reads the weights of its own experts only. Tensor names are those of llama.cpp's files:
//
//   blk.L.ffn_gate_inp.weight             [n_experts, n_embd], the router; .bias [n_experts]
//   blk.L.ffn_{gate,up,down}_exps.weight  [n_experts, n_ff, n_embd] twice, [n_experts, n_embd, n_ff]; .bias
//   blk.L.ffn_gate_up_exps.weight         [n_experts, 2 * n_ff, n_embd], in place of gate and up: every expert's gate,
//                                         then its up; .bias
//   blk.L.exp_probs_b.bias                [n_experts], of the choice alone (RouteArgs::bias), or none
//   blk.L.ffn_{gate,up,down}_shexp.weight [n_ff_shared, n_embd] ..., ffn_gate_inp_shexp.weight [n_embd]
//
// A decoder reads the metadata once, loads one Experts a layer, and gives all of them the same workspace:
//
//   WEIR_ASSIGN_OR_RETURN(experts_config_, ReadExpertsConfig(file, "qwen35moe"));
//   WEIR_RETURN_IF_ERROR(layer.experts.Load(loader, backend_, blk, n_embd, experts_config_));
//   bytes += Experts::WorkspaceBytes(backend_, experts_config_, n_embd, max_rows);  and HostBytes()
//   layer.experts.Run(backend_, norm, n_rows, y, workspace, host_workspace);
//
// The host chooses the experts, whatever the device: a pass waits for the router's scores in every layer.
#pragma once

#include <cstdint>
#include <memory>
#include <string>

#include "backend/backend.h"
#include "base/status.h"
#include "io/gguf.h"
#include "model/weights.h"

namespace weir {

struct ExpertsConfig {
  // A family's own.
  bool router_bias = false;
  bool biases = false;                                                          // of the experts' products
  enum class Act { kSwiGlu, kClampedSwiGlu, kSquaredRelu } act = Act::kSwiGlu;  // the last: no gate
  bool shared = false;                                                          // files may have a shared expert
  bool shared_gate = false;                                                     // which has an s
  int32_t group_votes = 2;                                                      // RouteArgs
  // A family's, where its file says nothing else.
  RouteGate gate = RouteGate::kSoftmax;
  bool normalise = true;  // RouteArgs
  // The file's.
  int32_t n_experts = 0;  // 0: the model has none
  int32_t n_used = 0;     // experts of a row
  int32_t n_ff = 0;       // width of an expert
  float scale = 1;        // of a row's weights
  int32_t n_groups = 1, n_used_groups = 1;
  int32_t n_ff_shared = 0;  // width of the shared expert; 0: none
};

// Bounds of the metadata: sizes are multiplied later, and a row's choice takes at most their product's time.
inline constexpr int64_t kMaxExperts = 4096, kMaxUsedExperts = 128;

// Adds to a family's settings what the file says: `arch`.expert_count, expert_used_count, expert_feed_forward_length
// (feed_forward_length if the file has none), expert_gating_func, expert_weights_norm, expert_weights_scale,
// expert_group_count, expert_group_used_count, and, where the family has a shared expert,
// expert_shared_feed_forward_length or expert_shared_count (of the others' width). A file without expert_count, or with
// 0, gives n_experts 0. kCorrupt for numbers out of bounds, kUnsupported for an unknown gating function.
Result<ExpertsConfig> ReadExpertsConfig(const GgufFile& file, const std::string& arch, ExpertsConfig family = {});

class Experts {
 public:
  // Binds the tensors of layer `blk` ("blk.3."). kUnsupported for widths that are not multiples of kStackedRows.
  Status Load(WeightLoader& loader, Backend& backend, const std::string& blk, int64_t n_embd,
              const ExpertsConfig& config);
  // Bytes of weights that one token reads.
  int64_t WeightBytesPerToken() const;

  // Bytes that Run() needs for up to max_rows rows, whichever experts they choose.
  static int64_t WorkspaceBytes(const Backend& backend, const ExpertsConfig& config, int64_t n_embd, int64_t max_rows);
  // Of ForwardArgs::host_workspace.
  static int64_t HostBytes(const Backend& backend, const ExpertsConfig& config, int64_t max_rows);
  // y = the layer's result for x, both [n_rows, n_embd], contiguous and apart from each other. On the CPU, a row's
  // bytes do not depend on the rows computed with it. `workspace`: WorkspaceBytes(n_rows), `host`: HostBytes(n_rows),
  // both 64-byte aligned.
  void Run(Backend& backend, const float* x, int64_t n_rows, float* y, uint8_t* workspace, uint8_t* host) const;

 private:
  Status LoadStacks(WeightLoader& loader, const std::string& blk);
  bool Gated() const { return config_.act != ExpertsConfig::Act::kSquaredRelu; }
  // gate = what the last product reads, of n numbers of gate and up.
  void Activate(Backend& backend, float* gate, float* up, int64_t n) const;
  void RunShared(Backend& backend, const float* x, int64_t n_rows, float* y, float* gate, float* up,
                 void* scratch) const;

  ExpertsConfig config_;
  int64_t n_embd_ = 0;
  // All but the first are stacks (ops/grouped_matmul.h). gate_up_: in place of gate and up, or null.
  std::unique_ptr<Matrix> router_, gate_, up_, gate_up_, down_;
  Vector router_bias_, choice_bias_, b_gate_, b_up_, b_gate_up_, b_down_;
  std::unique_ptr<Matrix> shared_gate_, shared_up_, shared_down_;
  Vector shared_scale_;  // [n_embd]
};

}  // namespace weir
