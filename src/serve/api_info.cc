// What the server is and counts; tokens and text.
#include <charconv>
#include <cstdlib>
#include <span>

#include "serve/api.h"
#include "serve/page.h"
#include "text/stream.h"

namespace weir {

Json Api::ModelJson() const {
  const ModelConfig& config = host_.model().model().config();
  return {{"id", host_.options().model_name},
          {"object", "model"},
          {"created", 0},
          {"owned_by", "weir"},
          {"meta",
           {{"architecture", config.architecture},
            {"n_ctx_train", config.n_ctx_train},
            {"n_vocab", config.n_vocab},
            {"n_embd", config.n_embd},
            {"n_layers", config.n_layers},
            {"fingerprint", host_.fingerprint()}}}};
}

namespace {

// As it was given: 0.8, not the digits of the nearest binary number.
Json Decimal(float value) { return std::strtod(StrFormat("%g", value).c_str(), nullptr); }

// What holds where a request says nothing, under llama-server's names.
Json DefaultsJson(const AnswerDefaults& defaults) {
  const SamplerOptions& sampler = defaults.sampler;
  return {{"params",
           {{"n_predict", defaults.max_tokens},
            {"seed", defaults.seed ? Json(*defaults.seed) : Json(-1)},
            {"temperature", Decimal(sampler.temperature)},
            {"top_k", sampler.top_k},
            {"top_p", Decimal(sampler.top_p)},
            {"min_p", Decimal(sampler.min_p)},
            {"repeat_penalty", Decimal(sampler.repeat_penalty)},
            {"repeat_last_n", sampler.repeat_last_n}}}};
}

Json VisionJson(const Host& host) {
  if (host.eyes() == nullptr) return nullptr;
  const EncoderConfig& config = host.eyes()->config();
  return {{"projector", config.projector},
          {"tokens", host.eyes()->n_rows()},
          {"prune", host.eyes()->options().prune.info == nullptr ? Json() : Json(host.eyes()->options().prune.text)},
          {"max_side", host.eyes()->options().max_side},
          {"lanes", host.eyes()->options().lanes},
          {"frames_waiting", host.options().frames_waiting}};
}

// {"tokens":[1,2,...]}. As values of JSON the ids would take four times their memory.
std::string TokensText(std::span<const int32_t> ids, int32_t n_vocab) {
  std::string out = "{\"tokens\":[";
  out.reserve(out.size() + ids.size() * (std::to_string(n_vocab).size() + 1) + 4);
  char digits[16];
  for (size_t i = 0; i < ids.size(); ++i) {
    if (i > 0) out += ',';
    out.append(digits, std::to_chars(digits, std::end(digits), ids[i]).ptr);
  }
  out += "]}\n";
  return out;
}

}  // namespace

void Api::Page(const Call&, httplib::Response& response) {
  // Everything is in the page itself: nothing else may be loaded, and no other site may frame it.
  response.set_header("Content-Security-Policy",
                      "default-src 'none'; script-src 'unsafe-inline'; style-src 'unsafe-inline'; connect-src 'self'; "
                      "img-src 'self' data: blob:; media-src blob:; base-uri 'none'; form-action 'none'; "
                      "frame-ancestors 'none'");
  response.set_header("X-Content-Type-Options", "nosniff");
  response.set_header("Cache-Control", "no-cache");
  response.set_content(kPage.data(), kPage.size(), "text/html; charset=utf-8");
}

void Api::Health(const Call&, httplib::Response& response) { SendJson({{"status", "ok"}}, response); }

void Api::Props(const Call&, httplib::Response& response) {
  Json policies = Json::array();
  for (const PolicyInfo* policy : AllPolicyInfos()) {
    policies.push_back({{"name", policy->name}, {"summary", policy->summary}});
  }
  const SessionPlan& plan = host_.plan();
  const HostOptions& options = host_.options();
  SendJson({{"model", ModelJson()},
            {"chat_template", host_.chat() == nullptr ? Json() : Json(std::string(host_.chat()->name()))},
            {"policy", options.session.policy.text},
            {"policies", std::move(policies)},
            {"pot", plan.pot.n_slots},
            {"session_bytes", host_.session_bytes()},
            {"vision", VisionJson(host_)},
            {"default_generation_settings", DefaultsJson(options_.answers)},
            {"budget_bytes", host_.ledger().budget_bytes()},
            {"used_bytes", host_.ledger().used_bytes()},
            {"answer_pots", options.answer_pots},
            {"on_overflow", options.session.on_overflow == OnOverflow::kError ? "error" : "evict"},
            {"max_body_bytes", options_.http.max_body_bytes},
            {"snapshots", !options_.folder.empty()}},
           response);
}

void Api::MetricsText(const Call&, httplib::Response& response) {
  Gauges gauges;
  const Status status = host_.Call([&] {
    gauges = host_.ReadGauges();
    return Status();
  });
  if (!status.ok()) return SendError(FromStatus(status), response);
  response.set_content(host_.metrics().Text(gauges), "text/plain; version=0.0.4; charset=utf-8");
}

void Api::Models(const Call& call, httplib::Response& response) {
  Json model = ModelJson();
  // Without the key that there is, the name alone.
  if (!options_.api_keys.empty() && !call.http.has_header("Authorization")) model.erase("meta");
  SendJson({{"object", "list"}, {"data", Json::array({std::move(model)})}}, response);
}

void Api::Model(const Call& call, httplib::Response& response) {
  if (call.arguments[0] != host_.options().model_name) {
    return SendError({404, "model_not_found", "there is no model '" + call.arguments[0] + "' here"}, response);
  }
  SendJson(ModelJson(), response);
}

void Api::Tokenize(const Call& call, httplib::Response& response) {
  // What was parsed is gone before the answer is made.
  const auto ids = [&]() -> Result<std::vector<int32_t>> {
    WEIR_ASSIGN_OR_RETURN(const Json body, ParseJsonObject(call.body));
    Fields fields(body);
    EncodeOptions options;
    options.add_special = false;
    const Json* content = fields.Get("content");
    if (content == nullptr) fields.Fail("content", "is missing");
    if (content != nullptr && !content->is_string()) fields.Fail("content", "must be a string");
    fields.Get("add_special", &options.add_special);
    fields.Get("parse_special", &options.parse_special);
    WEIR_RETURN_IF_ERROR(fields.Done());
    return host_.tokenizer().Encode(content->get_ref<const std::string&>(), options);
  }();
  if (!ids.ok()) return SendError(FromStatus(ids.status()), response);
  SendJsonText(TokensText(*ids, host_.tokenizer().n_tokens()), response);
}

void Api::Detokenize(const Call& call, httplib::Response& response) {
  const auto ids = [&]() -> Result<std::vector<int32_t>> {
    WEIR_ASSIGN_OR_RETURN(const Json body, ParseJsonObject(call.body));
    Fields fields(body);
    const Json* tokens = fields.Get("tokens");
    if (tokens == nullptr) fields.Fail("tokens", "is missing");
    WEIR_RETURN_IF_ERROR(fields.Done());
    return TokenIds(*tokens, "tokens", host_.tokenizer().n_tokens());
  }();
  if (!ids.ok()) return SendError(FromStatus(ids.status()), response);
  // A token of a few characters may stand for a hundred spaces: what is told is bounded like what is sent.
  StreamDecoder decoder(host_.tokenizer(), {});
  std::string text;
  for (const int32_t id : *ids) {
    decoder.Push(id, &text);
    if (std::ssize(text) > options_.http.max_body_bytes) {
      return SendError({400, "",
                        StrFormat("'tokens' stand for more than %lld bytes of text: send fewer at once",
                                  static_cast<long long>(options_.http.max_body_bytes))},
                       response);
    }
  }
  decoder.Finish(&text);
  SendJson({{"content", std::move(text)}}, response);
}

void Api::ApplyTemplate(const Call& call, httplib::Response& response) {
  const auto body = ParseJsonObject(call.body);
  if (!body.ok()) return SendError(FromStatus(body.status()), response);
  const auto prompt = RenderChat(host_, *body);
  if (!prompt.ok()) return SendError(FromStatus(prompt.status()), response);
  SendJson({{"prompt", *prompt}}, response);
}

}  // namespace weir
