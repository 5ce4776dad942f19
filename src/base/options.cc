// SPDX-License-Identifier: Apache-2.0
#include "base/options.h"

#include <fmt/core.h>
#include <algorithm>
#include <charconv>
#include <cmath>

namespace weir {
namespace {

// Reads one value from the front of `rest`, up to the comma that ends it.
Result<OptionValue> TakeValue(const char* kind, const std::string& key, std::string_view* rest) {
  OptionValue value;
  if (rest->empty() || rest->front() != '"') {
    const size_t comma = std::min(rest->find(','), rest->size());
    value.text = rest->substr(0, comma);
    rest->remove_prefix(comma);
    if (value.text.empty()) return InvalidArgument("{} option {} has no value", kind, key);
    return value;
  }
  value.quoted = true;
  for (size_t i = 1; i < rest->size(); ++i) {
    char c = (*rest)[i];
    if (c == '"') {
      rest->remove_prefix(i + 1);
      if (!rest->empty() && rest->front() != ',') {
        return InvalidArgument("{} option {}: something follows the closing quote", kind, key);
      }
      return value;
    }
    if (c == '\\') {
      if (++i == rest->size()) break;
      c = (*rest)[i];
      if (c == 'n') {
        c = '\n';
      } else if (c != '"' && c != '\\') {
        return InvalidArgument("{} option {}: \\{} in quotes; only \\\", \\\\ and \\n are escapes", kind, key, c);
      }
    }
    value.text += c;
  }
  return InvalidArgument("{} option {}: a quote is not closed", kind, key);
}

// The form that TakeValue() reads.
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

bool IsChoice(const char* choices, std::string_view word) {
  for (std::string_view rest = choices; !rest.empty();) {
    const size_t bar = std::min(rest.find('|'), rest.size());
    if (rest.substr(0, bar) == word) return true;
    rest.remove_prefix(std::min(bar + 1, rest.size()));
  }
  return false;
}

}  // namespace

const OptionInfo* OptionOwner::Find(std::string_view key) const {
  for (const OptionInfo& option : options) {
    if (key == option.key) return &option;
  }
  return nullptr;
}

Status OptionOwner::Unknown(std::string_view key) const {
  std::string known;
  for (const OptionInfo& option : options) known += (known.empty() ? "" : ", ") + std::string(option.key);
  return InvalidArgument("{} {} has no option '{}'; it takes: {}", kind, name, key, known.empty() ? "none" : known);
}

Options Options::Defaults(const OptionOwner& owner) {
  Options out;
  for (const OptionInfo& option : owner.options) {
    if (option.text != nullptr) {
      out.texts_[option.key] = option.text;
    } else {
      out.values_[option.key] = option.fallback;
    }
  }
  return out;
}

Status Options::Set(const OptionOwner& owner, const OptionInfo& option, const OptionValue& value) {
  if (option.text != nullptr) {
    if (value.text.find('\0') != std::string::npos) {
      return InvalidArgument("{} option {} contains a zero byte", owner.kind, option.key);
    }
    if (option.choices != nullptr && !IsChoice(option.choices, value.text)) {
      return InvalidArgument("{} option {}={}: expected one of {}", owner.kind, option.key, value.text, option.choices);
    }
    texts_[option.key] = value.text;
    return Status();
  }
  double number = 0;
  const char* end = value.text.data() + value.text.size();
  const auto [stop, error] = std::from_chars(value.text.data(), end, number);
  if (value.quoted || error != std::errc() || stop != end || !(number >= option.min && number <= option.max) ||
      (option.integral && number != std::floor(number))) {
    return InvalidArgument("{} option {}={}: expected {} from {:g} to {:g}", owner.kind, option.key, value.text,
                           option.integral ? "a whole number" : "a number", option.min, option.max);
  }
  values_[option.key] = number + 0.0;  // -0 becomes 0
  return Status();
}

std::string Options::TextOf(const OptionInfo& option) const {
  return option.text != nullptr ? Quoted(Text(option.key)) : NumberText(Number(option.key));
}

std::string Options::Describe(const OptionOwner& owner) const {
  std::string text = owner.name;
  char separator = ':';
  for (const OptionInfo& option : owner.options) {
    text += separator + std::string(option.key) + '=' + TextOf(option);
    separator = ',';
  }
  return text;
}

std::string NumberText(double value) {
  std::string text;
  for (int digits = 6; digits <= 17; ++digits) {
    text = fmt::format("{:.{}g}", value, digits);
    double back = 0;
    std::from_chars(text.data(), text.data() + text.size(), back);
    if (back == value) break;
  }
  return text;
}

Result<std::vector<GivenOption>> SplitOptions(const OptionOwner& owner, std::string_view list, std::string_view extra) {
  std::vector<GivenOption> out;
  for (std::string_view rest = list;;) {
    if (rest.empty()) return InvalidArgument("{} {}: an option is missing at the end", owner.kind, owner.name);
    const size_t equals = rest.find('='), comma = rest.find(',');
    const std::string key(rest.substr(0, std::min(equals, comma)));
    if (equals == std::string_view::npos || comma < equals) {
      return InvalidArgument("{} option '{}' is not of the form key=value", owner.kind, key);
    }
    const bool is_extra = !extra.empty() && key == extra;
    const OptionInfo* option = is_extra ? nullptr : owner.Find(key);
    if (option == nullptr && !is_extra) return owner.Unknown(key);
    for (const GivenOption& earlier : out) {
      if (earlier.option == option) return InvalidArgument("{} option {} is given twice", owner.kind, key);
    }
    rest.remove_prefix(equals + 1);
    WEIR_ASSIGN_OR_RETURN(OptionValue value, TakeValue(owner.kind, key, &rest));
    out.push_back({option, std::move(value)});
    if (rest.empty()) return out;
    rest.remove_prefix(1);
  }
}

}  // namespace weir
