// SPDX-License-Identifier: Apache-2.0
#include "model/altup.h"

#include <algorithm>
#include <cmath>
#include <utility>

namespace weir {
namespace {

// Below it the mean square of a row that is to have another's magnitude is taken as this much.
constexpr double kLeastMeanSquare = 1e-5;

double MeanSquare(const float* row, int64_t n) {
  double sum = 0;
  for (int64_t i = 0; i < n; ++i) sum += double{row[i]} * row[i];
  return sum / static_cast<double>(n);
}

// What brings `row` to the magnitude of `like`.
float MagnitudeRatio(const float* like, const float* row, int64_t n) {
  return static_cast<float>(std::sqrt(MeanSquare(like, n) / std::max(MeanSquare(row, n), kLeastMeanSquare)));
}

}  // namespace

Status AltUp::Load(const GgufFile& file, const std::string& arch, const ModelConfig& config, float norm_eps,
                   WeightLoader& loader) {
  if (!backend_.on_host()) {
    return Unsupported("{}: models with several residual streams run on the CPU only; choose it with --device cpu",
                       file.path());
  }
  WEIR_ASSIGN_OR_RETURN(const int64_t n_streams, BoundedInt(file, arch + ".altup.num_inputs", 2, 16));
  WEIR_ASSIGN_OR_RETURN(const int64_t active, BoundedIntOr(file, arch + ".altup.active_idx", 0, n_streams - 1, 0));
  n_streams_ = static_cast<int32_t>(n_streams);
  active_ = static_cast<int32_t>(active);
  n_embd_ = config.n_embd;
  norm_eps_ = norm_eps;
  for (auto [name, matrices] : {std::pair{"altup_proj.weight", &begin_}, {"altup_unembd_proj.weight", &merge_}}) {
    matrices->resize(static_cast<size_t>(n_streams - 1));
    for (int64_t i = 0; i + 1 < n_streams; ++i) {
      WEIR_RETURN_IF_ERROR(loader.LoadSlice(name, n_streams - 1, i, n_embd_, n_embd_, &(*matrices)[i]));
    }
  }
  layers_.resize(static_cast<size_t>(config.n_layers));
  for (size_t l = 0; l < layers_.size(); ++l) {
    Layer& layer = layers_[l];
    const std::string blk = "blk." + std::to_string(l) + ".altup_";
    WEIR_RETURN_IF_ERROR(loader.Load(blk + "router_norm.weight", n_embd_, &layer.router_norm));
    WEIR_RETURN_IF_ERROR(loader.Scale(1 / static_cast<float>(n_embd_), &layer.router_norm));
    WEIR_RETURN_IF_ERROR(loader.Load(blk + "router.weight", n_streams, n_embd_, &layer.router));
    WEIR_RETURN_IF_ERROR(loader.Load(blk + "predict_coef.weight", n_streams * n_streams, n_streams, &layer.predict));
    WEIR_RETURN_IF_ERROR(loader.Load(blk + "correct_coef.weight", n_streams, n_streams, &layer.correct));
    WEIR_RETURN_IF_ERROR(loader.Load(blk + "correct_scale.weight", n_embd_, &layer.scale));
  }
  return Status();
}

int64_t AltUp::WeightBytes() const {
  int64_t bytes = 0;
  for (const auto* matrices : {&begin_, &merge_}) {
    for (const auto& w : *matrices) bytes += w->bytes();
  }
  for (const Layer& l : layers_) bytes += l.router->bytes() + l.predict->bytes() + l.correct->bytes();
  return bytes;
}

AltUp::Memory AltUp::LayOut(int64_t n, Workspace* space) const {
  Memory memory;
  memory.streams = space->Floats(n_streams_ * n * n_embd_);
  memory.predicted = space->Floats(n_streams_ * n * n_embd_);
  memory.row = space->Floats(n * n_embd_);
  memory.router = space->Floats(n * n_streams_);
  memory.coefs = space->Floats(n * n_streams_ * n_streams_);
  return memory;
}

AltUp::Pass::Pass(const AltUp& model, const Memory& memory, int64_t n, void* scratch)
    : model_(model),
      memory_(memory),
      n_(n),
      scratch_(scratch),
      rows_(static_cast<size_t>(n)),
      weights_(static_cast<size_t>(n)) {
  for (int64_t i = 0; i < n; ++i) rows_[static_cast<size_t>(i)] = static_cast<int32_t>(i);
}

void AltUp::Pass::Multiply(const float* x, int64_t n_in, const Matrix& w, float* y, int64_t n_out) {
  const MatMulOut out = {&w, y, n_out, nullptr, false};
  model_.backend_.MatMul({x, n_in, n_, n_in, {&out, 1}, scratch_});
}

template <typename F>
void AltUp::Pass::AddWeighted(const float* x, float* y, F weight) {
  for (int64_t r = 0; r < n_; ++r) weights_[static_cast<size_t>(r)] = weight(r);
  model_.backend_.ScatterAddRows({x, rows_.data(), weights_.data(), y, n_, model_.n_embd_});
}

void AltUp::Pass::Route(int32_t l, const float* x, const Matrix& coefs, int64_t n_out) {
  const Layer& layer = model_.layers_[static_cast<size_t>(l)];
  const int64_t d = model_.n_embd_, n_streams = model_.n_streams_;
  model_.backend_.RmsNorm({x, layer.router_norm.get(), memory_.row, n_, d, model_.norm_eps_});
  Multiply(memory_.row, d, *layer.router, memory_.router, n_streams);
  model_.backend_.SoftCap({1, memory_.router, memory_.router, n_ * n_streams});  // tanh
  Multiply(memory_.router, n_streams, coefs, memory_.coefs, n_out);
}

void AltUp::Pass::Begin(const float* x) {
  const int64_t d = model_.n_embd_;
  model_.backend_.Copy(memory_.streams, x, n_ * d * 4);
  for (int32_t i = 1; i < model_.n_streams_; ++i) {
    float* const stream = Stream(memory_.streams, i);
    Multiply(x, d, *model_.begin_[static_cast<size_t>(i - 1)], stream, d);
    for (int64_t r = 0; r < n_; ++r) {
      float* const row = stream + r * d;
      model_.backend_.Scale({MagnitudeRatio(x + r * d, row, d), row, row, d});
    }
  }
}

void AltUp::Pass::Predict(int32_t l, float* x) {
  const int32_t n_streams = model_.n_streams_;
  const int64_t d = model_.n_embd_;
  Route(l, Stream(memory_.streams, model_.active_), *model_.layers_[static_cast<size_t>(l)].predict,
        int64_t{n_streams} * n_streams);
  model_.backend_.Copy(memory_.predicted, memory_.streams, n_streams * n_ * d * 4);
  for (int32_t i = 0; i < n_streams; ++i) {
    for (int32_t j = 0; j < n_streams; ++j) {
      AddWeighted(Stream(memory_.streams, j), Stream(memory_.predicted, i),
                  [&](int64_t r) { return memory_.coefs[(r * n_streams + i) * n_streams + j]; });
    }
  }
  model_.backend_.Copy(x, Stream(memory_.predicted, model_.active_), n_ * d * 4);
}

void AltUp::Pass::LeaveOut(int64_t first) {
  const int64_t d = model_.n_embd_, n = n_ - first;
  for (int32_t i = 0; i < model_.n_streams_; ++i) {
    model_.backend_.Copy(memory_.predicted + i * n * d, memory_.predicted + (i * n_ + first) * d, n * d * 4);
  }
  n_ = n;
}

void AltUp::Pass::Correct(int32_t l, const float* y) {
  const int32_t n_streams = model_.n_streams_;
  const int64_t count = n_ * model_.n_embd_;
  Route(l, y, *model_.layers_[static_cast<size_t>(l)].correct, n_streams);
  model_.backend_.Scale({-1, Stream(memory_.predicted, model_.active_), memory_.row, count});
  model_.backend_.Add({y, memory_.row, memory_.row, count});
  for (int32_t i = 0; i < n_streams; ++i) {
    AddWeighted(memory_.row, Stream(memory_.predicted, i),
                [&](int64_t r) { return 1 + memory_.coefs[r * n_streams + i]; });
  }
  std::swap(memory_.streams, memory_.predicted);
}

void AltUp::Pass::ReadScaled(int32_t l, float* out) const {
  const float* const scale = model_.layers_[static_cast<size_t>(l)].scale.get();
  const int64_t d = model_.n_embd_;
  const float* const stream = Stream(memory_.streams, model_.active_);
  for (int64_t r = 0; r < n_; ++r) model_.backend_.Mul({stream + r * d, scale, out + r * d, d});
}

void AltUp::Pass::AddToOthers(const float* y) {
  for (int32_t i = 1; i < model_.n_streams_; ++i) {
    float* const stream = Stream(memory_.streams, i);
    model_.backend_.Add({stream, y, stream, n_ * model_.n_embd_});
  }
}

void AltUp::Pass::Merge(float* x) {
  const int64_t d = model_.n_embd_;
  model_.backend_.Copy(x, memory_.streams, n_ * d * 4);
  for (int32_t i = 1; i < model_.n_streams_; ++i) {
    Multiply(Stream(memory_.streams, i), d, *model_.merge_[static_cast<size_t>(i - 1)], memory_.row, d);
    AddWeighted(memory_.row, x,
                [&](int64_t r) { return MagnitudeRatio(memory_.streams + r * d, memory_.row + r * d, d); });
  }
  model_.backend_.Scale({1 / static_cast<float>(model_.n_streams_), x, x, n_ * d});
}

std::vector<float> AltUp::Pass::Rows() const {
  const int64_t d = model_.n_embd_, n_streams = model_.n_streams_;
  std::vector<float> out(static_cast<size_t>(n_streams * n_ * d));
  for (int64_t i = 0; i < n_streams; ++i) {
    for (int64_t r = 0; r < n_; ++r) {
      std::copy_n(memory_.streams + (i * n_ + r) * d, d, out.data() + (r * n_streams + i) * d);
    }
  }
  return out;
}

}  // namespace weir
