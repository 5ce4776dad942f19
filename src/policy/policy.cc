// SPDX-License-Identifier: Apache-2.0
// The registry's look-up and the text form of a policy: name:key=value,key="text, with commas",profile=file.
#include "policy/policy.h"

#include <string>
#include <variant>
#include <vector>

#include "policy/profile.h"

namespace weir {
namespace {

OptionOwner OwnerOf(const PolicyInfo& info) { return {"policy", info.name, info.options}; }

// Applies a profile's options.
Status ApplyProfile(const std::string& path, PolicySpec* spec) {
  WEIR_ASSIGN_OR_RETURN(const Profile profile, ReadProfile(path));
  if (profile.policy != spec->info->name) {
    return InvalidArgument("profile {} is for policy {}, not {}", path, profile.policy, spec->info->name);
  }
  const OptionOwner owner = OwnerOf(*spec->info);
  for (const auto& [key, value] : profile.options) {
    const OptionInfo* option = owner.Find(key);
    Status status;
    if (option == nullptr) {
      status = owner.Unknown(key);
    } else if (const std::string* text = std::get_if<std::string>(&value);
               (text != nullptr) != (option->text != nullptr)) {
      status =
          InvalidArgument("policy option {}: expected a {}", option->key, option->text != nullptr ? "text" : "number");
    } else {
      const OptionValue given =
          text != nullptr ? OptionValue{*text, true} : OptionValue{NumberText(std::get<double>(value)), false};
      status = spec->options.Set(owner, *option, given);
    }
    if (!status.ok()) return InvalidArgument("profile {}: {}", path, status.message());
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

Result<PolicySpec> ParsePolicySpec(std::string_view text, Profiles profiles) {
  const size_t colon = text.find(':');
  const std::string_view name = text.substr(0, colon);
  PolicySpec spec;
  spec.info = FindPolicy(name);
  if (spec.info == nullptr) {
    std::string known;
    for (const PolicyInfo* info : AllPolicyInfos()) known += (known.empty() ? "" : ", ") + std::string(info->name);
    return NotFound("no policy is called '{}'; there are: {}", name, known);
  }
  const OptionOwner owner = OwnerOf(*spec.info);
  spec.options = Options::Defaults(owner);
  std::vector<GivenOption> given;
  if (colon != std::string_view::npos) {
    WEIR_ASSIGN_OR_RETURN(given, SplitOptions(owner, text.substr(colon + 1), "profile"));
  }
  // A profile is applied first, wherever it is in the text.
  for (const GivenOption& option : given) {
    if (option.option != nullptr) continue;
    if (profiles == Profiles::kRefused) {
      return InvalidArgument("policy option profile: files are not read here; write out the options");
    }
    if (option.value.text.empty() || option.value.text.find('\0') != std::string::npos) {
      return InvalidArgument("policy option profile: the file name is missing");
    }
    WEIR_RETURN_IF_ERROR(ApplyProfile(option.value.text, &spec));
  }
  for (const GivenOption& option : given) {
    if (option.option == nullptr) continue;
    WEIR_RETURN_IF_ERROR(spec.options.Set(owner, *option.option, option.value));
    spec.given.insert(option.option->key);
  }
  spec.text = spec.options.Describe(owner);
  return spec;
}

std::string OptionText(const PolicySpec& spec, const PolicyOptionInfo& option) { return spec.options.TextOf(option); }

Result<PolicySpec> WithOption(const PolicySpec& spec, std::string_view key, std::string_view value) {
  if (OwnerOf(*spec.info).Find(key) == nullptr) return OwnerOf(*spec.info).Unknown(key);
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
