// SPDX-License-Identifier: Apache-2.0
// Mamba-2 (arXiv 2405.21060, figure 6) as Granite 4, Nemotron-H and Falcon-H1 have it: x, b and c pass a short
// convolution and silu, the scan follows, and its result is gated by silu(z) and, in most, normalised group by group.
#pragma once

#include <memory>
#include <string>

#include "model/token_mixer.h"
#include "model/weights.h"

namespace weir {

// Keys `arch`.ssm.*.
struct Mamba2Shape {
  int32_t n_taps = 0, n_groups = 0, n_heads = 0, d_state = 0, d_head = 0;
  int64_t x_dim() const { return int64_t{n_heads} * d_head; }
  int64_t bc_dim() const { return int64_t{n_groups} * d_state; }
};
Result<Mamba2Shape> ReadMamba2Shape(const GgufFile& file, const std::string& arch);

class Mamba2Mixer : public TokenMixer {
 public:
  // Without `normed` the result is gated only.
  static Result<std::unique_ptr<TokenMixer>> Load(WeightLoader& loader, const std::string& blk, int64_t n_embd,
                                                  const Mamba2Shape& shape, float norm_eps, bool normed,
                                                  Backend& backend);

  int64_t n_out() const override { return shape_.x_dim(); }
  int64_t n_state() const override;
  int64_t WeightBytes() const override;
  int64_t WorkspaceBytes(int64_t n_rows) const override;
  int64_t widest() const override { return n_embd_; }
  void Run(const Call& call) override;

 private:
  explicit Mamba2Mixer(Backend& backend) : backend_(backend) {}
  struct Rooms {
    float *z, *b, *c, *dt, *gates;
  };
  Rooms LayOut(Workspace* space, int64_t n) const;

  Backend& backend_;
  Mamba2Shape shape_;
  int64_t n_embd_ = 0;
  float norm_eps_ = 0;
  std::unique_ptr<Matrix> wz_, wx_, wb_, wc_, wdt_;
  Vector x_taps_, b_taps_, c_taps_;  // [n_taps, columns]
  Vector x_bias_, b_bias_, c_bias_;  // or empty
  Vector a_, d_, dt_bias_;           // [n_heads]
  Vector norm_;                      // [n_groups, x_dim / n_groups], or empty
};

}  // namespace weir
