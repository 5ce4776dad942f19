// weir-plugin: api
// SPDX-License-Identifier: Apache-2.0
// llama-server's /infill: the text between two others, for editors. Only models that were trained for it have the
// control tokens that it needs.
//
// Shapes: tools/server/README.md of github.com/ggml-org/llama.cpp.
#include <fmt/core.h>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "serve/answer_sender.h"
#include "serve/answer_tally.h"
#include "serve/apis/api.h"
#include "serve/openai_request.h"
#include "serve/reply.h"

namespace weir {
namespace {

constexpr size_t kMaxFields = 64;

class InfillShape : public ReplyShape {
 public:
  // `fields`: what the answer shall have, "timings/prompt_n" for a field of a field; empty: everything.
  InfillShape(const Host& host, std::vector<std::string> fields, bool timings_per_token)
      : model_(host.options().model_name), fields_(std::move(fields)), timings_per_token_(timings_per_token) {}

  void Add(size_t index, const AnswerEvent& event) override {
    text_ += event.text;
    if (event.last) Count(index, event);
  }
  Json Whole() override { return Last(std::move(text_)); }
  std::string Stream(size_t index, const AnswerEvent& event) override {
    if (event.last) {
      Count(index, event);
      return EventText(Last(event.text));
    }
    if (event.text.empty()) return "";
    Json chunk = {{"index", 0}, {"content", event.text}, {"stop", false}};
    if (timings_per_token_) chunk["timings"] = AnswerTally::TimingsSoFar(event);
    return EventText(chunk);
  }
  std::string Failed(const ApiError& error) override { return EventText(error.Body()); }

 private:
  void Count(size_t index, const AnswerEvent& event) {
    tally_.Count(index, event.summary);
    stop_type_ = !event.summary.ended ? "limit" : event.summary.stop_text ? "word" : "eos";
  }
  Json Last(std::string text) const {
    Json all = {{"index", 0},
                {"content", std::move(text)},
                {"stop", true},
                {"model", model_},
                {"stop_type", stop_type_},
                {"tokens_predicted", tally_.n_answer()},
                {"tokens_evaluated", tally_.n_prompt()},
                {"tokens_cached", tally_.n_cached()},
                {"timings", tally_.Timings()},
                {"weir", tally_.memory()}};
    if (fields_.empty()) return all;
    Json out = Json::object();
    for (const std::string& field : fields_) {
      const size_t slash = field.find('/');
      const Json* value = Find(all, field.substr(0, slash));
      if (value != nullptr && slash != field.npos) value = Find(*value, field.substr(slash + 1));
      if (value != nullptr) out[field] = *value;
    }
    return out;
  }
  static const Json* Find(const Json& object, const std::string& key) {
    const auto it = object.find(key);
    return it == object.end() ? nullptr : &*it;
  }

  const std::string model_;
  const std::vector<std::string> fields_;
  const bool timings_per_token_;
  std::string text_;
  const char* stop_type_ = "limit";
  AnswerTally tally_;
};

// The control token of that part: as the file names it, or by its well-known spelling. -1: there is none.
int32_t ControlToken(const Host& host, const char* name, const char* old_name, const char* spelling,
                     const char* other_spelling) {
  const Tokenizer& tokenizer = host.tokenizer();
  for (const char* key : {name, old_name}) {
    const auto id = host.model().file().IntOr(fmt::format("tokenizer.ggml.{}_token_id", key), -1);
    if (id.ok() && *id >= 0 && *id < tokenizer.n_tokens()) return static_cast<int32_t>(*id);
  }
  for (const char* text : {spelling, other_spelling}) {
    const std::vector<int32_t> ids = tokenizer.Encode(text, {.add_special = false, .parse_special = true});
    if (ids.size() == 1 && tokenizer.Type(ids[0]) == TokenType::kControl) return ids[0];
  }
  return -1;
}

void Handle(const Call& call, httplib::Response& response) {
  const auto json = ParseJsonObject(call.body);
  if (!json.ok()) return SendError(json.status(), response);
  const int32_t pre = ControlToken(call.host, "fim_pre", "prefix", "<|fim_prefix|>", "<fim_prefix>"),
                suf = ControlToken(call.host, "fim_suf", "suffix", "<|fim_suffix|>", "<fim_suffix>"),
                mid = ControlToken(call.host, "fim_mid", "middle", "<|fim_middle|>", "<fim_middle>");
  if (pre < 0 || suf < 0 || mid < 0) {
    return SendError({400, "unsupported",
                      "this model cannot fill in text: its vocabulary has no tokens for it; use /v1/completions"},
                     response);
  }
  Json body = *json;
  const auto take = [&](const char* key) -> Result<std::string> {
    const Json value = body.value(key, Json());
    body.erase(key);
    if (value.is_null()) return std::string();
    if (!value.is_string()) return InvalidArgument("'{}' must be a string", key);
    return value.get<std::string>();
  };
  // Other files for the model to look at come first.
  const auto extra = [&]() -> Result<std::string> {
    const Json list = body.value("input_extra", Json::array());
    body.erase("input_extra");
    std::string out;
    for (const Json& file : list) {
      if (!list.is_array() || !file.is_object() || !file.value("text", Json()).is_string()) {
        return InvalidArgument("'input_extra' must be a list of {{\"filename\", \"text\"}}");
      }
      out += file["text"].get<std::string>() + "\n";
    }
    return out;
  };
  const auto prefix = take("input_prefix"), suffix = take("input_suffix"), prompt = take("prompt"), files = extra();
  for (const auto* one : {&prefix, &suffix, &prompt, &files}) {
    if (!one->ok()) return SendError(one->status(), response);
  }
  if (body.contains("n_predict")) {
    const Json limit = body["n_predict"];
    body["max_tokens"] = limit;
    body.erase("n_predict");
  }
  std::vector<std::string> fields;
  const Json wished = body.value("response_fields", Json());
  if (!wished.is_null() && (!wished.is_array() || wished.size() > kMaxFields)) {
    return SendError(InvalidArgument("'response_fields' must be a list of at most {} names", kMaxFields), response);
  }
  for (const Json& field : wished) {
    if (!field.is_string()) return SendError(InvalidArgument("'response_fields' must be a list of names"), response);
    fields.push_back(field.get<std::string>());
  }
  // Editors send the samplers of their own choice; ours are fixed.
  for (const char* done : {"n_indent", "t_max_prompt_ms", "t_max_predict_ms", "response_fields", "samplers"}) {
    body.erase(done);
  }
  const Tokenizer& tokenizer = call.host.tokenizer();
  std::vector<int32_t> ids;
  const auto add = [&](int32_t control, const std::string& text) {
    if (control >= 0) ids.push_back(control);
    const std::vector<int32_t> more = tokenizer.Encode(text, {.add_special = false});
    ids.insert(ids.end(), more.begin(), more.end());
  };
  if (tokenizer.add_bos() && tokenizer.bos_id() >= 0) ids.push_back(tokenizer.bos_id());
  add(-1, *files);
  add(pre, *prefix);
  add(suf, *suffix);
  add(mid, *prompt);
  body["prompt"] = std::vector<uint32_t>(ids.begin(), ids.end());
  auto request = ParseCompletion(call.host, body, call.options.answers);
  if (!request.ok()) return SendError(request.status(), response);
  if (request->n != 1) return SendError(InvalidArgument("'n' must be 1"), response);
  auto shape = std::make_unique<InfillShape>(call.host, std::move(fields), request->timings_per_token);
  SendAnswers(call.host, "", *std::move(request), std::move(shape), response);
}

constexpr RouteInfo kRoutes[] = {{.method = "POST", .path = "/infill", .handle = Handle}};

}  // namespace

extern const ApiInfo kInfill;
const ApiInfo kInfill = {.name = "llama-server's infill", .routes = kRoutes};

}  // namespace weir
