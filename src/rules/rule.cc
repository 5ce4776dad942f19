// SPDX-License-Identifier: Apache-2.0
#include "rules/rule.h"

#include <algorithm>

#include "base/utf8.h"

namespace weir {
namespace {

constexpr std::string_view kArrow = "=>";

std::string_view Trim(std::string_view text) {
  const size_t first = text.find_first_not_of(" \t\r\n");
  if (first == std::string_view::npos) return {};
  return text.substr(first, text.find_last_not_of(" \t\r\n") - first + 1);
}

// Its range is that of CheckTuning().
void GetNumber(const char* key, double* out, Fields* fields) {
  const Json* const value = fields->Get(key);
  if (value == nullptr) return;
  if (!value->is_number()) return fields->Fail(key, "must be a number");
  *out = value->get<double>();
}

}  // namespace

Result<Rule> ParseRule(std::string_view when) {
  if (when.size() > kMaxRuleBytes) {
    return InvalidArgument("a rule of {} bytes: at most {} are possible", when.size(), kMaxRuleBytes);
  }
  if (ValidUtf8Prefix(when) != when.size()) return InvalidArgument("a rule whose text is not UTF-8");
  Rule out;
  const size_t arrow = when.rfind(kArrow);
  out.text = Trim(when.substr(0, arrow));
  if (arrow != std::string_view::npos) {
    out.answer = Trim(when.substr(arrow + kArrow.size()));
    if (out.text.empty() || out.answer.empty()) {
      return InvalidArgument("a rule with => has a question before it and an answer after it");
    }
  }
  if (out.text.empty()) return InvalidArgument("a rule without words; state what it watches for");
  // Spaces around the arrow may make it longer, and what is saved must be readable again.
  if (const size_t n = out.when().size(); n > kMaxRuleBytes) {
    return InvalidArgument("a rule of {} bytes, with spaces around its arrow: at most {} are possible", n,
                           kMaxRuleBytes);
  }
  return out;
}

Status CheckRuleId(std::string_view id) {
  const bool plain = std::ranges::all_of(id, [](char c) {
    return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '-' || c == '_';
  });
  if (id.empty() || id.size() > 64 || !plain) {
    return InvalidArgument("a rule's id has 1 to 64 letters, digits, - and _");
  }
  return Status();
}

Result<Rule> RuleFromJson(const Json& json) {
  if (!json.is_object()) return InvalidArgument("a rule is an object with the field 'when'");
  Fields fields(json);
  std::string when, id, webhook;
  RuleTuning tuning;
  int64_t begin = tuning.n_begin, end = tuning.n_end, calibrate = tuning.n_calibrate;
  fields.Get("id", &id);
  fields.Get("when", &when);
  fields.Get("webhook", &webhook);
  if (webhook.size() > kMaxWebhookBytes) fields.Fail("webhook", "is too long for an address");
  GetNumber("on", &tuning.on, &fields);
  GetNumber("off", &tuning.off, &fields);
  GetNumber("least", &tuning.least, &fields);
  fields.Get("begin", &begin, 1, 1 << 20);
  fields.Get("end", &end, 1, 1 << 20);
  fields.Get("calibrate", &calibrate, 1, RuleTracker::kUsual);
  fields.Get("cooldown_ms", &tuning.cooldown_ms, 0, int64_t{1} << 50);
  WEIR_RETURN_IF_ERROR(fields.Done());
  if (!fields.Has("when")) return InvalidArgument("'when' is missing: what the rule watches for");
  WEIR_ASSIGN_OR_RETURN(Rule out, ParseRule(when));
  if (fields.Has("id")) WEIR_RETURN_IF_ERROR(CheckRuleId(id));
  out.id = std::move(id);
  out.webhook = std::move(webhook);
  tuning.n_begin = static_cast<int32_t>(begin);
  tuning.n_end = static_cast<int32_t>(end);
  tuning.n_calibrate = static_cast<int32_t>(calibrate);
  WEIR_RETURN_IF_ERROR(CheckTuning(tuning));
  out.tuning = tuning;
  return out;
}

Json ToJson(const Rule& rule) {
  const RuleTuning& t = rule.tuning;
  Json out = {{"id", rule.id},  {"when", rule.when()},        {"on", t.on},
              {"off", t.off},   {"least", t.least},           {"begin", t.n_begin},
              {"end", t.n_end}, {"calibrate", t.n_calibrate}, {"cooldown_ms", t.cooldown_ms}};
  if (!rule.webhook.empty()) out["webhook"] = rule.webhook;
  return out;
}

}  // namespace weir
