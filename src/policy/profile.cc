// SPDX-License-Identifier: Apache-2.0
#include "policy/profile.h"

#include <sys/stat.h>

#include <fmt/core.h>
#include <cerrno>
#include <cmath>
#include <cstdio>
#include <cstring>
#include <initializer_list>
#include <nlohmann/json.hpp>

namespace weir {
namespace {

using Json = nlohmann::ordered_json;

constexpr const char* kFormat = "weir-profile-1";

// The prefix of all errors in a profile's text.
Status Bad(const std::string& name, const std::string& what) { return Corrupt("profile {}: {}", name, what); }

Status CheckKeys(const Json& object, std::initializer_list<std::string_view> known, const std::string& where,
                 const std::string& name) {
  for (const auto& [key, value] : object.items()) {
    bool found = false;
    for (const std::string_view one : known) found = found || one == key;
    if (!found) return Bad(name, "unknown key '" + key + "'" + where);
  }
  return Status();
}

Result<std::string> TextOf(const Json& object, const char* key, const std::string& name) {
  const auto at = object.find(key);
  if (at == object.end() || !at->is_string()) return Bad(name, std::string("'") + key + "' is not a string");
  return at->get<std::string>();
}

Result<double> NumberOf(const Json& object, const char* key, const std::string& name) {
  const auto at = object.find(key);
  if (at == object.end() || !at->is_number()) return Bad(name, std::string("'") + key + "' is not a number");
  return at->get<double>();
}

Result<std::vector<ProfileFigure>> TasksOf(const Json& tasks, const std::string& name) {
  std::vector<ProfileFigure> out;
  for (const auto& [task, row] : tasks.items()) {
    if (!row.is_object()) return Bad(name, "task '" + task + "' is not an object");
    WEIR_RETURN_IF_ERROR(CheckKeys(row, {"default", "default_stderr", "found", "found_stderr", "gain", "gain_stderr"},
                                   " of a task", name));
    ProfileFigure figure;
    figure.name = task;
    WEIR_ASSIGN_OR_RETURN(figure.fallback, NumberOf(row, "default", name));
    WEIR_ASSIGN_OR_RETURN(figure.fallback_stderr, NumberOf(row, "default_stderr", name));
    WEIR_ASSIGN_OR_RETURN(figure.found, NumberOf(row, "found", name));
    WEIR_ASSIGN_OR_RETURN(figure.found_stderr, NumberOf(row, "found_stderr", name));
    WEIR_ASSIGN_OR_RETURN(figure.gain, NumberOf(row, "gain", name));
    WEIR_ASSIGN_OR_RETURN(figure.gain_stderr, NumberOf(row, "gain_stderr", name));
    out.push_back(std::move(figure));
  }
  return out;
}

// Whole numbers are written as such: 64, not 64.0.
Json NumberJson(double value) {
  if (value == std::floor(value) && std::fabs(value) < 0x1p53) return Json(static_cast<int64_t>(value));
  return Json(value);
}

}  // namespace

Result<Profile> ParseProfile(std::string_view json, const std::string& name) {
  if (static_cast<int64_t>(json.size()) > kMaxProfileBytes) {
    return Bad(name, fmt::format("longer than {} bytes", kMaxProfileBytes));
  }
  const Json root = Json::parse(json, nullptr, /*allow_exceptions=*/false);
  if (!root.is_object()) return Bad(name, "not a JSON object");
  WEIR_ASSIGN_OR_RETURN(const std::string format, TextOf(root, "format", name));
  if (format != kFormat) {
    return Unsupported("profile {} has the format '{}'; the known format is {}", name, format, kFormat);
  }
  WEIR_RETURN_IF_ERROR(
      CheckKeys(root, {"format", "policy", "model", "pot", "options", "seed", "kept", "tasks"}, "", name));
  Profile out;
  WEIR_ASSIGN_OR_RETURN(out.policy, TextOf(root, "policy", name));
  WEIR_ASSIGN_OR_RETURN(out.model, TextOf(root, "model", name));
  const auto pot = root.find("pot"), seed = root.find("seed"), options = root.find("options"), kept = root.find("kept"),
             tasks = root.find("tasks");
  if (pot == root.end() || !pot->is_number_unsigned() || pot->get<uint64_t>() < 1 || pot->get<uint64_t>() > INT32_MAX) {
    return Bad(name, "'pot' is not a number of slots");
  }
  out.pot = static_cast<int32_t>(pot->get<uint64_t>());
  if (seed != root.end()) {
    if (!seed->is_number_unsigned()) return Bad(name, "'seed' is not a whole number");
    out.seed = seed->get<uint64_t>();
  }
  if (options == root.end() || !options->is_object()) return Bad(name, "'options' is not an object");
  for (const auto& [key, value] : options->items()) {
    if (value.is_number()) {
      out.options[key] = value.get<double>();
    } else if (value.is_string()) {
      out.options[key] = value.get<std::string>();
    } else {
      return Bad(name, "option '" + key + "' is neither a number nor a string");
    }
  }
  if (kept != root.end()) {
    if (*kept != "found" && *kept != "default") return Bad(name, "'kept' is neither \"found\" nor \"default\"");
    out.kept_found = *kept == "found";
  }
  if (tasks != root.end()) {
    if (!tasks->is_object()) return Bad(name, "'tasks' is not an object");
    WEIR_ASSIGN_OR_RETURN(out.tasks, TasksOf(*tasks, name));
  }
  return out;
}

Result<Profile> ReadProfile(const std::string& path) {
  struct stat info {};
  if (stat(path.c_str(), &info) != 0) {
    return errno == ENOENT ? NotFound("there is no profile {}", path)
                           : IoError("cannot read profile {}: {}", path, std::strerror(errno));
  }
  if (!S_ISREG(info.st_mode)) return IoError("cannot read profile {}: not a regular file", path);
  std::FILE* file = std::fopen(path.c_str(), "rb");
  if (file == nullptr) return IoError("cannot read profile {}: {}", path, std::strerror(errno));
  std::string text(static_cast<size_t>(kMaxProfileBytes) + 1, '\0');
  const size_t n = std::fread(text.data(), 1, text.size(), file);
  const bool failed = std::ferror(file) != 0;
  const int code = errno;
  std::fclose(file);
  if (failed) return IoError("cannot read profile {}: {}", path, std::strerror(code));
  return ParseProfile(std::string_view(text).substr(0, n), path);
}

std::string ProfileText(const Profile& profile) {
  Json root;
  root["format"] = kFormat;
  root["policy"] = profile.policy;
  root["model"] = profile.model;
  root["pot"] = profile.pot;
  root["options"] = Json::object();
  for (const auto& [key, value] : profile.options) {
    if (const double* number = std::get_if<double>(&value)) {
      root["options"][key] = NumberJson(*number);
    } else {
      root["options"][key] = std::get<std::string>(value);
    }
  }
  root["seed"] = profile.seed;
  root["kept"] = profile.kept_found ? "found" : "default";
  root["tasks"] = Json::object();
  for (const ProfileFigure& figure : profile.tasks) {
    root["tasks"][figure.name] = {{"default", figure.fallback}, {"default_stderr", figure.fallback_stderr},
                                  {"found", figure.found},      {"found_stderr", figure.found_stderr},
                                  {"gain", figure.gain},        {"gain_stderr", figure.gain_stderr}};
  }
  // A model's name is untrusted and may not be UTF-8.
  return root.dump(2, ' ', false, Json::error_handler_t::replace) + "\n";
}

Status WriteProfile(const std::string& path, const Profile& profile) {
  const std::string text = ProfileText(profile), part = path + ".part";
  if (static_cast<int64_t>(text.size()) > kMaxProfileBytes) {
    return InvalidArgument("the profile has {} bytes; none may be longer than {}", text.size(), kMaxProfileBytes);
  }
  std::FILE* file = std::fopen(part.c_str(), "wb");
  if (file == nullptr) return IoError("cannot write profile {}: {}", path, std::strerror(errno));
  const bool written = std::fwrite(text.data(), 1, text.size(), file) == text.size();
  int code = errno;
  const bool closed = std::fclose(file) == 0;
  if (written) code = errno;
  if (written && closed && std::rename(part.c_str(), path.c_str()) == 0) return Status();
  if (written && closed) code = errno;
  std::remove(part.c_str());
  return IoError("cannot write profile {}: {}", path, std::strerror(code));
}

}  // namespace weir
