// SPDX-License-Identifier: Apache-2.0
#include "engine/session/prediction.h"

#include <algorithm>

namespace weir {

void Prediction::LayOut(const Model& model, const Backend& backend, int64_t max_rows, BufferSpace* space) {
  n_vocab_ = model.config().n_vocab;
  n_embd_ = model.config().n_embd;
  logits_ = space->Floats(MemTag::kLogits, n_vocab_, Access::kDevice);
  if (!backend.on_host()) host_logits_ = space->Floats(MemTag::kLogits, n_vocab_);
  hidden_ = space->Floats(MemTag::kLogits, n_embd_);
  space->Reserve(MemTag::kMeta, max_rows * static_cast<int64_t>(sizeof(int32_t) + sizeof(float)));
}

void Prediction::Use(Backend* backend, Runner* runner) {
  backend_ = backend;
  runner_ = runner;
  targets_.reserve(static_cast<size_t>(runner->shape().max_rows));
  nll_.reserve(static_cast<size_t>(runner->shape().max_rows));
}

void Prediction::Clear(float next_nll) {
  if (has_row_) std::fill_n(hidden_, n_embd_, 0.0f);  // it is saved, and nothing of another stream is to be
  has_row_ = has_logits_ = false;
  offered_ = nullptr;
  next_nll_ = next_nll;
}

void Prediction::Read(const float* hidden) {
  backend_->Copy(hidden_, hidden, n_embd_ * 4);
  has_row_ = true;
  has_logits_ = false;
  offered_ = nullptr;
}

Status Prediction::MakeLogits() {
  if (!has_row_) return InvalidArgument("no token was read yet, so there is nothing to continue");
  if (has_logits_) return Status();
  if (offered_ != nullptr) {
    backend_->Copy(logits_, offered_, n_vocab_ * 4);
  } else {
    runner_->Logits(hidden_, 1, logits_);
  }
  has_logits_ = true;
  has_host_logits_ = false;
  return Status();
}

void Prediction::TakeLogits(const float* logits) {
  backend_->Copy(logits_, logits, n_vocab_ * 4);
  has_logits_ = true;
  has_host_logits_ = false;
}

float* Prediction::HostLogits() {
  if (backend_->on_host()) return logits_;
  if (!has_host_logits_) {
    backend_->Copy(host_logits_, logits_, n_vocab_ * 4);
    backend_->Synchronise();
    has_host_logits_ = true;
  }
  return host_logits_;
}

Result<std::span<float>> Prediction::Logits() {
  WEIR_RETURN_IF_ERROR(MakeLogits());
  float* const logits = HostLogits();
  WEIR_RETURN_IF_ERROR(backend_->status());
  return std::span<float>(logits, static_cast<size_t>(n_vocab_));
}

Status Prediction::MostLikely(std::span<int32_t> ids, std::span<float> values) {
  const int64_t n = std::ssize(ids);
  if (n < 1 || n > std::min<int64_t>(kMaxTopLogits, n_vocab_) || std::ssize(values) != n) {
    return InvalidArgument("the {} most likely of {} tokens", n, n_vocab_);
  }
  WEIR_RETURN_IF_ERROR(MakeLogits());
  runner_->TopLogits(logits_, ids, values);
  return backend_->status();
}

std::span<const float> Prediction::TokenNll(std::span<const int32_t> tokens, const float* hidden,
                                            Normaliser normaliser) {
  // Row r predicts token r + 1; the first token of the chunk is predicted by the last row of the previous one.
  const int64_t n = std::ssize(tokens), row_bytes = n_embd_ * 4;
  nll_.resize(tokens.size());
  if (has_row_ && !has_logits_ && n > 1 && n_vocab_ >= n_embd_) {
    // One pass over the head for all of them, which a row of its own would read as a whole: that row takes the place of
    // the chunk's last one, which predicts none of its tokens and waits where logits are not made yet.
    float* const last = const_cast<float*>(hidden) + (n - 1) * n_embd_;
    backend_->Copy(logits_, last, row_bytes);
    backend_->Copy(last, hidden_, row_bytes);
    targets_.assign(tokens.begin() + 1, tokens.end());
    targets_.push_back(tokens[0]);
    runner_->HeadNll(hidden, targets_.data(), n, normaliser, nll_.data());
    backend_->Copy(last, logits_, row_bytes);
    std::rotate(nll_.begin(), nll_.end() - 1, nll_.end());
    return nll_;
  }
  if (!has_row_) {
    nll_[0] = next_nll_;
  } else if (has_logits_) {
    const float* const logits = HostLogits();
    nll_[0] = backend_->LogSumExp(logits, n_vocab_) - logits[tokens[0]];
  } else {
    runner_->HeadNll(hidden_, tokens.data(), 1, normaliser, nll_.data());
  }
  if (n > 1) {
    targets_.assign(tokens.begin() + 1, tokens.end());
    runner_->HeadNll(hidden, targets_.data(), n - 1, normaliser, nll_.data() + 1);
  }
  return nll_;
}

std::span<const float> Prediction::EmbeddingNll(int64_t n) {
  nll_.assign(static_cast<size_t>(n), 0.0f);
  if (!has_row_) nll_[0] = std::numeric_limits<float>::infinity();
  return nll_;
}

}  // namespace weir
