// SPDX-License-Identifier: Apache-2.0
// Options of plug-ins as a user writes them: "name:key=value,key="text, with commas"". Policies and pruners share the
// form.
//
// A value is a number, a whole number, or a text. A text with a comma is written in double quotes, where \" and
// \\ stand for themselves and \n for a new line.
#pragma once

#include <cstdint>
#include <map>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/status.h"

namespace weir {

// One option. A number, a whole number, or a text (`text` set: its default); `choices`, words separated by '|', limits
// a text. `tune` holds the values that `weir tune` tries, separated by '|': a coarse ladder around the default.
struct OptionInfo {
  const char* key;
  double fallback;
  double min, max;
  bool integral;
  const char* help;
  const char* tune = nullptr;  // nullptr: searched only when the user names values
  const char* text = nullptr;
  const char* choices = nullptr;
};
constexpr OptionInfo TextOption(const char* key, const char* fallback, const char* help,
                                const char* choices = nullptr) {
  return {key, 0, 0, 0, false, help, nullptr, fallback, choices};
}

// What the options belong to, for messages and look-ups.
struct OptionOwner {
  const char* kind;  // "policy"
  const char* name;  // "h2o"
  std::span<const OptionInfo> options;
  // nullptr when it has no option of that key.
  const OptionInfo* Find(std::string_view key) const;
  // kInvalidArgument that names the options there are.
  Status Unknown(std::string_view key) const;
};

// A value as it stood in the text, quotes removed.
struct OptionValue {
  std::string text;
  bool quoted = false;
};

// Checked values of every option of an owner.
class Options {
 public:
  Options() = default;
  static Options Defaults(const OptionOwner& owner);
  // kInvalidArgument when the value is no number where one is due, out of range, or none of the choices.
  Status Set(const OptionOwner& owner, const OptionInfo& option, const OptionValue& value);

  double Number(std::string_view key) const { return values_.find(std::string(key))->second; }
  int32_t Int(std::string_view key) const { return static_cast<int32_t>(Number(key)); }
  const std::string& Text(std::string_view key) const { return texts_.find(std::string(key))->second; }
  // An option's value as it would stand in the text.
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
// Splits "key=value,key=value". `extra` is a key that no option has and that is understood all the same.
// kInvalidArgument for an unknown key, one that is given twice, a value that is missing, a quote that is not closed.
Result<std::vector<GivenOption>> SplitOptions(const OptionOwner& owner, std::string_view list,
                                              std::string_view extra = "");

}  // namespace weir
