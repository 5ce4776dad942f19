// SPDX-License-Identifier: Apache-2.0
#include "serve/answer_shape.h"

#include <fmt/core.h>
#include <atomic>
#include <ctime>
#include <utility>

#include "base/utf8.h"

namespace weir {
namespace {

std::string NewAnswerId(const char* prefix) {
  static std::atomic<int64_t> n{0};
  return fmt::format("{}-{:x}-{:x}", prefix, std::time(nullptr), n.fetch_add(1));
}

// Moves the lists of `more` to the ends of those of `to`.
void AppendLists(Json more, Json* to) {
  if (more.is_null()) return;
  if (to->is_null()) {
    *to = std::move(more);
    return;
  }
  for (auto it = more.begin(); it != more.end(); ++it) {
    if (!it->is_array()) continue;
    Json& list = (*to)[it.key()];
    for (Json& one : *it) list.push_back(std::move(one));
  }
}

const char* FinishReason(const AnswerSummary& summary) {
  if (!summary.ended) return "length";
  return summary.n_calls > 0 ? "tool_calls" : "stop";
}

}  // namespace

AnswerShape::AnswerShape(const Host& host, Kind kind, const CompletionRequest& request)
    : host_(host),
      kind_(kind),
      logprobs_(request.logprobs),
      include_usage_(request.include_usage),
      timings_per_token_(request.timings_per_token),
      echoes_(request.echoes),
      id_(NewAnswerId(kind == Kind::kChat ? "chatcmpl" : "cmpl")),
      created_s_(static_cast<int64_t>(std::time(nullptr))),
      choices_(request.answers.size() * static_cast<size_t>(request.n)),
      n_(request.n),
      tally_(request.n) {}

// A token as text; bytes that are not valid UTF-8 are escaped, as in the OpenAI API.
std::string AnswerShape::Spelling(int32_t id) const {
  const std::string bytes = host_.tokenizer().TokenBytes(id, /*show_special=*/true);
  if (ValidUtf8Prefix(bytes) == bytes.size()) return bytes;
  std::string out = "bytes:";
  for (const char byte : bytes) out += fmt::format("\\x{:02x}", static_cast<unsigned char>(byte));
  return out;
}

Json AnswerShape::Logprobs(const std::vector<ScoredToken>& tokens, Choice* choice) const {
  if (!logprobs_) return nullptr;
  if (kind_ == Kind::kChat) {
    const auto one = [this](int32_t id, float logprob) -> Json {
      Json bytes = Json::array();
      for (const char byte : host_.tokenizer().TokenBytes(id, true)) bytes.push_back(static_cast<unsigned char>(byte));
      return {{"token", Spelling(id)}, {"logprob", logprob}, {"bytes", std::move(bytes)}};
    };
    Json content = Json::array();
    for (const ScoredToken& token : tokens) {
      Json entry = one(token.id, token.logprob);
      entry["top_logprobs"] = Json::array();
      for (const auto& [id, logprob] : token.top) entry["top_logprobs"].push_back(one(id, logprob));
      content.push_back(std::move(entry));
    }
    return {{"content", std::move(content)}};
  }
  Json out = {{"tokens", Json::array()},
              {"token_logprobs", Json::array()},
              {"top_logprobs", Json::array()},
              {"text_offset", Json::array()}};
  for (const ScoredToken& token : tokens) {
    Json top;
    for (const auto& [id, logprob] : token.top) {
      const std::string spelling = Spelling(id);  // two tokens may have the same text: the likelier one stays
      if (!top.contains(spelling)) top[spelling] = logprob;
    }
    out["tokens"].push_back(Spelling(token.id));
    out["token_logprobs"].push_back(token.scored ? Json(token.logprob) : Json());
    out["top_logprobs"].push_back(std::move(top));
    out["text_offset"].push_back(choice->n_characters);
    for (const char byte : host_.tokenizer().TokenBytes(token.id)) {
      choice->n_characters += (static_cast<unsigned char>(byte) & 0xC0) != 0x80;
    }
  }
  return out;
}

Json AnswerShape::Usage() const {
  return {{"prompt_tokens", tally_.n_prompt()},
          {"completion_tokens", tally_.n_answer()},
          {"total_tokens", tally_.n_prompt() + tally_.n_answer()},
          {"prompt_tokens_details", {{"cached_tokens", tally_.n_cached()}}}};
}

Json AnswerShape::Head(bool chunk) const {
  const char* object = kind_ == Kind::kCompletion ? "text_completion"
                       : chunk                    ? "chat.completion.chunk"
                                                  : "chat.completion";
  return {{"id", id_},
          {"object", object},
          {"created", created_s_},
          {"model", host_.options().model_name},
          {"system_fingerprint", "weir-" + host_.fingerprint()}};
}

void AnswerShape::Add(size_t index, const AnswerEvent& event) {
  Choice& choice = choices_[index];
  if (!choice.begun) choice.text = echoes_[index / static_cast<size_t>(n_)];
  choice.begun = true;
  choice.text += event.text;
  choice.parts.Add(event.parts);
  AppendLists(Logprobs(event.tokens, &choice), &choice.logprobs);
  if (event.last) {
    choice.finish_reason = FinishReason(event.summary);
    tally_.Count(index, event.summary);
  }
}

Json AnswerShape::Whole() {
  Json out = Head(false);
  out["choices"] = Json::array();
  for (size_t i = 0; i < choices_.size(); ++i) {
    Choice& choice = choices_[i];
    Json one = {{"index", i}};
    if (kind_ == Kind::kChat) {
      one["message"] = choice.parts.Message();
    } else {
      one["text"] = std::move(choice.text);
    }
    one["logprobs"] = std::move(choice.logprobs);
    one["finish_reason"] = choice.finish_reason;
    out["choices"].push_back(std::move(one));
  }
  out["usage"] = Usage();
  out["timings"] = tally_.Timings();
  out["weir"] = tally_.memory();
  return out;
}

std::vector<Json> AnswerShape::Chunks(size_t index, const AnswerEvent& event) {
  Choice& choice = choices_[index];
  std::string text = event.text;
  const bool first = !choice.begun;
  choice.begun = true;
  if (first) text = echoes_[index / static_cast<size_t>(n_)] + text;
  std::vector<Json> out;
  const auto add = [&](Json content, Json logprobs, Json finish_reason) {
    Json chunk = Head(true);
    Json one = {{"index", index}};
    if (kind_ == Kind::kChat) {
      one["delta"] = std::move(content);
    } else {
      one["text"] = content.is_object() ? Json("") : std::move(content);
    }
    one["logprobs"] = std::move(logprobs);
    one["finish_reason"] = std::move(finish_reason);
    chunk["choices"] = Json::array({std::move(one)});
    if (include_usage_) chunk["usage"] = nullptr;
    out.push_back(std::move(chunk));
  };
  if (first && kind_ == Kind::kChat) add({{"role", "assistant"}, {"content", ""}}, nullptr, nullptr);
  std::vector<Json> contents;
  if (kind_ == Kind::kChat) contents = choice.parts.Deltas(event.parts);
  if (kind_ == Kind::kCompletion && !text.empty()) contents.emplace_back(text);
  if (contents.empty() && !event.tokens.empty() && logprobs_) {  // of what is not certain yet
    contents.push_back(kind_ == Kind::kChat ? Json{{"content", ""}} : Json(""));
  }
  Json logprobs = contents.empty() ? Json() : Logprobs(event.tokens, &choice);
  for (Json& content : contents) {
    add(std::move(content), std::exchange(logprobs, nullptr), nullptr);
    if (timings_per_token_) out.back()["timings"] = AnswerTally::TimingsSoFar(event);
  }
  if (event.last) {
    tally_.Count(index, event.summary);
    add(Json::object(), nullptr, FinishReason(event.summary));
    out.back()["timings"] = tally_.Timings();
    out.back()["weir"] = tally_.memory();
  }
  return out;
}

std::string AnswerShape::Stream(size_t index, const AnswerEvent& event) {
  std::string out;
  for (const Json& chunk : Chunks(index, event)) out += EventText(chunk);
  return out;
}

std::string AnswerShape::End() {
  std::string out;
  if (include_usage_) {
    Json chunk = Head(true);
    chunk["choices"] = Json::array();
    chunk["usage"] = Usage();
    out = EventText(chunk);
  }
  return out + "data: [DONE]\n\n";
}

std::string AnswerShape::Failed(const ApiError& error) { return EventText(error.Body()); }

}  // namespace weir
