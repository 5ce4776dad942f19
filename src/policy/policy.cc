// The registry's look-up and the text form of a policy: name:key=value,key="text, with commas",profile=file.
#include "policy/policy.h"

#include <algorithm>
#include <charconv>
#include <cmath>
#include <cstring>
#include <set>
#include <vector>

#include "policy/profile.h"

namespace weir {
namespace {

using Values = std::map<std::string, double>;
using Texts = std::map<std::string, std::string>;

Status BadOption(const PolicyInfo& info, std::string_view key) {
  std::string known;
  for (const PolicyOptionInfo& option : info.options) known += (known.empty() ? "" : ", ") + std::string(option.key);
  return InvalidArgument("policy %s has no option '%.*s'; it takes: %s", info.name, static_cast<int>(key.size()),
                         key.data(), known.empty() ? "none" : known.c_str());
}

// Reads one value from the front of `rest`, up to the comma that ends it.
struct Value {
  std::string text;
  bool quoted = false;
};

Result<Value> TakeValue(const char* key, std::string_view* rest) {
  Value value;
  if (rest->empty() || rest->front() != '"') {
    const size_t comma = std::min(rest->find(','), rest->size());
    value.text = rest->substr(0, comma);
    rest->remove_prefix(comma);
    if (value.text.empty()) return InvalidArgument("policy option %s has no value", key);
    return value;
  }
  value.quoted = true;
  for (size_t i = 1; i < rest->size(); ++i) {
    char c = (*rest)[i];
    if (c == '"') {
      rest->remove_prefix(i + 1);
      if (!rest->empty() && rest->front() != ',') {
        return InvalidArgument("policy option %s: something follows the closing quote", key);
      }
      return value;
    }
    if (c == '\\') {
      if (++i == rest->size()) break;
      c = (*rest)[i];
      if (c == 'n') {
        c = '\n';
      } else if (c != '"' && c != '\\') {
        return InvalidArgument("policy option %s: \\%c in quotes; only \\\", \\\\ and \\n have a meaning", key, c);
      }
    }
    value.text += c;
  }
  return InvalidArgument("policy option %s: a quote is not closed", key);
}

// The form TakeValue() reads back.
std::string Quoted(const std::string& text) {
  if (!text.empty() && text.find_first_of(",\"\\\n") == std::string::npos) return text;
  std::string out = "\"";
  for (char c : text) {
    if (c == '"' || c == '\\') out += '\\';
    if (c == '\n') {
      out += "\\n";
    } else {
      out += c;
    }
  }
  return out + '"';
}

// The shortest decimal form that reads back as the same number.
std::string NumberText(double value) {
  std::string text;
  for (int digits = 6; digits <= 17; ++digits) {
    text = StrFormat("%.*g", digits, value);
    double back = 0;
    std::from_chars(text.data(), text.data() + text.size(), back);
    if (back == value) break;
  }
  return text;
}

bool IsChoice(const char* choices, std::string_view word) {
  for (std::string_view rest = choices; !rest.empty();) {
    const size_t bar = std::min(rest.find('|'), rest.size());
    if (rest.substr(0, bar) == word) return true;
    rest.remove_prefix(std::min(bar + 1, rest.size()));
  }
  return false;
}

Status SetNumber(const PolicyOptionInfo& option, const Value& value, Values* values) {
  double number = 0;
  const char* end = value.text.data() + value.text.size();
  const auto [stop, error] = std::from_chars(value.text.data(), end, number);
  if (value.quoted || error != std::errc() || stop != end || !(number >= option.min && number <= option.max) ||
      (option.integral && number != std::floor(number))) {
    return InvalidArgument("policy option %s=%s: expected %s from %g to %g", option.key, value.text.c_str(),
                           option.integral ? "a whole number" : "a number", option.min, option.max);
  }
  (*values)[option.key] = number + 0.0;  // -0 becomes 0
  return Status();
}

Status SetText(const PolicyOptionInfo& option, const Value& value, Texts* texts) {
  if (std::memchr(value.text.data(), 0, value.text.size()) != nullptr) {
    return InvalidArgument("policy option %s holds a zero byte", option.key);
  }
  if (option.choices != nullptr && !IsChoice(option.choices, value.text)) {
    return InvalidArgument("policy option %s=%s: expected one of %s", option.key, value.text.c_str(), option.choices);
  }
  (*texts)[option.key] = value.text;
  return Status();
}

const PolicyOptionInfo* FindOption(const PolicyInfo& info, std::string_view key) {
  for (const PolicyOptionInfo& option : info.options) {
    if (key == option.key) return &option;
  }
  return nullptr;
}

// What a text says, before it is applied: a profile comes first, wherever it stands.
struct Given {
  std::vector<std::pair<const PolicyOptionInfo*, Value>> options;
  std::string profile;
};

// The first option of `rest`, and the comma behind it.
Status TakeOption(const PolicyInfo& info, std::string_view* rest, Given* given) {
  const size_t equals = rest->find('='), comma = rest->find(',');
  const std::string_view key = rest->substr(0, std::min(equals, comma));
  if (equals == std::string_view::npos || comma < equals) {
    return InvalidArgument("policy option '%.*s' is not of the form key=value", static_cast<int>(key.size()),
                           key.data());
  }
  if (key == "profile") {
    if (!given->profile.empty()) return InvalidArgument("policy option profile is given twice");
    rest->remove_prefix(equals + 1);
    WEIR_ASSIGN_OR_RETURN(const Value value, TakeValue("profile", rest));
    given->profile = value.text;
    if (given->profile.empty() || given->profile.find('\0') != std::string::npos) {
      return InvalidArgument("policy option profile: no name of a file");
    }
    return Status();
  }
  const PolicyOptionInfo* option = FindOption(info, key);
  if (option == nullptr) return BadOption(info, key);
  for (const auto& [earlier, value] : given->options) {
    if (earlier == option) return InvalidArgument("policy option %s is given twice", option->key);
  }
  rest->remove_prefix(equals + 1);
  WEIR_ASSIGN_OR_RETURN(Value value, TakeValue(option->key, rest));
  given->options.emplace_back(option, std::move(value));
  return Status();
}

Status ApplyProfile(const std::string& path, PolicySpec* spec, Values* values, Texts* texts) {
  WEIR_ASSIGN_OR_RETURN(const Profile profile, ReadProfile(path));
  if (profile.policy != spec->info->name) {
    return InvalidArgument("profile %s is one of policy %s, not of %s", path.c_str(), profile.policy.c_str(),
                           spec->info->name);
  }
  for (const auto& [key, value] : profile.options) {
    const PolicyOptionInfo* option = FindOption(*spec->info, key);
    Status status;
    if (option == nullptr) {
      status = BadOption(*spec->info, key);
    } else if (const std::string* text = std::get_if<std::string>(&value);
               (text != nullptr) != (option->text != nullptr)) {
      status =
          InvalidArgument("policy option %s: expected a %s", option->key, option->text != nullptr ? "text" : "number");
    } else if (text != nullptr) {
      status = SetText(*option, {*text, true}, texts);
    } else {
      status = SetNumber(*option, {NumberText(std::get<double>(value)), false}, values);
    }
    if (!status.ok()) return InvalidArgument("profile %s: %s", path.c_str(), status.message().c_str());
  }
  spec->profile = path;
  spec->profile_model = profile.model;
  spec->profile_pot = profile.pot;
  return Status();
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
    return NotFound("no policy is called '%.*s'; there are: %s", static_cast<int>(name.size()), name.data(),
                    known.c_str());
  }
  Values values;
  Texts texts;
  for (const PolicyOptionInfo& option : spec.info->options) {
    if (option.text != nullptr) {
      texts[option.key] = option.text;
    } else {
      values[option.key] = option.fallback;
    }
  }
  Given given;
  if (colon != std::string_view::npos) {
    for (std::string_view rest = text.substr(colon + 1);;) {
      if (rest.empty()) return InvalidArgument("policy %s: an option is missing at the end", spec.info->name);
      WEIR_RETURN_IF_ERROR(TakeOption(*spec.info, &rest, &given));
      if (rest.empty()) break;
      rest.remove_prefix(1);
    }
  }
  if (!given.profile.empty()) WEIR_RETURN_IF_ERROR(ApplyProfile(given.profile, &spec, &values, &texts));
  for (const auto& [option, value] : given.options) {
    WEIR_RETURN_IF_ERROR(option->text != nullptr ? SetText(*option, value, &texts)
                                                 : SetNumber(*option, value, &values));
    spec.given.insert(option->key);
  }
  spec.options = PolicyOptions(std::move(values), std::move(texts));
  spec.text = spec.info->name;
  char separator = ':';
  for (const PolicyOptionInfo& option : spec.info->options) {
    spec.text += separator + std::string(option.key) + '=' + OptionText(spec, option);
    separator = ',';
  }
  return spec;
}

std::string OptionText(const PolicySpec& spec, const PolicyOptionInfo& option) {
  return option.text != nullptr ? Quoted(spec.options.Text(option.key)) : NumberText(spec.options.Number(option.key));
}

Result<PolicySpec> WithOption(const PolicySpec& spec, std::string_view key, std::string_view value) {
  if (FindOption(*spec.info, key) == nullptr) return BadOption(*spec.info, key);
  std::string text = spec.info->name;
  char separator = ':';
  for (const PolicyOptionInfo& option : spec.info->options) {
    text +=
        separator + std::string(option.key) + '=' + (key == option.key ? std::string(value) : OptionText(spec, option));
    separator = ',';
  }
  WEIR_ASSIGN_OR_RETURN(PolicySpec out, ParsePolicySpec(text));
  out.given = spec.given;
  out.profile = spec.profile;
  out.profile_model = spec.profile_model;
  out.profile_pot = spec.profile_pot;
  return out;
}

}  // namespace weir
