// SPDX-License-Identifier: Apache-2.0
// A feed-forward layer with experts: a router sends every row to a few of them, and the row's result is their weighted
// sum, beside a shared expert that some families have:
//
//   y = sum_i weight_i * expert_i(x) + sigmoid(s . x) * shared(x),  expert(x) = down(act(gate * x) . (up * x))
//
// A prompt's rows are grouped by expert, so that one read of an expert's weights serves all its rows; a single row
// reads the weights of its own experts only. Tensor names are those of llama.cpp's files:
//
//   blk.L.ffn_gate_inp.weight             [n_experts, n_embd], the router; .bias [n_experts]
//   blk.L.ffn_{gate,up,down}_exps.weight  [n_experts, n_ff, n_embd] twice, [n_experts, n_embd, n_ff]; .bias
//   blk.L.ffn_{gate,up,down}_shexp.weight [n_ff_shared, n_embd] ..., ffn_gate_inp_shexp.weight [n_embd]
//
// A decoder reads the metadata once, loads one Experts a layer, and gives all of them the same workspace:
//
//   WEIR_ASSIGN_OR_RETURN(experts_config_, ReadExpertsConfig(file, "qwen35moe"));
//   WEIR_RETURN_IF_ERROR(layer.experts.Load(loader, backend_, blk, n_embd, experts_config_));
//   bytes += Experts::WorkspaceBytes(backend_, experts_config_, n_embd, max_rows);
//   layer.experts.Run(backend_, norm, n_rows, y, workspace);
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
  int32_t n_experts = 0;  // 0: the model has none
  int32_t n_used = 0;     // experts of a row
  int32_t n_ff = 0;       // width of an expert
  bool normalise = true;  // a row's weights sum to one; otherwise they are a softmax over all experts
  bool router_bias = false;
  bool biases = false;      // of the experts' products
  bool clamped = false;     // Backend::ClampedSwiGlu() in place of SwiGlu()
  int32_t n_ff_shared = 0;  // width of the shared expert; 0: none
  bool shared_gate = false;
};

// Bounds of the metadata: sizes are multiplied later.
inline constexpr int64_t kMaxExperts = 1 << 16, kMaxUsedExperts = 256;

// `arch`.expert_count, expert_used_count, expert_feed_forward_length (feed_forward_length if the file has none) and
// expert_shared_feed_forward_length (0 if the file has none). A file without expert_count, or with 0, gives n_experts
// 0. kCorrupt for numbers out of bounds. The rest of the structure is the family's to set.
Result<ExpertsConfig> ReadExpertsConfig(const GgufFile& file, const std::string& arch);

class Experts {
 public:
  // Binds the tensors of layer `blk` ("blk.3."). kUnsupported on a backend whose memory is not the host's, and for
  // widths that are not multiples of kStackedRows.
  Status Load(WeightLoader& loader, Backend& backend, const std::string& blk, int64_t n_embd,
              const ExpertsConfig& config);
  // Bytes of weights that one token reads.
  int64_t WeightBytesPerToken() const;

  // Bytes that Run() needs for up to max_rows rows, whichever experts they choose.
  static int64_t WorkspaceBytes(const Backend& backend, const ExpertsConfig& config, int64_t n_embd, int64_t max_rows);
  // y = the layer's result for x, both [n_rows, n_embd], contiguous and apart from each other. A row's bytes do not
  // depend on the rows computed with it. `workspace`: WorkspaceBytes(n_rows), 64-byte aligned.
  void Run(Backend& backend, const float* x, int64_t n_rows, float* y, uint8_t* workspace) const;

 private:
  void RunShared(Backend& backend, const float* x, int64_t n_rows, float* y, float* gate, float* up,
                 void* scratch) const;

  ExpertsConfig config_;
  int64_t n_embd_ = 0;
  std::unique_ptr<Matrix> router_, gate_, up_, down_;  // the last three are stacks (ops/grouped_matmul.h)
  Vector router_bias_, b_gate_, b_up_, b_down_;
  std::unique_ptr<Matrix> shared_gate_, shared_up_, shared_down_;
  Vector shared_scale_;  // [n_embd]
};

}  // namespace weir
