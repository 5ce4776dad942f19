// SPDX-License-Identifier: Apache-2.0
#include "model/delta_net_mixer.h"

#include <cmath>
#include <vector>

namespace weir {
namespace {

constexpr float kLengthEps = 1e-6f;  // added to the square of a length

}  // namespace

Result<DeltaNetShape> ReadDeltaNetShape(const GgufFile& file, const std::string& arch) {
  const std::string ssm = arch + ".ssm.";
  DeltaNetShape s;
  const auto read = [&](const char* name, int64_t most, int32_t* out) -> Status {
    WEIR_ASSIGN_OR_RETURN(const int64_t value, BoundedInt(file, ssm + name, 1, most));
    *out = static_cast<int32_t>(value);
    return Status();
  };
  int32_t inner = 0;
  WEIR_RETURN_IF_ERROR(read("conv_kernel", kMaxConvTaps, &s.n_taps));
  WEIR_RETURN_IF_ERROR(read("group_count", 4096, &s.n_k_heads));
  WEIR_RETURN_IF_ERROR(read("time_step_rank", 4096, &s.n_v_heads));
  WEIR_RETURN_IF_ERROR(read("state_size", 1024, &s.d_k));
  WEIR_RETURN_IF_ERROR(read("inner_size", 1 << 20, &inner));
  s.d_v = inner / s.n_v_heads;
  if (inner % s.n_v_heads != 0 || s.n_v_heads % s.n_k_heads != 0 || s.d_v > 1024) {
    return Corrupt("{}: {}inner_size {} for {} heads of values (time_step_rank) and {} of keys (group_count)",
                   file.path(), ssm, inner, s.n_v_heads, s.n_k_heads);
  }
  return s;
}

Result<std::unique_ptr<TokenMixer>> DeltaNetMixer::Load(WeightLoader& loader, const std::string& blk, int64_t n_embd,
                                                        const DeltaNetShape& shape, float norm_eps, Backend& backend) {
  std::unique_ptr<DeltaNetMixer> out(new DeltaNetMixer(backend));
  out->shape_ = shape;
  out->n_embd_ = n_embd;
  out->norm_eps_ = norm_eps;
  const int64_t k_dim = shape.k_dim(), v_dim = shape.v_dim(), all = 2 * k_dim + v_dim, n_v_heads = shape.n_v_heads;
  const std::string qkv = blk + "attn_qkv.weight", taps = blk + "ssm_conv1d.weight";
  if (shape.grouped && loader.Has(blk + "ssm_in.weight")) {
    // Older files: one tensor with, for each head of keys, the rows of its q and k and of its heads' v and z.
    const int64_t d_k = shape.d_k, n_values = v_dim / shape.n_k_heads;
    const auto rows = [&](int64_t first, int64_t n) {
      std::vector<int32_t> picked;
      for (int64_t h = 0; h < shape.n_k_heads; ++h) {
        for (int64_t i = 0; i < n; ++i) {
          picked.push_back(static_cast<int32_t>(h * 2 * (d_k + n_values) + first + i));
        }
      }
      return picked;
    };
    const std::string in = blk + "ssm_in.weight";
    const int64_t n_rows = all + v_dim;
    WEIR_RETURN_IF_ERROR(loader.LoadPicked(in, n_rows, n_embd, rows(0, d_k), &out->wq_));
    WEIR_RETURN_IF_ERROR(loader.LoadPicked(in, n_rows, n_embd, rows(d_k, d_k), &out->wk_));
    WEIR_RETURN_IF_ERROR(loader.LoadPicked(in, n_rows, n_embd, rows(2 * d_k, n_values), &out->wv_));
    WEIR_RETURN_IF_ERROR(loader.LoadPicked(in, n_rows, n_embd, rows(2 * d_k + n_values, n_values), &out->wz_));
  } else {
    WEIR_RETURN_IF_ERROR(loader.LoadRows(qkv, all, n_embd, 0, k_dim, &out->wq_));
    WEIR_RETURN_IF_ERROR(loader.LoadRows(qkv, all, n_embd, k_dim, k_dim, &out->wk_));
    WEIR_RETURN_IF_ERROR(loader.LoadRows(qkv, all, n_embd, 2 * k_dim, v_dim, &out->wv_));
    WEIR_RETURN_IF_ERROR(loader.Load(blk + "attn_gate.weight", v_dim, n_embd, &out->wz_));
  }
  WEIR_RETURN_IF_ERROR(loader.LoadTaps(taps, all, shape.n_taps, 0, k_dim, &out->q_taps_));
  WEIR_RETURN_IF_ERROR(loader.LoadTaps(taps, all, shape.n_taps, k_dim, k_dim, &out->k_taps_));
  WEIR_RETURN_IF_ERROR(loader.LoadTaps(taps, all, shape.n_taps, 2 * k_dim, v_dim, &out->v_taps_));
  if (shape.grouped) {
    const int32_t n_shared = shape.n_v_heads / shape.n_k_heads;
    std::vector<int32_t> alpha, beta;
    for (int32_t h = 0; h < shape.n_v_heads; ++h) {
      beta.push_back(h / n_shared * 2 * n_shared + h % n_shared);
      alpha.push_back(beta.back() + n_shared);
    }
    WEIR_RETURN_IF_ERROR(loader.LoadPicked(blk + "ssm_ba.weight", 2 * n_v_heads, n_embd, alpha, &out->w_alpha_));
    WEIR_RETURN_IF_ERROR(loader.LoadPicked(blk + "ssm_ba.weight", 2 * n_v_heads, n_embd, beta, &out->w_beta_));
  } else {
    WEIR_RETURN_IF_ERROR(loader.Load(blk + "ssm_alpha.weight", n_v_heads, n_embd, &out->w_alpha_));
    WEIR_RETURN_IF_ERROR(loader.Load(blk + "ssm_beta.weight", n_v_heads, n_embd, &out->w_beta_));
  }
  WEIR_RETURN_IF_ERROR(loader.Load(blk + "ssm_a", n_v_heads, &out->a_));
  WEIR_RETURN_IF_ERROR(loader.Load(blk + "ssm_dt.bias", n_v_heads, &out->dt_bias_));
  WEIR_RETURN_IF_ERROR(loader.Load(blk + "ssm_norm.weight", shape.d_v, &out->norm_));
  // x / |x| is a norm by the root mean square, divided by sqrt(d); q is divided by sqrt(d) once more.
  const float k_scale = 1 / std::sqrt(static_cast<float>(shape.d_k));
  WEIR_RETURN_IF_ERROR(loader.Fill(shape.d_k, k_scale * k_scale, &out->q_scale_));
  WEIR_RETURN_IF_ERROR(loader.Fill(shape.d_k, k_scale, &out->k_scale_));
  return std::unique_ptr<TokenMixer>(std::move(out));
}

int64_t DeltaNetMixer::n_state() const {
  const int64_t taps = (shape_.n_taps - 1) * (2 * shape_.k_dim() + shape_.v_dim());
  return (taps + int64_t{shape_.n_v_heads} * shape_.d_k * shape_.d_v + 15) / 16 * 16;  // whole cache lines
}

int64_t DeltaNetMixer::WeightBytes() const {
  int64_t bytes = 0;
  for (const auto* w : {&wq_, &wk_, &wv_, &wz_, &w_alpha_, &w_beta_}) bytes += (*w)->bytes();
  return bytes;
}

DeltaNetMixer::Rooms DeltaNetMixer::LayOut(Workspace* space, int64_t n) const {
  Rooms rooms;
  rooms.q = space->Floats(n * shape_.k_dim());
  rooms.k = space->Floats(n * shape_.k_dim());
  rooms.v = space->Floats(n * shape_.v_dim());
  rooms.z = space->Floats(n * shape_.v_dim());
  rooms.alpha = space->Floats(n * shape_.n_v_heads);
  rooms.beta = space->Floats(n * shape_.n_v_heads);
  rooms.gates = space->Floats(DeltaRuleScratchFloats(n, shape_.n_v_heads));
  return rooms;
}

int64_t DeltaNetMixer::WorkspaceBytes(int64_t n_rows) const {
  Workspace space(nullptr);
  LayOut(&space, n_rows);
  return space.used();
}

void DeltaNetMixer::Run(const Call& call) {
  const int64_t n = call.n_rows, k_dim = shape_.k_dim(), v_dim = shape_.v_dim(), heads = shape_.n_v_heads;
  Workspace space = call.space;
  const Rooms r = LayOut(&space, n);
  const MatMulOut outs[] = {
      {wq_.get(), r.q, k_dim, nullptr, false},          {wk_.get(), r.k, k_dim, nullptr, false},
      {wv_.get(), r.v, v_dim, nullptr, false},          {wz_.get(), r.z, v_dim, nullptr, false},
      {w_alpha_.get(), r.alpha, heads, nullptr, false}, {w_beta_.get(), r.beta, heads, nullptr, false},
  };
  backend_.MatMul({call.x, n_embd_, n, n_embd_, outs, call.scratch});
  const int64_t n_before = shape_.n_taps - 1;
  for (const BatchSegment& s : call.attender->segments()) {
    float* state = s.pot->state().data() + place_;
    for (const auto& [x, taps, cols] :
         {std::tuple{r.q, q_taps_.get(), k_dim}, {r.k, k_taps_.get(), k_dim}, {r.v, v_taps_.get(), v_dim}}) {
      float* const rows = x + s.first_row * cols;
      backend_.CausalConv({rows, taps, nullptr, state, rows, s.n_rows, cols, shape_.n_taps, true});
      state += n_before * cols;
    }
  }
  const float eps = kLengthEps / static_cast<float>(shape_.d_k);
  backend_.RmsNorm({r.q, q_scale_.get(), r.q, n * shape_.n_k_heads, shape_.d_k, eps});
  backend_.RmsNorm({r.k, k_scale_.get(), r.k, n * shape_.n_k_heads, shape_.d_k, eps});
  for (const BatchSegment& s : call.attender->segments()) {
    const int64_t first = s.first_row;
    backend_.DeltaRule({.q = r.q + first * k_dim,
                        .k = r.k + first * k_dim,
                        .v = r.v + first * v_dim,
                        .alpha = r.alpha + first * heads,
                        .beta = r.beta + first * heads,
                        .a = a_.get(),
                        .dt_bias = dt_bias_.get(),
                        .state = s.pot->state().data() + place_ + n_before * (2 * k_dim + v_dim),
                        .out = call.out + first * v_dim,
                        .scratch = r.gates,
                        .n_rows = s.n_rows,
                        .n_k_heads = shape_.n_k_heads,
                        .n_v_heads = shape_.n_v_heads,
                        .d_k = shape_.d_k,
                        .d_v = shape_.d_v,
                        .grouped = shape_.grouped});
  }
  backend_.RmsNorm({call.out, norm_.get(), call.out, n * heads, shape_.d_v, norm_eps_});
  backend_.SwiGlu({r.z, call.out, call.out, n * v_dim});
}

}  // namespace weir
