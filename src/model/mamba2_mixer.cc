// SPDX-License-Identifier: Apache-2.0
#include "model/mamba2_mixer.h"

#include <tuple>

namespace weir {

Result<Mamba2Shape> ReadMamba2Shape(const GgufFile& file, const std::string& arch) {
  const std::string ssm = arch + ".ssm.";
  Mamba2Shape s;
  const auto read = [&](const char* name, int64_t most, int32_t* out) -> Status {
    WEIR_ASSIGN_OR_RETURN(const int64_t value, BoundedInt(file, ssm + name, 1, most));
    *out = static_cast<int32_t>(value);
    return Status();
  };
  int32_t inner = 0;
  WEIR_RETURN_IF_ERROR(read("conv_kernel", kMaxConvTaps, &s.n_taps));
  WEIR_RETURN_IF_ERROR(read("group_count", 4096, &s.n_groups));
  WEIR_RETURN_IF_ERROR(read("time_step_rank", 4096, &s.n_heads));
  WEIR_RETURN_IF_ERROR(read("state_size", 1024, &s.d_state));
  WEIR_RETURN_IF_ERROR(read("inner_size", 1 << 20, &inner));
  s.d_head = inner / s.n_heads;
  if (inner % s.n_heads != 0 || s.n_heads % s.n_groups != 0 || s.d_head > 1024) {
    return Corrupt("{}: {}inner_size {} for {} heads (time_step_rank) in {} groups (group_count)", file.path(), ssm,
                   inner, s.n_heads, s.n_groups);
  }
  return s;
}

Result<std::unique_ptr<TokenMixer>> Mamba2Mixer::Load(WeightLoader& loader, const std::string& blk, int64_t n_embd,
                                                      const Mamba2Shape& shape, float norm_eps, bool normed,
                                                      Backend& backend) {
  std::unique_ptr<Mamba2Mixer> out(new Mamba2Mixer(backend));
  out->shape_ = shape;
  out->n_embd_ = n_embd;
  out->norm_eps_ = norm_eps;
  const int64_t x_dim = shape.x_dim(), bc_dim = shape.bc_dim(), conv_dim = x_dim + 2 * bc_dim;
  const int64_t all = x_dim + conv_dim + shape.n_heads, heads = shape.n_heads;
  const std::string in = blk + "ssm_in.weight", conv = blk + "ssm_conv1d.";
  // Rows of z, x, b, c and dt; the convolution has those of x, b and c.
  WEIR_RETURN_IF_ERROR(loader.LoadRows(in, all, n_embd, 0, x_dim, &out->wz_));
  WEIR_RETURN_IF_ERROR(loader.LoadRows(in, all, n_embd, x_dim, x_dim, &out->wx_));
  WEIR_RETURN_IF_ERROR(loader.LoadRows(in, all, n_embd, 2 * x_dim, bc_dim, &out->wb_));
  WEIR_RETURN_IF_ERROR(loader.LoadRows(in, all, n_embd, 2 * x_dim + bc_dim, bc_dim, &out->wc_));
  WEIR_RETURN_IF_ERROR(loader.LoadRows(in, all, n_embd, x_dim + conv_dim, heads, &out->wdt_));
  const bool biased = loader.Has(conv + "bias");
  for (const auto& [first, n, taps, bias] : {std::tuple{int64_t{0}, x_dim, &out->x_taps_, &out->x_bias_},
                                             {x_dim, bc_dim, &out->b_taps_, &out->b_bias_},
                                             {x_dim + bc_dim, bc_dim, &out->c_taps_, &out->c_bias_}}) {
    WEIR_RETURN_IF_ERROR(loader.LoadTaps(conv + "weight", conv_dim, shape.n_taps, first, n, taps));
    if (biased) WEIR_RETURN_IF_ERROR(loader.LoadPart(conv + "bias", conv_dim, first, n, bias));
  }
  WEIR_RETURN_IF_ERROR(loader.LoadTaps(blk + "ssm_a", heads, 1, 0, heads, &out->a_));
  WEIR_RETURN_IF_ERROR(loader.LoadTaps(blk + "ssm_d", heads, 1, 0, heads, &out->d_));
  WEIR_RETURN_IF_ERROR(loader.Load(blk + "ssm_dt.bias", heads, &out->dt_bias_));
  if (normed) {
    WEIR_RETURN_IF_ERROR(
        loader.LoadVectors(blk + "ssm_norm.weight", shape.n_groups, x_dim / shape.n_groups, &out->norm_));
  }
  return std::unique_ptr<TokenMixer>(std::move(out));
}

int64_t Mamba2Mixer::n_state() const {
  const int64_t taps = (shape_.n_taps - 1) * (shape_.x_dim() + 2 * shape_.bc_dim());
  return (taps + shape_.x_dim() * shape_.d_state + 15) / 16 * 16;  // whole cache lines
}

int64_t Mamba2Mixer::WeightBytes() const {
  int64_t bytes = 0;
  for (const auto* w : {&wz_, &wx_, &wb_, &wc_, &wdt_}) bytes += (*w)->bytes();
  return bytes;
}

Mamba2Mixer::Rooms Mamba2Mixer::LayOut(Workspace* space, int64_t n) const {
  Rooms rooms;
  rooms.z = space->Floats(n * shape_.x_dim());
  rooms.b = space->Floats(n * shape_.bc_dim());
  rooms.c = space->Floats(n * shape_.bc_dim());
  rooms.dt = space->Floats(n * shape_.n_heads);
  rooms.gates = space->Floats(2 * n * shape_.n_heads);
  return rooms;
}

int64_t Mamba2Mixer::WorkspaceBytes(int64_t n_rows) const {
  Workspace space(nullptr);
  LayOut(&space, n_rows);
  return space.used();
}

void Mamba2Mixer::Run(const Call& call) {
  const int64_t n = call.n_rows, x_dim = shape_.x_dim(), bc_dim = shape_.bc_dim(), heads = shape_.n_heads;
  Workspace space = call.space;
  const Rooms r = LayOut(&space, n);
  const MatMulOut outs[] = {{wz_.get(), r.z, x_dim, nullptr, false},
                            {wx_.get(), call.out, x_dim, nullptr, false},
                            {wb_.get(), r.b, bc_dim, nullptr, false},
                            {wc_.get(), r.c, bc_dim, nullptr, false},
                            {wdt_.get(), r.dt, heads, nullptr, false}};
  backend_.MatMul({call.x, n_embd_, n, n_embd_, outs, call.scratch});
  const int64_t n_before = shape_.n_taps - 1;
  for (const BatchSegment& s : call.attender->segments()) {
    const int64_t first = s.first_row;
    float* state = s.pot->state().data() + place_;
    for (const auto& [x, taps, bias, cols] : {std::tuple{call.out, x_taps_.get(), x_bias_.get(), x_dim},
                                              {r.b, b_taps_.get(), b_bias_.get(), bc_dim},
                                              {r.c, c_taps_.get(), c_bias_.get(), bc_dim}}) {
      float* const rows = x + first * cols;
      backend_.CausalConv({rows, taps, bias, state, rows, s.n_rows, cols, shape_.n_taps, true});
      state += n_before * cols;
    }
    backend_.SsmScan({.x = call.out + first * x_dim,
                      .b = r.b + first * bc_dim,
                      .c = r.c + first * bc_dim,
                      .dt = r.dt + first * heads,
                      .dt_bias = dt_bias_.get(),
                      .a = a_.get(),
                      .d = d_.get(),
                      .state = state,
                      .out = call.out + first * x_dim,
                      .scratch = r.gates,
                      .n_rows = s.n_rows,
                      .n_groups = shape_.n_groups,
                      .n_heads = shape_.n_heads,
                      .d_state = shape_.d_state,
                      .d_head = shape_.d_head});
  }
  backend_.SwiGlu({r.z, call.out, call.out, n * x_dim});
  if (norm_.data.empty()) return;
  backend_.RmsNorm(
      {call.out, norm_.get(), call.out, n * shape_.n_groups, x_dim / shape_.n_groups, norm_eps_, shape_.n_groups});
}

}  // namespace weir
