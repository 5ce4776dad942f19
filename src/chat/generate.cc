#include "chat/generate.h"

#include <algorithm>
#include <chrono>

#include "text/stream.h"

namespace weir {
namespace {

double MsSince(std::chrono::steady_clock::time_point start) {
  return std::chrono::duration<double, std::milli>(std::chrono::steady_clock::now() - start).count();
}

}  // namespace

const char* StopReasonName(StopReason reason) {
  switch (reason) {
    case StopReason::kEndOfGeneration:
      return "end";
    case StopReason::kMaxTokens:
      return "length";
    case StopReason::kStopped:
      return "stopped";
    case StopReason::kPotFull:
      return "pot_full";
  }
  return "?";
}

Result<int32_t> DrawToken(Session& session, Sampler& sampler) {
  const int32_t n = std::min(sampler.n_deciding(), session.model().config().n_vocab);
  if (n == 0 || n > kMaxTopLogits) {
    WEIR_ASSIGN_OR_RETURN(const std::span<float> logits, session.Logits());
    return sampler.Sample(logits);
  }
  int32_t ids[kMaxTopLogits];
  float logits[kMaxTopLogits];
  const size_t size = static_cast<size_t>(n);
  WEIR_RETURN_IF_ERROR(session.MostLikely({ids, size}, {logits, size}));
  return sampler.SampleMostLikely({ids, size}, {logits, size});
}

Result<GenerateResult> Generate(Session& session, Sampler& sampler, const Tokenizer& tokenizer,
                                const GenerateOptions& options,
                                const std::function<void(const std::string&)>& on_text) {
  const auto start = std::chrono::steady_clock::now();
  GenerateResult out;
  StreamDecoder::Options decoding;
  decoding.show_special = options.show_special;
  decoding.at_start = false;
  StreamDecoder decoder(tokenizer, decoding);
  std::string text;
  const auto emit = [&] {
    if (text.empty()) return;
    out.text += text;
    if (on_text) on_text(text);
    text.clear();
  };
  while (options.max_tokens < 0 || static_cast<int64_t>(out.tokens.size()) < options.max_tokens) {
    if (options.stop != nullptr && options.stop->load(std::memory_order_relaxed)) {
      out.reason = StopReason::kStopped;
      break;
    }
    WEIR_ASSIGN_OR_RETURN(const int32_t token, DrawToken(session, sampler));
    if (out.tokens.empty()) out.first_token_ms = MsSince(start);
    out.tokens.push_back(token);
    const bool end = tokenizer.IsEndOfGeneration(token);
    if (!end || options.ignore_eos || options.show_special) decoder.Push(token, &text);
    emit();
    sampler.Accept(token);
    Session::AppendOptions append;
    append.generated = true;
    append.t_src_ms = options.t_src_ms;
    const Status read = session.Append({&token, 1}, append);
    if (read.code() == StatusCode::kOverBudget) {
      out.reason = StopReason::kPotFull;
      out.full = read;
      break;
    }
    WEIR_RETURN_IF_ERROR(read);
    if (end && !options.ignore_eos) {
      out.reason = StopReason::kEndOfGeneration;
      out.end_token_read = true;
      break;
    }
  }
  decoder.Finish(&text);
  emit();
  const double decode_ms = MsSince(start) - out.first_token_ms;
  // Every token was followed by a forward pass; only the wait for the first one is left out.
  if (!out.tokens.empty() && decode_ms > 0)
    out.tokens_per_s = static_cast<double>(out.tokens.size()) * 1000 / decode_ms;
  return out;
}

}  // namespace weir
