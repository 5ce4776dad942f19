// SPDX-License-Identifier: Apache-2.0
#include "chat/generate.h"

#include "base/clock.h"

namespace weir {

Result<GenerateResult> Generate(Session& session, Sampler& sampler, const Tokenizer& tokenizer,
                                const GenerateOptions& options,
                                const std::function<void(const std::string&)>& on_text) {
  const Clock::time_point start = Clock::now();
  GenerateResult out;
  Answerer answerer(session, sampler, tokenizer, options);
  answerer.Show(options.shown);
  const auto emit = [&] {
    const std::string text = answerer.TakeText();
    if (text.empty()) return;
    out.text += text;
    if (on_text) on_text(text);
  };
  while (!answerer.done()) {
    if (options.stop != nullptr && options.stop->load(std::memory_order_relaxed)) {
      answerer.Stop();
      break;
    }
    WEIR_ASSIGN_OR_RETURN(const bool reads, answerer.Draw());
    const int32_t token = answerer.token();
    out.tokens.push_back(token);
    emit();  // before the token is read, so that the text is not delayed by a forward pass
    if (reads) WEIR_RETURN_IF_ERROR(answerer.Read(session.Append({&token, 1}, answerer.append())));
  }
  answerer.Finish();
  emit();
  out.reason = answerer.reason();
  out.full = answerer.full();
  out.end_token_read = answerer.end_token_read();
  if (out.tokens.empty()) return out;
  // Every token was followed by a forward pass; only the wait for the first one is left out.
  out.first_token_ms = Milliseconds(answerer.first_token_at() - start);
  const double decode_ms = Milliseconds(Clock::now() - answerer.first_token_at());
  if (decode_ms > 0) out.tokens_per_s = static_cast<double>(out.tokens.size()) * 1000 / decode_ms;
  return out;
}

}  // namespace weir
