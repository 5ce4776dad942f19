// SPDX-License-Identifier: Apache-2.0
#include "model/experts.h"

#include <algorithm>
#include <array>
#include <vector>

#include "base/workspace.h"

namespace weir {
namespace {

// Rows times experts that are computed together. A pass goes through the experts in batches, so that its memory does
// not grow with the number of experts of a row; more than this many at once would no longer be faster.
constexpr int64_t kBatch = 256;
// Groups of a batch: bounds an array on the stack.
constexpr int64_t kMaxGroups = kBatch;

int64_t BatchRows(const ExpertsConfig& config, int64_t n_rows) {
  return std::max(n_rows, std::min(n_rows * config.n_used, kBatch));
}

// The host's lists of a pass.
struct Lists {
  float* logits;   // [n_rows, n_experts], where the router's are not the host's; else nullptr
  int32_t* ids;    // [n_rows, n_used]
  float* weights;  // [n_rows, n_used]
  int64_t* first;  // [n_experts + 1]: where each expert's entries begin
  int32_t* rows;   // [n_rows * n_used], grouped by expert, each expert's rows in order
  float* shares;   // [n_rows * n_used]: their weights
  int64_t bytes;

  Lists(const Backend& backend, const ExpertsConfig& c, int64_t n, uint8_t* base) {
    Workspace bump(base);
    const int64_t entries = n * c.n_used;
    logits = backend.on_host() ? nullptr : bump.Floats(n * c.n_experts);
    ids = reinterpret_cast<int32_t*>(bump.Bytes(entries * 4));
    weights = bump.Floats(entries);
    first = reinterpret_cast<int64_t*>(bump.Bytes((c.n_experts + 1) * int64_t{8}));
    rows = reinterpret_cast<int32_t*>(bump.Bytes(entries * 4));
    shares = bump.Floats(entries);
    bytes = bump.used();
  }
};

// The operations' arrays of a pass.
struct Arrays {
  float* logits;     // [n_rows, n_experts]
  float *gate, *up;  // [batch, n_ff], or the shared expert's
  float* batch;      // [batch, n_embd]: input, then output of a batch
  void* scratch;
  int64_t bytes;

  Arrays(const Backend& backend, const ExpertsConfig& c, int64_t n_embd, int64_t n, uint8_t* base) {
    Workspace bump(base);
    const int64_t batch_rows = BatchRows(c, n);
    const int64_t ff = std::max(batch_rows * c.n_ff, n * c.n_ff_shared);
    logits = bump.Floats(n * c.n_experts);
    gate = bump.Floats(ff);
    up = bump.Floats(ff);
    batch = bump.Floats(batch_rows * n_embd);
    scratch = bump.Bytes(std::max(backend.MatMulScratchBytes(n, std::max<int64_t>(n_embd, c.n_ff_shared)),
                                  backend.MatMulScratchBytes(batch_rows, std::max<int64_t>(n_embd, c.n_ff))));
    bytes = bump.used();
  }
};

// Sorts a pass's choices by expert: a count of each, then their places.
void GroupByExpert(const ExpertsConfig& c, int64_t n_rows, const Lists& a) {
  const int64_t n = n_rows * c.n_used;
  std::fill_n(a.first, c.n_experts + 1, 0);
  for (int64_t i = 0; i < n; ++i) ++a.first[a.ids[i] + 1];
  for (int32_t e = 0; e < c.n_experts; ++e) a.first[e + 1] += a.first[e];
  for (int64_t i = 0; i < n; ++i) {
    const int64_t at = a.first[a.ids[i]]++;
    a.rows[at] = static_cast<int32_t>(i / c.n_used);
    a.shares[at] = a.weights[i];
  }
  // Every expert's beginning was moved to its end, which is the next one's beginning.
  for (int32_t e = c.n_experts; e > 0; --e) a.first[e] = a.first[e - 1];
  a.first[0] = 0;
}

void Product(Backend& backend, const float* x, int64_t n_rows, int64_t n_in, std::initializer_list<MatMulOut> outs,
             void* scratch) {
  backend.MatMul({x, n_in, n_rows, n_in, {outs.begin(), outs.size()}, scratch});
}

}  // namespace

Result<ExpertsConfig> ReadExpertsConfig(const GgufFile& file, const std::string& arch, ExpertsConfig c) {
  const auto read = [&](const char* key, int64_t min, int64_t max, int32_t* out) -> Status {
    WEIR_ASSIGN_OR_RETURN(const int64_t value, BoundedInt(file, arch + key, min, max));
    *out = static_cast<int32_t>(value);
    return Status();
  };
  if (!file.Has(arch + ".expert_count")) return c;
  WEIR_RETURN_IF_ERROR(read(".expert_count", 0, kMaxExperts, &c.n_experts));
  if (c.n_experts == 0) return c;
  WEIR_RETURN_IF_ERROR(read(".expert_used_count", 1, std::min<int64_t>(c.n_experts, kMaxUsedExperts), &c.n_used));
  // Widths of layers (an array) are not the experts'.
  const bool own = file.Has(arch + ".expert_feed_forward_length") || file.IntArray(arch + ".feed_forward_length");
  WEIR_RETURN_IF_ERROR(read(own ? ".expert_feed_forward_length" : ".feed_forward_length", 8, 1 << 20, &c.n_ff));
  WEIR_ASSIGN_OR_RETURN(c.normalise, file.BoolOr(arch + ".expert_weights_norm", c.normalise));
  WEIR_ASSIGN_OR_RETURN(const float scale, ReadFactorOr0(file, arch + ".expert_weights_scale"));
  if (scale != 0) c.scale = scale;
  const std::string gating = arch + ".expert_gating_func";
  WEIR_ASSIGN_OR_RETURN(const int64_t kind, BoundedIntOr(file, gating, 0, 1 << 30, 0));
  if (kind > 3) return Unsupported("{}: {} is {}; known: 1 (softmax), 2 (sigmoid), 3", file.path(), gating, kind);
  if (kind != 0) c.gate = kind == 2 ? RouteGate::kSigmoid : RouteGate::kSoftmax;
  if (kind == 3) c.normalise = true;  // a softmax over the chosen ones
  const char* groups = ".expert_group_count";
  if (file.Has(arch + groups)) {
    WEIR_RETURN_IF_ERROR(read(groups, 0, kMaxRouteGroups, &c.n_groups));
    c.n_groups = c.n_used_groups = std::max(c.n_groups, 1);
    if (c.n_groups > 1) WEIR_RETURN_IF_ERROR(read(".expert_group_used_count", 1, c.n_groups, &c.n_used_groups));
    if (c.n_experts % c.n_groups != 0 || c.n_experts / c.n_groups * c.n_used_groups < c.n_used) {
      return Corrupt("{}: {} of {} experts cannot be chosen from {} of {} groups ({}{})", file.path(), c.n_used,
                     c.n_experts, c.n_used_groups, c.n_groups, arch, groups);
    }
  }
  if (!c.shared) return c;
  const char *shared = ".expert_shared_feed_forward_length", *count = ".expert_shared_count";
  if (file.Has(arch + shared)) {
    WEIR_RETURN_IF_ERROR(read(shared, 0, 1 << 20, &c.n_ff_shared));
  } else if (file.Has(arch + count)) {
    WEIR_RETURN_IF_ERROR(read(count, 0, (1 << 20) / c.n_ff, &c.n_ff_shared));
    c.n_ff_shared *= c.n_ff;
  }
  return c;
}

Status Experts::LoadStacks(WeightLoader& loader, const std::string& blk) {
  const ExpertsConfig& c = config_;
  const std::string both = blk + "ffn_gate_up_exps.";
  WEIR_RETURN_IF_ERROR(loader.LoadStack(blk + "ffn_down_exps.weight", c.n_experts, n_embd_, c.n_ff, &down_));
  if (c.biases) WEIR_RETURN_IF_ERROR(loader.LoadVectors(blk + "ffn_down_exps.bias", c.n_experts, n_embd_, &b_down_));
  if (Gated() && loader.Has(both + "weight")) {
    WEIR_RETURN_IF_ERROR(loader.LoadStack(both + "weight", c.n_experts, int64_t{2} * c.n_ff, n_embd_, &gate_up_));
    return c.biases ? loader.LoadVectors(both + "bias", c.n_experts, int64_t{2} * c.n_ff, &b_gate_up_) : Status();
  }
  if (Gated()) {
    WEIR_RETURN_IF_ERROR(loader.LoadStack(blk + "ffn_gate_exps.weight", c.n_experts, c.n_ff, n_embd_, &gate_));
    if (c.biases) WEIR_RETURN_IF_ERROR(loader.LoadVectors(blk + "ffn_gate_exps.bias", c.n_experts, c.n_ff, &b_gate_));
  }
  WEIR_RETURN_IF_ERROR(loader.LoadStack(blk + "ffn_up_exps.weight", c.n_experts, c.n_ff, n_embd_, &up_));
  return c.biases ? loader.LoadVectors(blk + "ffn_up_exps.bias", c.n_experts, c.n_ff, &b_up_) : Status();
}

Status Experts::Load(WeightLoader& loader, Backend& backend, const std::string& blk, int64_t n_embd,
                     const ExpertsConfig& config) {
  config_ = config;
  n_embd_ = n_embd;
  const ExpertsConfig& c = config_;
  if (c.n_ff % kStackedRows != 0 || n_embd % kStackedRows != 0) {
    return Unsupported("{}: experts of width {} in a model of width {} are not supported; both must be multiples of {}",
                       loader.path(), c.n_ff, n_embd, kStackedRows);
  }
  WEIR_RETURN_IF_ERROR(loader.Load(blk + "ffn_gate_inp.weight", c.n_experts, n_embd, &router_));
  if (c.router_bias) WEIR_RETURN_IF_ERROR(loader.Load(blk + "ffn_gate_inp.bias", c.n_experts, &router_bias_));
  WEIR_RETURN_IF_ERROR(loader.LoadOptional(blk + "exp_probs_b.bias", c.n_experts, &choice_bias_));
  WEIR_RETURN_IF_ERROR(LoadStacks(loader, blk));
  if (c.n_ff_shared == 0) return Status();
  if (c.shared_gate) WEIR_RETURN_IF_ERROR(loader.Load(blk + "ffn_gate_inp_shexp.weight", n_embd, &shared_scale_));
  if (Gated()) {
    WEIR_RETURN_IF_ERROR(loader.Load(blk + "ffn_gate_shexp.weight", c.n_ff_shared, n_embd, &shared_gate_));
  }
  WEIR_RETURN_IF_ERROR(loader.Load(blk + "ffn_up_shexp.weight", c.n_ff_shared, n_embd, &shared_up_));
  return loader.Load(blk + "ffn_down_shexp.weight", n_embd, c.n_ff_shared, &shared_down_);
}

int64_t Experts::WeightBytesPerToken() const {
  int64_t bytes = router_->bytes();
  for (const auto* w : {&gate_, &up_, &gate_up_, &down_}) {
    if (*w != nullptr) bytes += (*w)->bytes() / config_.n_experts * config_.n_used;
  }
  for (const auto* w : {&shared_gate_, &shared_up_, &shared_down_}) bytes += *w != nullptr ? (*w)->bytes() : 0;
  return bytes;
}

int64_t Experts::WorkspaceBytes(const Backend& backend, const ExpertsConfig& config, int64_t n_embd, int64_t max_rows) {
  return Arrays(backend, config, n_embd, max_rows, nullptr).bytes;
}

int64_t Experts::HostBytes(const Backend& backend, const ExpertsConfig& config, int64_t max_rows) {
  return Lists(backend, config, max_rows, nullptr).bytes;
}

void Experts::Activate(Backend& backend, float* gate, float* up, int64_t n) const {
  switch (config_.act) {
    case ExpertsConfig::Act::kSwiGlu:
      return backend.SwiGlu({gate, up, gate, n});
    case ExpertsConfig::Act::kClampedSwiGlu:
      return backend.ClampedSwiGlu({gate, up, gate, n});
    case ExpertsConfig::Act::kSquaredRelu:
      backend.Relu({up, up, n});
      return backend.Mul({up, up, gate, n});
  }
}

void Experts::RunShared(Backend& backend, const float* x, int64_t n_rows, float* y, float* gate, float* up,
                        void* scratch) const {
  const int64_t n_ff = config_.n_ff_shared;
  if (shared_gate_) {
    Product(backend, x, n_rows, n_embd_,
            {{shared_gate_.get(), gate, n_ff, nullptr, false}, {shared_up_.get(), up, n_ff, nullptr, false}}, scratch);
  } else {
    Product(backend, x, n_rows, n_embd_, {{shared_up_.get(), up, n_ff, nullptr, false}}, scratch);
  }
  Activate(backend, gate, up, n_rows * n_ff);
  Product(backend, gate, n_rows, n_ff, {{shared_down_.get(), y, n_embd_, nullptr, false}}, scratch);
  if (config_.shared_gate) backend.GateRows({x, shared_scale_.get(), y, n_rows, n_embd_, n_embd_});
}

void Experts::Run(Backend& backend, const float* x, int64_t n_rows, float* y, uint8_t* workspace, uint8_t* host) const {
  const ExpertsConfig& c = config_;
  const Arrays a(backend, c, n_embd_, n_rows, workspace);
  const Lists lists(backend, c, n_rows, host);
  Product(backend, x, n_rows, n_embd_, {{router_.get(), a.logits, c.n_experts, router_bias_.get(), false}}, a.scratch);
  if (lists.logits != nullptr) backend.Copy(lists.logits, a.logits, n_rows * c.n_experts * 4);
  backend.Route({.logits = lists.logits != nullptr ? lists.logits : a.logits,
                 .n_rows = n_rows,
                 .n_experts = c.n_experts,
                 .n_used = c.n_used,
                 .normalise = c.normalise,
                 .ids = lists.ids,
                 .weights = lists.weights,
                 .gate = c.gate,
                 .scale = c.scale,
                 .bias = choice_bias_.data.empty() ? nullptr : choice_bias_.data.data(),
                 .n_groups = c.n_groups,
                 .n_used_groups = c.n_used_groups,
                 .group_votes = c.group_votes});
  GroupByExpert(c, n_rows, lists);
  if (c.n_ff_shared > 0) {
    RunShared(backend, x, n_rows, y, a.gate, a.up, a.scratch);
  } else {
    backend.Scale({0, x, y, n_rows * n_embd_});  // zeros
  }

  // Experts in order of their numbers, so that a row's sum does not depend on the batches.
  const int64_t batch_rows = BatchRows(c, n_rows);
  std::array<RowGroup, kMaxGroups> groups;
  for (int32_t e = 0; e < c.n_experts;) {
    const int64_t begin = lists.first[e];
    size_t n_groups = 0;
    int64_t n = 0;
    for (; e < c.n_experts && n_groups < groups.size(); ++e) {
      const int64_t of_expert = lists.first[e + 1] - lists.first[e];
      if (of_expert == 0) continue;
      if (n + of_expert > batch_rows) break;
      groups[n_groups++] = {e, n, of_expert};
      n += of_expert;
    }
    if (n == 0) break;  // only experts without rows remain
    const std::span<RowGroup> batch(groups.data(), n_groups);
    const auto product = [&](const float* in, int64_t n_in, std::initializer_list<StackedOut> outs) {
      backend.GroupedMatMul({in, n, n_in, batch, {outs.begin(), outs.size()}, a.scratch});
    };
    backend.GatherRows({x, lists.rows + begin, a.batch, n, n_embd_});
    if (gate_up_) {
      // A stack of twice as many matrices: expert e's gate is number 2e, its up number 2e + 1.
      for (RowGroup& group : batch) group.matrix = 2 * group.matrix;
      product(a.batch, n_embd_, {{gate_up_.get(), c.n_ff, a.gate, b_gate_up_.get()}});
      for (RowGroup& group : batch) ++group.matrix;
      product(a.batch, n_embd_, {{gate_up_.get(), c.n_ff, a.up, b_gate_up_.get()}});
      for (RowGroup& group : batch) group.matrix /= 2;
    } else if (gate_) {
      product(a.batch, n_embd_, {{gate_.get(), c.n_ff, a.gate, b_gate_.get()}, {up_.get(), c.n_ff, a.up, b_up_.get()}});
    } else {
      product(a.batch, n_embd_, {{up_.get(), c.n_ff, a.up, b_up_.get()}});
    }
    Activate(backend, a.gate, a.up, n * c.n_ff);
    product(a.gate, c.n_ff, {{down_.get(), n_embd_, a.batch, b_down_.get()}});
    backend.ScatterAddRows({a.batch, lists.rows + begin, lists.shares + begin, y, n, n_embd_});
  }
}

}  // namespace weir
