// SPDX-License-Identifier: Apache-2.0
// Plug-in options in the user's syntax: "name:key=value,key="text, with commas"". Policies and pruners share the
// syntax.
//
// A value is a number, a whole number, or a text. A text with a comma is written in double quotes, with the escapes \",
// \\ and \n.
#pragma once

#include <cstdint>
#include <map>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/status.h"

namespace weir {

// One option: a number, a whole number, or a text (when `text` is set, which is its default); `choices`, words
// separated by '|', limits a text. `tune` holds the values that `weir tune` tries, separated by '|': a coarse ladder
// around the default.
struct OptionInfo {
  const char* key;
  double fallback;
  double min, max;
  bool integral;
  const char* help;
  const char* tune = nullptr;  // nullptr: tuned only when the user lists values
  const char* text = nullptr;
  const char* choices = nullptr;
};
constexpr OptionInfo TextOption(const char* key, const char* fallback, const char* help,
                                const char* choices = nullptr) {
  return {key, 0, 0, 0, false, help, nullptr, fallback, choices};
}

// The owner of the options, for messages and look-ups.
struct OptionOwner {
  const char* kind;  // "policy"
  const char* name;  // "h2o"
  std::span<const OptionInfo> options;
  // nullptr when there is no option with that key.
  const OptionInfo* Find(std::string_view key) const;
  // kInvalidArgument that lists the known options.
  Status Unknown(std::string_view key) const;
};

// A value as written in the text, without quotes.
struct OptionValue {
  std::string text;
  bool quoted = false;
};

// Checked values of all options of an owner.
class Options {
 public:
  Options() = default;
  static Options Defaults(const OptionOwner& owner);
  // kInvalidArgument when the value is not a number where one is required, out of range, or not one of the choices.
  Status Set(const OptionOwner& owner, const OptionInfo& option, const OptionValue& value);

  double Number(std::string_view key) const { return values_.find(std::string(key))->second; }
  int32_t Int(std::string_view key) const { return static_cast<int32_t>(Number(key)); }
  const std::string& Text(std::string_view key) const { return texts_.find(std::string(key))->second; }
  // An option's value as it would be written in the text.
  std::string TextOf(const OptionInfo& option) const;
  // "name:key=value,...": every option with its value.
  std::string Describe(const OptionOwner& owner) const;

 private:
  std::map<std::string, double> values_;
  std::map<std::string, std::string> texts_;
};

// The shortest decimal form that reads back as the same number.
std::string NumberText(double value);

struct GivenOption {
  const OptionInfo* option;  // nullptr: the extra key
  OptionValue value;
};
// Splits "key=value,key=value". `extra` is a key that is accepted although no option has it. kInvalidArgument for an
// unknown key, a duplicate key, a missing value, or an unclosed quote.
Result<std::vector<GivenOption>> SplitOptions(const OptionOwner& owner, std::string_view list,
                                              std::string_view extra = "");

}  // namespace weir
