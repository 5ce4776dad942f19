// SPDX-License-Identifier: Apache-2.0
#include "serve/embed_job.h"

#include <algorithm>
#include <chrono>
#include <cmath>
#include <memory>

#include <utility>

namespace weir {

Status EmbedJob::ReadSome() {
  if (reader_.may_stop()) WEIR_RETURN_IF_ERROR(CheckGoOn());
  if (!begun_) {
    begun_ = true;
    std::vector<PromptPart> parts;
    parts.push_back({std::move(tokens_), false, false, false});
    reader_.Start(std::move(parts), /*ends_prompt=*/true, nullptr, 0);
  }
  // A policy's probe may be read before the chunk: its rows do not count, and the chunk's come last.
  std::vector<double> chunk;
  const TensorObserver add = [&](const std::string& name, int64_t n_rows, int64_t n_cols, const float* data) {
    if (name != "final_norm") return;
    chunk.assign(static_cast<size_t>(n_cols), 0);
    for (int64_t row = 0; row < n_rows; ++row) {
      for (int64_t i = 0; i < n_cols; ++i) chunk[static_cast<size_t>(i)] += data[row * n_cols + i];
    }
  };
  WEIR_RETURN_IF_ERROR(ReadStep(&add));
  sum_.resize(std::max(sum_.size(), chunk.size()));
  for (size_t i = 0; i < chunk.size(); ++i) sum_[i] += chunk[i];
  return Status();
}

Job::Step EmbedJob::Advance() {
  status_ = ReadSome();
  return status_.ok() && !reader_.done() ? Step::kMore : Step::kDone;
}

void EmbedJob::Finish() {
  SessionJob::Finish();  // before the client gets the event
  if (!status_.ok()) {
    events.Push(std::move(status_));
    return;
  }
  double square = 0;
  for (const double value : sum_) square += value * value;
  const double scale = square > 0 ? 1 / std::sqrt(square) : 0;
  Embedding out;
  out.n_tokens = n_tokens_;
  for (const double value : sum_) out.values.push_back(static_cast<float>(value * scale));
  events.Push(std::move(out));
}

Result<std::vector<std::vector<int32_t>>> EmbeddingInputs(const Host& host, const Json* input, const std::string& key) {
  const bool one_text = input != nullptr && input->is_string();
  const bool list = input != nullptr && input->is_array() && !input->empty();
  if (!one_text && !list) {
    return InvalidArgument("'{}' must be a string, a list of strings, token ids, or lists of them", key);
  }
  std::vector<const Json*> texts = {input};
  const bool many = list && !(*input)[0].is_number();
  if (many) {
    texts.clear();
    for (const Json& text : *input) texts.push_back(&text);
    if (texts.size() > kMaxEmbedded) return InvalidArgument("'{}' may have at most {} texts", key, kMaxEmbedded);
  }
  std::vector<std::vector<int32_t>> out;
  for (size_t i = 0; i < texts.size(); ++i) {
    const std::string name = many ? key + "[" + std::to_string(i) + "]" : key;
    std::vector<int32_t> ids;
    const Json* text = texts[i];
    if (text->is_object()) {  // as llama-server has them; Ollama's pictures are such objects, too
      if (text->contains("multimodal_data") || text->contains("image")) {
        return Unsupported("'{}' has a picture, and only texts have embeddings here", name);
      }
      const auto words = text->find("prompt_string");
      if (words != text->end() && words->is_string() && text->size() == 1) text = &*words;
    }
    if (text->is_string()) {
      ids = host.tokenizer().Encode(text->get_ref<const std::string&>());
    } else if (texts[i]->is_array()) {
      WEIR_ASSIGN_OR_RETURN(ids, TokenIds(*texts[i], name, host.tokenizer().n_tokens()));
    } else {
      return InvalidArgument("'{}' must be a string or a list of token ids", name);
    }
    if (ids.empty()) return InvalidArgument("'{}' contains no tokens", name);
    out.push_back(std::move(ids));
  }
  return out;
}

ApiError Embed(Host& host, std::vector<std::vector<int32_t>> texts, const std::function<bool()>& wanted,
               std::vector<Embedding>* out) {
  for (std::vector<int32_t>& ids : texts) {
    if (!wanted()) return FromStatus(Cancelled("the client disconnected"));
    const auto job = std::make_shared<EmbedJob>(host, std::move(ids));
    if (const Status posted = host.scheduler().Post(job); !posted.ok()) return FromStatus(posted);
    std::optional<Result<Embedding>> result;
    while (!(result = job->events.Pop(std::chrono::milliseconds(100)))) {
      if (!wanted()) job->Cancel();
    }
    const Status& status = result->status();
    if (status.code() == StatusCode::kOverBudget) return ContextLengthExceeded(status);
    if (!status.ok()) return FromStatus(status);
    out->push_back(**std::move(result));
  }
  return {0, "", ""};
}

std::string TakeValuesText(Embedding* embedding) { return JsonText(Json(std::exchange(embedding->values, {}))); }

}  // namespace weir
