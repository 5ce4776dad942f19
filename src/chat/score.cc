// SPDX-License-Identifier: Apache-2.0
#include "chat/score.h"

#include <algorithm>
#include <cmath>
#include <numeric>

namespace weir {

ScoredToken ScoreToken(std::span<const float> logits, int32_t id, int n_top) {
  const float best = *std::max_element(logits.begin(), logits.end());
  double sum = 0;
  for (const float logit : logits) sum += std::exp(static_cast<double>(logit) - best);
  const double log_sum = best + std::log(sum);
  ScoredToken out;
  out.id = id;
  out.scored = true;
  out.logprob = static_cast<float>(logits[id] - log_sum);
  if (n_top <= 0) return out;
  std::vector<int32_t> ids(logits.size());
  std::iota(ids.begin(), ids.end(), 0);
  const auto middle = ids.begin() + std::min<int64_t>(n_top, std::ssize(ids));
  std::partial_sort(ids.begin(), middle, ids.end(),
                    [&](int32_t a, int32_t b) { return logits[a] != logits[b] ? logits[a] > logits[b] : a < b; });
  for (auto it = ids.begin(); it != middle; ++it) {
    out.top.emplace_back(*it, static_cast<float>(logits[*it] - log_sum));
  }
  return out;
}

Result<std::unique_ptr<PromptScorer>> PromptScorer::Make(Model& model, Backend& backend, Ledger& ledger) {
  std::unique_ptr<PromptScorer> out(new PromptScorer(model, backend));
  const ModelConfig& config = model.config();
  const auto allocate = [&](int64_t bytes, Access access) {
    return backend.Allocate(ledger, MemTag::kWorkspace, bytes, access);
  };
  WEIR_ASSIGN_OR_RETURN(out->logits_, allocate(kRows * config.n_vocab * 4, Access::kShared));
  WEIR_ASSIGN_OR_RETURN(out->scratch_, allocate(backend.MatMulScratchBytes(kRows, config.n_embd), Access::kDevice));
  WEIR_ASSIGN_OR_RETURN(out->hidden_, allocate(backend.UploadBytes(kRows * config.n_embd * 4), Access::kDevice));
  return out;
}

int64_t PromptScorer::Bytes(const Model& model, const Backend& backend) {
  const ModelConfig& config = model.config();
  return PageRound(kRows * config.n_vocab * 4) + PageRound(backend.MatMulScratchBytes(kRows, config.n_embd)) +
         backend.UploadBytes(kRows * config.n_embd * 4);
}

Status PromptScorer::Score(const float* hidden, std::span<const int32_t> targets, int n_top,
                           std::vector<ScoredToken>* out) {
  const ModelConfig& config = model_.config();
  for (size_t at = 0; at < targets.size(); at += kRows) {
    const size_t n = std::min<size_t>(kRows, targets.size() - at);
    MatMulOut head;
    head.w = &model_.head();
    head.y = logits_.as<float>();
    head.y_stride = config.n_vocab;
    head.bias = model_.head_bias();
    MatMulArgs args;
    args.x = hidden + static_cast<int64_t>(at) * config.n_embd;
    if (hidden_.bytes() > 0) {
      backend_.Copy(hidden_.data(), args.x, static_cast<int64_t>(n) * config.n_embd * 4);
      args.x = hidden_.as<float>();
    }
    args.x_stride = config.n_embd;
    args.n_rows = static_cast<int64_t>(n);
    args.n_in = config.n_embd;
    args.outs = {&head, 1};
    args.scratch = scratch_.data();
    backend_.MatMul(args);
    const float cap = config.logit_softcap;
    if (cap > 0) backend_.SoftCap({cap, head.y, head.y, args.n_rows * config.n_vocab});
    backend_.Synchronise();
    for (size_t r = 0; r < n; ++r) {
      const std::span<const float> row(logits_.as<float>() + static_cast<int64_t>(r) * config.n_vocab,
                                       static_cast<size_t>(config.n_vocab));
      out->push_back(ScoreToken(row, targets[at + r], n_top));
    }
  }
  return backend_.status();
}

}  // namespace weir
