#include "policy/policy.h"

#include <algorithm>
#include <charconv>
#include <cmath>

namespace weir {
namespace {

Status BadOption(const PolicyInfo& info, std::string_view key) {
  std::string known;
  for (const PolicyOptionInfo& option : info.options) known += (known.empty() ? "" : ", ") + std::string(option.key);
  return InvalidArgument("policy %s has no option '%.*s'; it takes: %s", info.name, static_cast<int>(key.size()), key.data(),
                         known.empty() ? "none" : known.c_str());
}

}  // namespace

const PolicyInfo* FindPolicy(std::string_view name) {
  for (const PolicyInfo* info : AllPolicyInfos()) {
    if (name == info->name) return info;
  }
  return nullptr;
}

Result<PolicySpec> ParsePolicySpec(std::string_view text) {
  const size_t colon = text.find(':');
  const std::string_view name = text.substr(0, colon);
  PolicySpec spec;
  spec.info = FindPolicy(name);
  if (spec.info == nullptr) {
    std::string known;
    for (const PolicyInfo* info : AllPolicyInfos()) known += (known.empty() ? "" : ", ") + std::string(info->name);
    return NotFound("no policy is called '%.*s'; there are: %s", static_cast<int>(name.size()), name.data(), known.c_str());
  }
  std::map<std::string, double> values;
  for (const PolicyOptionInfo& option : spec.info->options) values[option.key] = option.fallback;
  std::string_view rest = colon == std::string_view::npos ? std::string_view() : text.substr(colon + 1);
  while (!rest.empty()) {
    const size_t comma = rest.find(',');
    const std::string_view pair = rest.substr(0, comma);
    rest = comma == std::string_view::npos ? std::string_view() : rest.substr(comma + 1);
    const size_t equals = pair.find('=');
    if (equals == std::string_view::npos) {
      return InvalidArgument("policy option '%.*s' is not of the form key=value", static_cast<int>(pair.size()), pair.data());
    }
    const std::string_view key = pair.substr(0, equals), value = pair.substr(equals + 1);
    auto it = std::find_if(spec.info->options.begin(), spec.info->options.end(),
                           [key](const PolicyOptionInfo& option) { return key == option.key; });
    if (it == spec.info->options.end()) return BadOption(*spec.info, key);
    double number = 0;
    const auto [end, error] = std::from_chars(value.data(), value.data() + value.size(), number);
    if (error != std::errc() || end != value.data() + value.size() || !(number >= it->min && number <= it->max) ||
        (it->integral && number != std::floor(number))) {
      return InvalidArgument("policy option %s=%.*s: expected %s from %g to %g", it->key, static_cast<int>(value.size()),
                             value.data(), it->integral ? "a whole number" : "a number", it->min, it->max);
    }
    values[it->key] = number;
  }
  spec.text = spec.info->name;
  char separator = ':';
  for (const PolicyOptionInfo& option : spec.info->options) {
    spec.text += StrFormat(option.integral ? "%c%s=%.0f" : "%c%s=%.9g", separator, option.key, values[option.key]);
    separator = ',';
  }
  spec.options = PolicyOptions(std::move(values));
  return spec;
}

void KeepHeadAndTail(std::span<const SlotMeta> slots, int32_t n_head, int32_t n_keep, KeepSet* keep) {
  const int32_t n = static_cast<int32_t>(slots.size());
  keep->clear();
  int32_t room = n_keep;
  for (const SlotMeta& slot : slots) room -= slot.pinned;
  // Walking from the newest: everything that fits beside the pinned slots and the head.
  const int32_t head_end = std::min(n_head, n);
  int32_t head_kept = 0;
  for (int32_t s = 0; s < head_end && head_kept < room; ++s) head_kept += !slots[s].pinned;
  room -= head_kept;
  int32_t tail_begin = n;
  while (tail_begin > head_end && (slots[tail_begin - 1].pinned || room > 0)) {
    --tail_begin;
    room -= !slots[tail_begin].pinned;
  }
  for (int32_t s = 0; s < n; ++s) {
    const bool in_head = s < head_end && !slots[s].pinned && head_kept > 0;
    if (in_head) --head_kept;
    if (slots[s].pinned || in_head || s >= tail_begin) keep->push_back(s);
  }
}

}  // namespace weir
