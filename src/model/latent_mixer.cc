// SPDX-License-Identifier: Apache-2.0
#include "model/latent_mixer.h"

#include <algorithm>
#include <cstring>
#include <numeric>

namespace weir {

Result<LatentShape> ReadLatentShape(const GgufFile& file, const std::string& arch, int32_t n_heads) {
  LatentShape s;
  s.n_heads = n_heads;
  const std::string of = arch + ".attention.";
  const auto read = [&](const std::string& key, int64_t min, int64_t max, int32_t* out) -> Status {
    WEIR_ASSIGN_OR_RETURN(const int64_t value, BoundedInt(file, key, min, max));
    *out = static_cast<int32_t>(value);
    return Status();
  };
  WEIR_RETURN_IF_ERROR(read(of + "kv_lora_rank", 8, kMaxHeadDim, &s.rank));
  WEIR_RETURN_IF_ERROR(read(arch + ".rope.dimension_count", 2, kMaxHeadDim, &s.n_rope));
  if (file.Has(of + "q_lora_rank")) WEIR_RETURN_IF_ERROR(read(of + "q_lora_rank", 0, 1 << 16, &s.q_rank));
  const bool newer = file.Has(of + "key_length_mla");
  const std::string key = of + (newer ? "key_length_mla" : "key_length");
  int32_t n_key = 0;
  WEIR_RETURN_IF_ERROR(read(key, 8, 1 << 14, &n_key));
  WEIR_RETURN_IF_ERROR(read(of + (newer ? "value_length_mla" : "value_length"), 1, 1 << 14, &s.n_value));
  s.n_nope = n_key - s.n_rope;
  if (s.n_rope % 2 != 0 || s.n_nope < 1) {
    return Corrupt("{}: {} of the {} numbers of a key ({}) cannot be rotated ({}.rope.dimension_count)", file.path(),
                   s.n_rope, n_key, key, arch);
  }
  if (s.slot() > kMaxHeadDim || s.slot() % 8 != 0) {
    return Unsupported(
        "{}: latents of {} numbers with {} rotated ones are not supported; together at most {}, and a "
        "multiple of 8",
        file.path(), s.rank, s.n_rope, kMaxHeadDim);
  }
  return s;
}

Result<std::unique_ptr<TokenMixer>> LatentMixer::Load(WeightLoader& loader, const std::string& blk, int64_t n_embd,
                                                      const LatentShape& s, float norm_eps, Backend& backend) {
  if (!backend.on_host()) {
    return Unsupported("{}: multi-head latent attention runs on the CPU only; choose it with --device cpu",
                       loader.path());
  }
  std::unique_ptr<LatentMixer> out(new LatentMixer(n_embd, s, norm_eps, backend));
  const std::vector<int32_t> halves = HalfSplitOrder(1, s.n_rope, s.n_rope);
  const int32_t n_key = s.n_nope + s.n_rope;
  std::vector<int32_t> q_rows(static_cast<size_t>(s.n_heads) * n_key), k_rows;
  for (int32_t h = 0; h < s.n_heads; ++h) {
    std::iota(q_rows.begin() + h * s.n_nope, q_rows.begin() + (h + 1) * s.n_nope, h * n_key);
    for (int32_t i = 0; i < s.n_rope; ++i) {
      q_rows[static_cast<size_t>(s.n_heads) * s.n_nope + h * s.n_rope + i] = h * n_key + s.n_nope + halves[i];
    }
  }
  for (const int32_t i : halves) k_rows.push_back(s.rank + i);
  if (s.q_rank > 0 && !loader.Has(blk + "attn_q.weight")) {
    WEIR_RETURN_IF_ERROR(loader.Load(blk + "attn_q_a.weight", s.q_rank, n_embd, &out->q_low_));
    WEIR_RETURN_IF_ERROR(loader.Load(blk + "attn_q_a_norm.weight", s.q_rank, &out->q_norm_));
    WEIR_RETURN_IF_ERROR(loader.Load(blk + "attn_q_b.weight", std::ssize(q_rows), s.q_rank, &out->q_, q_rows));
  } else {
    WEIR_RETURN_IF_ERROR(loader.Load(blk + "attn_q.weight", std::ssize(q_rows), n_embd, &out->q_, q_rows));
  }
  const std::string kv = blk + "attn_kv_a_mqa.weight";
  WEIR_RETURN_IF_ERROR(loader.LoadRows(kv, s.slot(), n_embd, 0, s.rank, &out->c_));
  WEIR_RETURN_IF_ERROR(loader.LoadPicked(kv, s.slot(), n_embd, k_rows, &out->k_r_));
  WEIR_RETURN_IF_ERROR(loader.Load(blk + "attn_kv_a_norm.weight", s.rank, &out->c_norm_));
  WEIR_RETURN_IF_ERROR(out->LoadHeads(loader, blk));
  return std::unique_ptr<TokenMixer>(std::move(out));
}

Status LatentMixer::LoadHeads(WeightLoader& loader, const std::string& blk) {
  const LatentShape& s = shape_;
  k_heads_.resize(static_cast<size_t>(s.n_heads));
  v_heads_.resize(static_cast<size_t>(s.n_heads));
  const std::string both = blk + "attn_kv_b.weight", k = blk + "attn_k_b.weight", v = blk + "attn_v_b.weight";
  const bool older = loader.Has(both) && !loader.Has(k);
  const int64_t rows = s.n_nope + s.n_value;
  for (int32_t h = 0; h < s.n_heads; ++h) {
    if (older) {
      const int64_t first = h * rows;
      WEIR_RETURN_IF_ERROR(loader.LoadTransposed(both, s.n_heads * rows, s.rank, first, s.n_nope, &k_heads_[h]));
      WEIR_RETURN_IF_ERROR(loader.LoadRows(both, s.n_heads * rows, s.rank, first + s.n_nope, s.n_value, &v_heads_[h]));
    } else {
      WEIR_RETURN_IF_ERROR(loader.LoadSlice(k, s.n_heads, h, s.rank, s.n_nope, &k_heads_[h]));
      WEIR_RETURN_IF_ERROR(loader.LoadSlice(v, s.n_heads, h, s.n_value, s.rank, &v_heads_[h]));
    }
  }
  return Status();
}

int64_t LatentMixer::WeightBytes() const {
  int64_t bytes = (q_low_ ? q_low_->bytes() : 0) + q_->bytes() + c_->bytes() + k_r_->bytes();
  for (const auto* heads : {&k_heads_, &v_heads_}) {
    for (const auto& w : *heads) bytes += w->bytes();
  }
  return bytes;
}

int64_t LatentMixer::widest() const { return std::max<int64_t>({n_embd_, shape_.q_rank, shape_.rank, shape_.n_nope}); }

LatentMixer::Rooms LatentMixer::LayOut(Workspace* space, int64_t n) const {
  const LatentShape& s = shape_;
  Rooms r;
  r.q_low = q_low_ ? space->Floats(n * s.q_rank) : nullptr;
  r.q = space->Floats(n * s.n_heads * (s.n_nope + s.n_rope));
  r.c = space->Floats(n * s.rank);
  r.k_r = space->Floats(n * s.n_rope);
  r.query = space->Floats(n * s.n_heads * s.slot());
  r.slot = space->Floats(n * s.slot());
  r.mixed = space->Floats(n * s.n_heads * s.slot());
  return r;
}

int64_t LatentMixer::WorkspaceBytes(int64_t n_rows) const {
  Workspace space(nullptr);
  LayOut(&space, n_rows);
  return space.used();
}

void LatentMixer::Run(const Call& call) {
  const LatentShape& s = shape_;
  const int64_t n = call.n_rows, n_q = int64_t{s.n_heads} * (s.n_nope + s.n_rope),
                n_query = int64_t{s.n_heads} * s.slot();
  Workspace space = call.space;
  const Rooms r = LayOut(&space, n);
  const auto product = [&](const float* x, int64_t stride, int64_t n_in, std::span<const MatMulOut> outs) {
    backend_.MatMul({x, stride, n, n_in, outs, call.scratch});
  };
  const MatMulOut first[] = {q_low_ ? MatMulOut{q_low_.get(), r.q_low, s.q_rank} : MatMulOut{q_.get(), r.q, n_q},
                             {c_.get(), r.c, s.rank},
                             {k_r_.get(), r.k_r, s.n_rope}};
  product(call.x, n_embd_, n_embd_, first);
  if (q_low_) {
    backend_.RmsNorm({r.q_low, q_norm_.get(), r.q_low, n, s.q_rank, norm_eps_});
    const MatMulOut out = {q_.get(), r.q, n_q};
    product(r.q_low, s.q_rank, s.q_rank, {&out, 1});
  }
  backend_.RmsNorm({r.c, c_norm_.get(), r.c, n, s.rank, norm_eps_});
  if (call.observe) call.observe("latent", s.rank, r.c);

  const auto copy = [](float* to, const float* from, int64_t count) {
    std::memcpy(to, from, static_cast<size_t>(count) * 4);
  };
  for (int64_t i = 0; i < n; ++i) {
    copy(r.slot + i * s.slot(), r.k_r + i * s.n_rope, s.n_rope);
    copy(r.slot + i * s.slot() + s.n_rope, r.c + i * s.rank, s.rank);
    const float* const q_r = r.q + i * n_q + int64_t{s.n_heads} * s.n_nope;
    for (int64_t h = 0; h < s.n_heads; ++h) {
      copy(r.query + i * n_query + h * s.slot(), q_r + h * s.n_rope, s.n_rope);
    }
  }
  for (int64_t h = 0; h < s.n_heads; ++h) {
    const MatMulOut out = {k_heads_[static_cast<size_t>(h)].get(), r.query + h * s.slot() + s.n_rope, n_query};
    product(r.q + h * s.n_nope, n_q, s.n_nope, {&out, 1});
  }
  if (call.observe) call.observe("q", n_query, r.query);
  call.attender->Attend(static_cast<int32_t>(place_), r.query, r.slot, r.slot, r.mixed);
  for (int64_t h = 0; h < s.n_heads; ++h) {
    const MatMulOut out = {v_heads_[static_cast<size_t>(h)].get(), call.out + h * s.n_value, n_out()};
    product(r.mixed + h * s.slot() + s.n_rope, n_query, s.rank, {&out, 1});
  }
}

}  // namespace weir
