// SPDX-License-Identifier: Apache-2.0
// Profiles: a policy's options found by `weir tune`, in a small JSON file. `--policy NAME:profile=FILE` reads one
// (ParsePolicySpec in policy/policy.h).
//
//   {"format": "weir-profile-1",
//    "policy": "inf_mllm",                  name of the policy; no other one takes the file
//    "model": "SmolLM2 135M Instruct",      what it was tuned with: warns if another model or pot runs, no error
//    "pot": 512,                            slots per layer and head
//    "options": {"recent": 32, "b": 0.001}, numbers and texts; what is left out has the policy's own default
//    "seed": 0,
//    "kept": "found",                       or "default": nothing was found that is better beyond its own error
//    "tasks": {"objective": {"default": 1.9, "default_stderr": 0.1, "found": 1.7, "found_stderr": 0.1,
//                            "gain": 0.2, "gain_stderr": 0.03}, ...}}    measured on held-out material
//
// `kept` and `tasks` are informational: nothing depends on them. A key that is not listed here is an error.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <string_view>
#include <variant>
#include <vector>

#include "base/status.h"

namespace weir {

// One row of `tasks`: means over trials and their standard errors; `gain` is default - found, trial by trial.
struct ProfileFigure {
  std::string name;
  double fallback = 0, fallback_stderr = 0, found = 0, found_stderr = 0, gain = 0, gain_stderr = 0;
};

struct Profile {
  std::string policy, model;
  int32_t pot = 0;
  std::map<std::string, std::variant<double, std::string>> options;
  uint64_t seed = 0;
  bool kept_found = false;
  std::vector<ProfileFigure> tasks;
};

// The maximum size of a profile; no more of a file is read.
inline constexpr int64_t kMaxProfileBytes = 1 << 16;

// `name` is used in messages. kCorrupt: not a JSON object of this form; kUnsupported: another version. Does not check
// whether the options exist and their values are allowed: the policy does.
Result<Profile> ParseProfile(std::string_view json, const std::string& name);
// kNotFound: no such file; kIo: not readable, or not a regular file (a policy may be parsed more than once, a pipe
// cannot be).
Result<Profile> ReadProfile(const std::string& path);

std::string ProfileText(const Profile& profile);
// Writes to `path`.part and renames it: readers of `path` see either the old file or the complete new one. kIo.
Status WriteProfile(const std::string& path, const Profile& profile);

}  // namespace weir
