// SPDX-License-Identifier: Apache-2.0
#include "model/feed_forward.h"

#include <algorithm>

namespace weir {
namespace {

class Dense : public FeedForward {
 public:
  // Without a gate: the square of relu.
  static Result<std::unique_ptr<FeedForward>> Load(WeightLoader& loader, const std::string& blk, int64_t n_embd,
                                                   int64_t n_ff, bool gated, Backend& backend) {
    auto out = std::make_unique<Dense>(n_embd, n_ff, backend);
    if (gated) WEIR_RETURN_IF_ERROR(loader.Load(blk + "ffn_gate.weight", n_ff, n_embd, &out->gate_));
    WEIR_RETURN_IF_ERROR(loader.Load(blk + "ffn_up.weight", n_ff, n_embd, &out->up_));
    WEIR_RETURN_IF_ERROR(loader.Load(blk + "ffn_down.weight", n_embd, n_ff, &out->down_));
    return std::unique_ptr<FeedForward>(std::move(out));
  }
  Dense(int64_t n_embd, int64_t n_ff, Backend& backend) : backend_(backend), n_embd_(n_embd), n_ff_(n_ff) {}

  int64_t WeightBytes() const override { return (gate_ ? gate_->bytes() : 0) + up_->bytes() + down_->bytes(); }
  int64_t widest() const override { return std::max(n_embd_, n_ff_); }
  int64_t WorkspaceBytes(int64_t n_rows) const override { return (gate_ ? 2 : 1) * AlignedBytes(n_rows * n_ff_ * 4); }

  void Run(const float* x, int64_t n, float* y, bool add, Workspace space, uint8_t* /*host*/, void* scratch) override {
    float* const up = space.Floats(n * n_ff_);
    if (gate_) {
      float* const gate = space.Floats(n * n_ff_);
      const MatMulOut outs[] = {{gate_.get(), gate, n_ff_, nullptr, false}, {up_.get(), up, n_ff_, nullptr, false}};
      backend_.MatMul({x, n_embd_, n, n_embd_, outs, scratch});
      backend_.SwiGlu({gate, up, up, n * n_ff_});
    } else {
      const MatMulOut out = {up_.get(), up, n_ff_, nullptr, false};
      backend_.MatMul({x, n_embd_, n, n_embd_, {&out, 1}, scratch});
      backend_.Relu({up, up, n * n_ff_});
      backend_.Mul({up, up, up, n * n_ff_});
    }
    const MatMulOut out = {down_.get(), y, n_embd_, nullptr, add};
    backend_.MatMul({up, n_ff_, n, n_ff_, {&out, 1}, scratch});
  }

 private:
  Backend& backend_;
  const int64_t n_embd_, n_ff_;
  std::unique_ptr<Matrix> gate_, up_, down_;
};

class ExpertsPart : public FeedForward {
 public:
  ExpertsPart(int64_t n_embd, const ExpertsConfig& config, Backend& backend)
      : backend_(backend), n_embd_(n_embd), config_(config) {}
  Status Load(WeightLoader& loader, const std::string& blk) {
    return experts_.Load(loader, backend_, blk, n_embd_, config_);
  }

  int64_t WeightBytes() const override { return experts_.WeightBytesPerToken(); }
  int64_t widest() const override { return n_embd_; }  // it brings its own scratch
  int64_t WorkspaceBytes(int64_t n_rows) const override {
    return AlignedBytes(n_rows * n_embd_ * 4) + Experts::WorkspaceBytes(backend_, config_, n_embd_, n_rows);
  }
  int64_t HostBytes(int64_t n_rows) const override { return Experts::HostBytes(backend_, config_, n_rows); }
  void Run(const float* x, int64_t n, float* y, bool add, Workspace space, uint8_t* host, void* /*scratch*/) override {
    float* const out = add ? space.Floats(n * n_embd_) : y;
    experts_.Run(backend_, x, n, out, space.Bytes(Experts::WorkspaceBytes(backend_, config_, n_embd_, n)), host);
    if (add) backend_.Add({y, out, y, n * n_embd_});
  }

 private:
  Backend& backend_;
  const int64_t n_embd_;
  const ExpertsConfig config_;
  Experts experts_;
};

}  // namespace

Result<std::unique_ptr<FeedForward>> LoadExpertsFeedForward(WeightLoader& loader, const std::string& blk,
                                                            int64_t n_embd, const ExpertsConfig& config,
                                                            Backend& backend) {
  auto out = std::make_unique<ExpertsPart>(n_embd, config, backend);
  WEIR_RETURN_IF_ERROR(out->Load(loader, blk));
  return std::unique_ptr<FeedForward>(std::move(out));
}

Result<std::unique_ptr<FeedForward>> LoadGatedFeedForward(WeightLoader& loader, const std::string& blk, int64_t n_embd,
                                                          int64_t n_ff, Backend& backend) {
  return Dense::Load(loader, blk, n_embd, n_ff, true, backend);
}

Result<std::unique_ptr<FeedForward>> LoadSquaredReluFeedForward(WeightLoader& loader, const std::string& blk,
                                                                int64_t n_embd, int64_t n_ff, Backend& backend) {
  return Dense::Load(loader, blk, n_embd, n_ff, false, backend);
}

}  // namespace weir
