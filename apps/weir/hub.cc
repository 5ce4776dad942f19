// SPDX-License-Identifier: Apache-2.0
#include "hub.h"
#include "base/ascii.h"

#include <fmt/core.h>
#include <spawn.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cctype>
#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <fstream>

#include "common.h"
#include "io/gguf_format.h"
#include "media/child.h"
#include "print.h"

namespace weir::app {
namespace {

namespace fs = std::filesystem;
constexpr size_t kMostNameBytes = 96, kMostFileBytes = 256;
constexpr int kMostEntries = 10000, kMostFolders = 3;  // of a repository's cache
constexpr size_t kSha256Digits = 64;

bool IsNameLetter(char c) {
  return std::isalnum(static_cast<unsigned char>(c)) != 0 || c == '.' || c == '_' || c == '-';
}

// One part of a name on the site: it becomes a folder's name here and an argument of a program.
bool IsName(std::string_view name) {
  return !name.empty() && name.size() <= kMostNameBytes && name[0] != '.' && name[0] != '-' &&
         std::all_of(name.begin(), name.end(), IsNameLetter) && name.find("..") == std::string_view::npos;
}

bool EndsInGguf(std::string_view name) {
  constexpr std::string_view kEnd = ".gguf";
  if (name.size() <= kEnd.size()) return false;
  name.remove_prefix(name.size() - kEnd.size());
  return std::equal(kEnd.begin(), kEnd.end(), name.begin(), [](char a, char b) { return a == AsciiLower(b); });
}

std::string_view Base(std::string_view name) { return name.substr(name.find_last_of('/') + 1); }

std::string Environment(const char* name) {
  const char* value = std::getenv(name);
  return value != nullptr ? value : "";
}

std::string UserCache() {
  if (const std::string cache = Environment("XDG_CACHE_HOME"); !cache.empty()) return cache;
  return Environment("HOME") + "/.cache";
}

std::string HubCache() {
  if (const std::string cache = Environment("HF_HUB_CACHE"); !cache.empty()) return cache;
  if (const std::string home = Environment("HF_HOME"); !home.empty()) return home + "/hub";
  return UserCache() + "/huggingface/hub";
}

std::string LlamaCache() {
  if (const std::string cache = Environment("LLAMA_CACHE"); !cache.empty()) return cache;
  return UserCache() + "/llama.cpp";
}

struct Found {
  std::string name, path;  // in the repository; here
};

// A model's file, of one in parts the first.
bool IsModel(std::string_view name) {
  if (!EndsInGguf(name) || Base(name).starts_with("mmproj")) return false;
  const size_t of = name.rfind("-of-");
  return of == std::string_view::npos || of < 6 || name.substr(of - 6, 6) == "-00001" ||
         !std::all_of(name.begin() + static_cast<int64_t>(of) - 5, name.begin() + static_cast<int64_t>(of),
                      [](unsigned char c) { return std::isdigit(c) != 0; });
}

// The models of one snapshot. Broken links and what cannot be read are not there.
void AddSnapshot(const fs::path& folder, std::vector<Found>* out) {
  std::error_code error;
  int n = 0;
  for (fs::recursive_directory_iterator at(folder, fs::directory_options::skip_permission_denied, error), end;
       !error && at != end && ++n <= kMostEntries; at.increment(error)) {
    if (at.depth() >= kMostFolders) at.disable_recursion_pending();
    const std::string name = at->path().lexically_relative(folder).string();
    std::error_code ignored;
    if (IsModel(name) && at->is_regular_file(ignored)) out->push_back({name, at->path().string()});
  }
}

// The snapshots of huggingface_hub: the newest revision first, then others.
std::vector<Found> InHubCache(const HubModel& model) {
  const std::string folder = "models--" + std::string(model.repo).replace(model.repo.find('/'), 1, "--");
  const fs::path root = fs::path(HubCache()) / folder;
  std::vector<Found> out;
  std::string newest;
  std::ifstream(root / "refs" / "main") >> newest;
  if (IsName(newest)) AddSnapshot(root / "snapshots" / newest, &out);
  if (!out.empty()) return out;
  std::error_code error;
  for (fs::directory_iterator at(root / "snapshots", error), end; !error && at != end && out.empty();
       at.increment(error))
    AddSnapshot(at->path(), &out);
  return out;
}

// llama.cpp's older cache: OWNER_NAME_FILE.
std::vector<Found> InLlamaCache(const HubModel& model) {
  const std::string prefix = std::string(model.repo).replace(model.repo.find('/'), 1, "_") + "_";
  std::vector<Found> out;
  std::error_code error;
  int n = 0;
  for (fs::directory_iterator at(LlamaCache(), error), end; !error && at != end && ++n <= kMostEntries;
       at.increment(error)) {
    const std::string name = at->path().filename().string();
    std::error_code ignored;
    if (!name.starts_with(prefix) || !at->is_regular_file(ignored)) continue;
    if (const std::string file = name.substr(prefix.size()); IsModel(file)) out.push_back({file, at->path().string()});
  }
  return out;
}

// Whether `name` is the one asked for: it, or its type in any spelling of capitals, as a word of its own.
bool Matches(const std::string& name, const std::string& file) {
  if (file.empty() || name == file || Base(name) == file) return true;
  if (EndsInGguf(file)) return false;
  const auto same = [](char a, char b) { return AsciiLower(a) == AsciiLower(b); };
  const auto inside = [](char c) { return std::isalnum(static_cast<unsigned char>(c)) != 0 || c == '_'; };
  for (auto at = name.begin();; ++at) {
    at = std::search(at, name.end(), file.begin(), file.end(), same);
    if (at == name.end()) return false;
    const auto after = at + static_cast<int64_t>(file.size());
    if ((at == name.begin() || !inside(*(at - 1))) && (after == name.end() || !inside(*after))) return true;
  }
}

// Empty if it is nowhere.
Result<std::string> Search(const HubModel& model) {
  for (const auto& places : {InHubCache, InLlamaCache}) {
    std::vector<Found> found = places(model);
    std::erase_if(found, [&](const Found& f) { return !Matches(f.name, model.file); });
    if (found.size() == 1) return found.front().path;
    if (found.empty()) continue;
    std::sort(found.begin(), found.end(), [](const Found& a, const Found& b) { return a.name < b.name; });
    std::string names;
    for (const Found& f : found) names += (names.empty() ? "" : ", ") + f.name;
    return InvalidArgument("-hf {}: several models of it are here ({}); name one: -hf {}:FILE", model.repo, names,
                           model.repo);
  }
  return std::string();
}

// NAME-00001-of-00003.gguf is the first of 3 parts; 1 for every other name.
int PartCount(std::string_view name) {
  constexpr size_t kDigits = 5, kEnd = 5;  // ".gguf"
  constexpr int kMostParts = 1000;         // words of a command
  if (name.size() < kDigits + kEnd) return 1;
  int n = 0;
  for (const char c : name.substr(name.size() - kDigits - kEnd, kDigits)) {
    if (c < '0' || c > '9') return 1;
    n = 10 * n + (c - '0');
  }
  return n > 1 && n <= kMostParts && name.ends_with(GgufPartName(0, n)) ? n : 1;
}

std::vector<std::string> Command(const HubModel& model) {
  if (const int n = PartCount(model.file); n > 1) {
    const std::string stem = model.file.substr(0, model.file.size() - GgufPartName(0, n).size());
    std::vector<std::string> out = {"hf", "download", model.repo};
    for (int i = 0; i < n; ++i) out.push_back(stem + GgufPartName(i, n));
    return out;
  }
  if (EndsInGguf(model.file)) return {"hf", "download", model.repo, model.file};
  return {"hf", "download", model.repo, "--include", "*" + (model.file.empty() ? "Q4_K_M" : model.file) + "*.gguf"};
}

std::string CommandText(const HubModel& model) {
  std::string out;
  for (const std::string& word : Command(model)) {
    const bool quoted = word.find_first_of("* ") != std::string::npos;
    out += (out.empty() ? "" : " ") + (quoted ? "'" + word + "'" : word);
  }
  return out;
}

// Its messages and its progress are the user's to see; standard output is for answers.
Status Download(const HubModel& model) {
  const std::vector<std::string> words = Command(model);
  std::vector<char*> argv;
  for (const std::string& word : words) argv.push_back(const_cast<char*>(word.c_str()));
  argv.push_back(nullptr);
  posix_spawn_file_actions_t actions;
  posix_spawn_file_actions_init(&actions);
  posix_spawn_file_actions_adddup2(&actions, STDERR_FILENO, STDOUT_FILENO);
  pid_t pid = -1;
  const int error = posix_spawnp(&pid, argv[0], &actions, nullptr, argv.data(), environ);
  posix_spawn_file_actions_destroy(&actions);
  if (error != 0) {
    return NotFound("cannot run `{}`: {} (`hf` comes with the Python package huggingface_hub)", CommandText(model),
                    std::strerror(error));
  }
  int status = 0;
  while (waitpid(pid, &status, 0) < 0 && errno == EINTR) continue;
  if (WIFEXITED(status) && WEXITSTATUS(status) == 0) return Status();
  return IoError("`{}` ended with status {}; run it again to go on where it stopped", CommandText(model),
                 WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status));
}

// The cache names large files by their SHA-256.
Status CompareChecksumOf(const std::string& path) {
  std::error_code error;
  const std::string want = fs::canonical(path, error).filename().string();
  const auto is_digit = [](unsigned char c) { return std::isxdigit(c) != 0; };
  if (error || want.size() != kSha256Digits || !std::all_of(want.begin(), want.end(), is_digit)) return Status();
  auto child = Child::Start({"sha256sum", "--", path}, -1, {});
  if (!child.ok()) {
    Print(stderr, "weir: the download's checksum was not compared: {}\n", Printable(child.status().message()));
    return Status();
  }
  std::string got;
  for (uint8_t bytes[512];;) {
    WEIR_ASSIGN_OR_RETURN(const int64_t n, (*child)->Read(bytes, sizeof(bytes), &StopFlag()));
    if (n == 0) break;
    if (got.size() < kSha256Digits) got.append(bytes, bytes + n);
  }
  WEIR_RETURN_IF_ERROR((*child)->Finish());
  got = got.substr(got.starts_with('\\') ? 1 : 0, kSha256Digits);
  if (got == want) return Status();
  return Corrupt("{}: its SHA-256 is {}, expected {}; delete {} and download it again", path, got, want,
                 fs::canonical(path, error).string());
}

// Of all parts of a model; a part that is not there is an error when the model is opened.
Status CompareChecksum(const std::string& path) {
  const int n = PartCount(path);
  if (n == 1) return CompareChecksumOf(path);
  const std::string stem = path.substr(0, path.size() - GgufPartName(0, n).size());
  for (int i = 0; i < n; ++i) WEIR_RETURN_IF_ERROR(CompareChecksumOf(stem + GgufPartName(i, n)));
  return Status();
}

}  // namespace

Result<HubModel> ParseHubModel(std::string_view text) {
  const size_t colon = text.find(':');
  const std::string_view repo = text.substr(0, colon);
  const std::string_view file = colon == std::string_view::npos ? "" : text.substr(colon + 1);
  const size_t slash = repo.find('/');
  bool good = slash != std::string_view::npos && IsName(repo.substr(0, slash)) && IsName(repo.substr(slash + 1)) &&
              (colon == std::string_view::npos || !file.empty()) && file.size() <= kMostFileBytes;
  for (size_t at = 0; good && at <= file.size() && !file.empty();) {
    const size_t end = std::min(file.find('/', at), file.size());
    good = IsName(file.substr(at, end - at));
    at = end + 1;
  }
  if (!good) {
    return InvalidArgument(
        "'{}' is no model's name there; expected OWNER/NAME, OWNER/NAME:FILE.gguf or OWNER/NAME:TYPE", text);
  }
  return HubModel{std::string(repo), std::string(file)};
}

Result<std::string> FindHubModel(const HubModel& model, bool download) {
  WEIR_ASSIGN_OR_RETURN(std::string path, Search(model));
  if (!path.empty()) return path;
  const std::string what = model.repo + (model.file.empty() ? "" : ":" + model.file);
  if (!download) {
    return NotFound("-hf {}: neither in {} nor in {}; download it with: {} (or add --hf-download)", what, HubCache(),
                    LlamaCache(), CommandText(model));
  }
  Print(stderr, "weir: {}\n", Printable(CommandText(model)));
  WEIR_RETURN_IF_ERROR(Download(model));
  WEIR_ASSIGN_OR_RETURN(path, Search(model));
  if (path.empty()) {
    return NotFound("-hf {}: `{}` brought no such file to {}; name one that the page {} lists: -hf {}:FILE", what,
                    CommandText(model), HubCache(), "https://huggingface.co/" + model.repo, model.repo);
  }
  WEIR_RETURN_IF_ERROR(CompareChecksum(path));
  return path;
}

}  // namespace weir::app
