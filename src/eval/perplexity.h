// SPDX-License-Identifier: Apache-2.0
// Perplexity: exp(mean NLL), two protocols.
//
// Windows: the text is cut into windows of n_ctx tokens, each read into an empty pot; only the second half of every
// window counts, so that each counted token has at least n_ctx / 2 tokens of context. llama.cpp's perplexity program
// measures the same, so the figures are comparable.
//
// Stream: one pot, one endless text, every token counts; reported in segments, so that drift shows. Protocol of
// StreamingLLM's examples/eval_long_ppl.py, except that tokens are read in chunks: the chunk size is part of the
// result.
#pragma once

#include <atomic>
#include <cstdint>
#include <functional>
#include <span>
#include <vector>

#include "base/status.h"
#include "engine/session.h"
#include "eval/suite.h"

namespace weir {

struct PerplexityResult {
  double perplexity = 0;
  double nll_mean = 0, nll_stderr = 0;  // of the mean, over counted tokens
  int64_t n = 0;                        // counted tokens
};

// Mean of likelihoods, as a perplexity.
class NllMean {
 public:
  void Add(double nll) { mean_.Add(nll); }
  PerplexityResult Result() const;

 private:
  RunningMean mean_;
};

struct WindowOptions {
  int32_t n_ctx = 512;
  int32_t bos_id = -1;      // >= 0: replaces the first token of every window
  int64_t max_windows = 0;  // 0: all whole windows of the text
  const std::atomic<bool>* stop = nullptr;
  std::function<void(int64_t done, int64_t total, double perplexity)> progress;
};
// The session's pot must hold n_ctx tokens (kInvalidArgument otherwise); it is emptied before each window.
Result<PerplexityResult> WindowPerplexity(Session& session, std::span<const int32_t> tokens,
                                          const WindowOptions& options);

// Feeds a stream through a session and reports each full segment of `segment_tokens` tokens to `report`.
class StreamPerplexity {
 public:
  using Report = std::function<void(int64_t first_token, int64_t end_token, const PerplexityResult&)>;
  StreamPerplexity(Session& session, int64_t segment_tokens, Report report);
  // Reads and counts tokens. The first token of the stream has no likelihood and is not counted.
  Status Push(std::span<const int32_t> tokens, const std::atomic<bool>* stop);
  // Reports the last, shorter segment, if any.
  void Finish();
  const NllMean& total() const { return total_; }

 private:
  Session& session_;
  const int64_t segment_tokens_;
  Report report_;
  NllMean total_, segment_;
  int64_t seen_ = 0, segment_first_ = 0;
  std::vector<float> nll_;
};

}  // namespace weir
