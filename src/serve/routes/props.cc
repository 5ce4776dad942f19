// weir-plugin: route
// SPDX-License-Identifier: Apache-2.0
// The server's properties and its default settings.
#include <fmt/core.h>
#include <algorithm>
#include <cstdlib>
#include <utility>

#include "serve/reply.h"
#include "serve/routes/common.h"
#include "serve/routes/route.h"

namespace weir {
namespace {

// Shortest form: 0.8, not the digits of the nearest binary number.
Json Decimal(float value) { return std::strtod(fmt::format("{:g}", value).c_str(), nullptr); }

// The defaults for requests, with llama-server's names.
Json DefaultsJson(const AnswerDefaults& defaults, int64_t pot) {
  const SamplerOptions& sampler = defaults.sampler;
  return {{"n_ctx", pot},
          {"params",
           {{"n_predict", defaults.max_tokens},
            {"seed", defaults.seed ? Json(*defaults.seed) : Json(-1)},
            {"temperature", Decimal(sampler.temperature)},
            {"top_k", sampler.top_k},
            {"top_p", Decimal(sampler.top_p)},
            {"min_p", Decimal(sampler.min_p)},
            {"repeat_penalty", Decimal(sampler.repeat_penalty)},
            {"repeat_last_n", sampler.repeat_last_n}}}};
}

std::string TextOf(const Tokenizer& tokenizer, int32_t id) { return id < 0 ? "" : tokenizer.TokenText(id); }

Json VisionJson(const Host& host) {
  const SharedVision* const vision = host.vision();
  if (vision == nullptr) return nullptr;
  const PrunerSpec& prune = vision->encoder->pruner();
  return {{"projector", vision->encoder->config().projector},
          {"tokens", vision->encoder->n_rows()},
          {"prune", prune.info == nullptr ? Json() : Json(prune.text)},
          {"max_side", vision->lanes->options().max_side},
          {"lanes", vision->lanes->options().lanes},
          {"frames_waiting", host.options().frames_waiting}};
}

Json RecallJson(const Host& host) {
  const RecallStore& store = host.recall();
  if (!store.allowed()) return nullptr;
  Json selectors = Json::array();
  for (const SelectorInfo* selector : AllSelectorInfos()) {
    if (selector->exam) continue;
    selectors.push_back({{"name", selector->name}, {"summary", selector->summary}});
  }
  const RecallOptions& defaults = store.defaults();
  return {{"selector", defaults.on() ? defaults.spec.text : "off"},
          {"selectors", std::move(selectors)},
          {"disk", std::min(defaults.disk_bytes, store.disk_total())},
          {"disk_total", store.disk_total()},
          {"disk_reserved", store.disk_reserved()}};
}

// The template's program, as llama-server has it; the name of one that has none here. null: no chats.
Json ChatTemplateJson(const Host& host) {
  if (host.chat() == nullptr) return nullptr;
  const std::string& given = host.options().chat_template;
  if (IsChatProgram(given)) return given;
  const auto program = host.model().file().StringOr("tokenizer.chat_template", "");
  if (given.empty() && program.ok() && !program->empty()) return *program;
  return std::string(host.chat()->name());
}

// What the template knows beside messages of a user and an assistant, with llama-server's names.
Json CapsJson(const Host& host) {
  const ChatTemplate* const chat = host.chat();
  const bool tools = chat != nullptr && chat->Reads("tools");
  return {{"supports_tools", tools},
          {"supports_tool_calls", chat != nullptr && chat->Reads("tool_calls")},
          {"supports_parallel_tool_calls", tools}};
}

void Handle(const Call& call, httplib::Response& response) {
  Json policies = Json::array();
  for (const PolicyInfo* policy : AllPolicyInfos()) {
    policies.push_back({{"name", policy->name}, {"summary", policy->summary}});
  }
  const SessionPlan& plan = call.host.plan();
  const HostOptions& options = call.host.options();
  SendJson({{"model", ModelJson(call.host)},
            {"chat_template", ChatTemplateJson(call.host)},
            {"chat_template_name", call.host.chat() == nullptr ? Json() : Json(std::string(call.host.chat()->name()))},
            {"chat_template_caps", CapsJson(call.host)},
            {"policy", options.session.policy.text},
            {"policies", std::move(policies)},
            {"pot", plan.pot_slots},
            {"session_bytes", call.host.session_bytes()},
            {"vision", VisionJson(call.host)},
            {"default_generation_settings", DefaultsJson(call.options.answers, plan.pot_slots)},
            {"budget_bytes", call.host.ledger().budget_bytes()},
            {"used_bytes", call.host.ledger().used_bytes()},
            {"answer_pots", options.answer_pots},
            {"on_overflow", options.session.on_overflow == OnOverflow::kError ? "error" : "evict"},
            {"max_body_bytes", call.options.http.max_body_bytes},
            {"recall", RecallJson(call.host)},
            {"snapshots", !call.options.folder.empty()},
            // As llama-server has them.
            {"total_slots", options.answer_pots},
            {"model_alias", options.model_name},
            {"modalities", {{"vision", call.host.vision() != nullptr}, {"audio", false}}},
            {"bos_token", TextOf(call.host.tokenizer(), call.host.tokenizer().bos_id())},
            {"eos_token", TextOf(call.host.tokenizer(), call.host.tokenizer().eos_id())}},
           response);
}

}  // namespace

extern const RouteInfo kProps;
const RouteInfo kProps = {
    .method = "GET",
    .path = "/props",
    .handle = Handle,
};

}  // namespace weir
