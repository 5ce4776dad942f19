// SPDX-License-Identifier: Apache-2.0
#include "model/short_conv_mixer.h"

namespace weir {

Result<std::unique_ptr<TokenMixer>> ShortConvMixer::Load(WeightLoader& loader, const std::string& blk, int64_t n_embd,
                                                         int32_t n_taps, Backend& backend) {
  std::unique_ptr<ShortConvMixer> out(new ShortConvMixer(backend));
  out->n_embd_ = n_embd;
  out->n_taps_ = n_taps;
  const std::string in = blk + "shortconv.in_proj.weight";
  WEIR_RETURN_IF_ERROR(loader.LoadRows(in, 3 * n_embd, n_embd, 0, n_embd, &out->wb_));
  WEIR_RETURN_IF_ERROR(loader.LoadRows(in, 3 * n_embd, n_embd, n_embd, n_embd, &out->wc_));
  WEIR_RETURN_IF_ERROR(loader.LoadRows(in, 3 * n_embd, n_embd, 2 * n_embd, n_embd, &out->wx_));
  WEIR_RETURN_IF_ERROR(loader.LoadTaps(blk + "shortconv.conv.weight", n_embd, n_taps, 0, n_embd, &out->taps_));
  return std::unique_ptr<TokenMixer>(std::move(out));
}

void ShortConvMixer::Run(const Call& call) {
  const int64_t n = call.n_rows;
  Workspace space = call.space;
  float* const b = space.Floats(n * n_embd_);
  float* const c = space.Floats(n * n_embd_);
  const MatMulOut outs[] = {{wb_.get(), b, n_embd_, nullptr, false},
                            {wc_.get(), c, n_embd_, nullptr, false},
                            {wx_.get(), call.out, n_embd_, nullptr, false}};
  backend_.MatMul({call.x, n_embd_, n, n_embd_, outs, call.scratch});
  backend_.Mul({b, call.out, call.out, n * n_embd_});
  for (const BatchSegment& s : call.attender->segments()) {
    float* const rows = call.out + s.first_row * n_embd_;
    backend_.CausalConv(
        {rows, taps_.get(), nullptr, s.pot->state().data() + place_, rows, s.n_rows, n_embd_, n_taps_, false});
  }
  backend_.Mul({c, call.out, call.out, n * n_embd_});
}

}  // namespace weir
