// SPDX-License-Identifier: Apache-2.0
// LFM2's gated short convolution (Liquid Foundation Models 2, 2025): out = c * conv(b * x), b, c, x linear in the
// input.
#pragma once

#include <memory>
#include <string>

#include "model/token_mixer.h"
#include "model/weights.h"

namespace weir {

class ShortConvMixer : public TokenMixer {
 public:
  static Result<std::unique_ptr<TokenMixer>> Load(WeightLoader& loader, const std::string& blk, int64_t n_embd,
                                                  int32_t n_taps, Backend& backend);

  int64_t n_out() const override { return n_embd_; }
  int64_t n_state() const override { return (n_taps_ - 1) * n_embd_; }
  int64_t WeightBytes() const override { return wb_->bytes() + wc_->bytes() + wx_->bytes(); }
  int64_t WorkspaceBytes(int64_t n_rows) const override { return 2 * AlignedBytes(n_rows * n_embd_ * 4); }
  int64_t widest() const override { return n_embd_; }
  void Run(const Call& call) override;

 private:
  explicit ShortConvMixer(Backend& backend) : backend_(backend) {}

  Backend& backend_;
  int64_t n_embd_ = 0, n_taps_ = 0;
  std::unique_ptr<Matrix> wb_, wc_, wx_;  // [n_embd, n_embd]
  Vector taps_;                           // [n_taps, n_embd]
};

}  // namespace weir
