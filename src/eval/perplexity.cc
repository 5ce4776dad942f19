// SPDX-License-Identifier: Apache-2.0
#include "eval/perplexity.h"

#include <algorithm>
#include <cmath>

namespace weir {

PerplexityResult NllMean::Result() const {
  return {std::exp(mean_.mean()), mean_.mean(), mean_.std_error(), mean_.n()};
}

Result<PerplexityResult> WindowPerplexity(Session& session, std::span<const int32_t> tokens,
                                          const WindowOptions& options) {
  const int32_t n_ctx = options.n_ctx;
  if (n_ctx < 4) return InvalidArgument("windows of {} tokens: expected at least 4", n_ctx);
  if (session.plan().pot_slots < n_ctx) {
    return InvalidArgument("windows of {} tokens do not fit a pot of {}", n_ctx, session.plan().pot_slots);
  }
  int64_t n_windows = static_cast<int64_t>(tokens.size()) / n_ctx;
  if (options.max_windows > 0) n_windows = std::min(n_windows, options.max_windows);
  if (n_windows == 0) {
    return InvalidArgument("the text has {} tokens, one window needs {}", tokens.size(), n_ctx);
  }
  NllMean mean;
  std::vector<int32_t> window(static_cast<size_t>(n_ctx));
  std::vector<float> nll(window.size());
  for (int64_t w = 0; w < n_windows; ++w) {
    std::copy_n(tokens.begin() + w * n_ctx, n_ctx, window.begin());
    if (options.bos_id >= 0) window[0] = options.bos_id;
    session.Reset();
    Session::AppendOptions append;
    append.nll = nll.data();
    append.stop = options.stop;
    WEIR_RETURN_IF_ERROR(session.Append(window, append));
    for (int32_t i = n_ctx / 2 + 1; i < n_ctx; ++i) mean.Add(nll[i]);
    if (options.progress) options.progress(w + 1, n_windows, mean.Result().perplexity);
  }
  return mean.Result();
}

StreamPerplexity::StreamPerplexity(Session& session, int64_t segment_tokens, Report report)
    : session_(session), segment_tokens_(segment_tokens), report_(std::move(report)) {}

Status StreamPerplexity::Push(std::span<const int32_t> tokens, const std::atomic<bool>* stop) {
  while (!tokens.empty()) {
    const size_t n = std::min<size_t>(tokens.size(), static_cast<size_t>(session_.plan().chunk_rows));
    nll_.resize(n);
    Session::AppendOptions append;
    append.nll = nll_.data();
    append.stop = stop;
    WEIR_RETURN_IF_ERROR(session_.Append(tokens.first(n), append));
    for (size_t i = 0; i < n; ++i, ++seen_) {
      if (seen_ == segment_first_ + segment_tokens_) {
        report_(segment_first_, seen_, segment_.Result());
        segment_ = NllMean();
        segment_first_ = seen_;
      }
      if (seen_ == 0) continue;
      segment_.Add(nll_[i]);
      total_.Add(nll_[i]);
    }
    tokens = tokens.subspan(n);
  }
  return Status();
}

void StreamPerplexity::Finish() {
  if (seen_ > segment_first_) report_(segment_first_, seen_, segment_.Result());
}

}  // namespace weir
