// SPDX-License-Identifier: Apache-2.0
// Shared by the subcommands: familiar flags, error reporting, the effective configuration.
#pragma once

#include <CLI/CLI.hpp>
#include <atomic>
#include <memory>
#include <optional>
#include <string>
#include <string_view>

#include "base/status.h"
#include "engine/loaded_model.h"
#include "engine/session.h"
#include "guesses.h"
#include "hub.h"

namespace weir::app {

// Exit codes: 0 success, 2 bad input (file, flags, budget), 1 internal error, 130 stopped by Ctrl-C. Prints "weir:
// error: ..." (being stopped is no error) and returns the code.
int Fail(const Status& status);
// Escapes untrusted text (metadata, file names, traces) for a terminal: control characters, C1 controls, bidirectional
// marks and bytes that are not UTF-8 become \\xNN or \\u{NNNN}. With `lines`, line feeds and tabs stay.
std::string Printable(std::string_view text, bool lines = false);

// Set by the first Ctrl-C; a second one ends the process at once.
const std::atomic<bool>& StopFlag();
void InstallStopHandler();
// Sets the flag from inside the program, when continuing is pointless.
void RequestStop();
// After an answer was stopped: lets the next one be stopped too.
void ClearStop();
// Called before the second Ctrl-C ends the process, from the signal handler: it may do only what signal handlers may.
void AtHardStop(void (*cleanup)());

struct ModelFlags {
  std::string path, device;
  std::optional<HubModel> hub;  // -hf in place of a path
  bool hub_download = false;
  std::string chat_template;   // a name or a program's text; empty: the file's
  std::string chat_arguments;  // a JSON object that the program is given
  std::string packed;          // folder for packed weights
  int threads = 0, gpu_layers = -1;
  // The file without folders, as it was named.
  std::string FileName() const {
    const std::string name = hub ? hub->repo + (hub->file.empty() ? "" : ":" + hub->file) : path;
    return name.substr(name.find_last_of('/') + 1);
  }
};
void AddModelFlags(CLI::App& app, ModelFlags* flags);
Result<std::unique_ptr<LoadedModel>> Load(const ModelFlags& flags, bool plan_only = false);
// --chat-template and what belongs to it. `needs`: the flag without which they make no sense; nullptr: none.
void AddChatFlags(CLI::App& app, ModelFlags* flags, CLI::Option* needs = nullptr);

// What left the pot and is brought back for a question (recall/stream_recall.h).
struct RecallFlags {
  std::string spec = "off", dir, disk = "2GiB";
  int tokens = -1;
};

struct PotFlags {
  std::string policy = "weir";
  int pot = 0, ctx = -1, chunk = 0;  // ctx: -1 where it is not given
  std::string budget, k_type = "f16", v_type = "f16", on_overflow = "evict", trace;
  std::string window_layers = "newest";
  bool trace_scores = false, verbose = false;
  int trace_attention = 0;
  GuessFlags guesses;
  int aside = 0;                 // SessionOptions::aside_slots
  std::vector<PlanItem> beside;  // SessionOptions::beside: of rules
  std::optional<bool> pictures;  // SessionOptions::pictures, of a saved session
  int64_t form_bytes = 0;        // for answers that are held to a form
  RecallFlags recall;
};
void AddPotFlags(CLI::App& app, PotFlags* flags);
// -v, for commands that print their configuration.
void AddVerboseFlag(CLI::App& app, PotFlags* flags);
// Only for commands that write one.
void AddTraceFlag(CLI::App& app, PotFlags* flags);
// Starts the requested trace of `session`; nullptr if none. `model`, which must outlive it, gives the tokens' text;
// without one they are numbers.
Result<std::unique_ptr<TraceWriter>> StartTrace(const PotFlags& flags, Session& session,
                                                const LoadedModel* model = nullptr);
// Ends it with what the session holds. Nothing to do for nullptr.
Status FinishTrace(TraceWriter* trace, const Session& session);
// Without pictures, unless a saved session expects some: callers that load an encoder turn them on.
Result<SessionOptions> ToSessionOptions(const PotFlags& flags);
// The probe of policies that ask the model itself. `in_chat`: in the words of the model's chat template, where it has
// one. `question`: as PrepareProbe().
Status AddProbe(const LoadedModel& model, const ModelFlags& flags, bool in_chat,
                std::optional<std::string_view> question, SessionOptions* options);

// "262144", "64K", "64KiB", "256MiB", "1.5GiB", "2GB". Units of 1024; KB, MB, GB are 1000.
Result<int64_t> ParseBytes(const std::string& text);
// Flushes standard output. kIo if any output, now or before, could not be written.
Status FlushOutput();
// For options that must not be given as "".
const CLI::Validator& NotEmpty();
// A range that is checked but not spelled out in the help.
template <typename T>
CLI::Validator Between(T low, T high) {
  return CLI::Range(low, high).description("");
}

std::string BytesText(int64_t bytes);      // "45.3 MiB"
std::string CountText(int64_t n);          // "1,234,567"
std::string DurationText(double seconds);  // "45 s", "12 min 05 s", "3 h 20 min"
// Resident memory of this process now, and its highest so far.
int64_t ResidentBytes();
int64_t PeakResidentBytes();

// The model's name in its metadata, or its file name without folders.
std::string ModelName(const LoadedModel& model);
// Prints the effective configuration once at start, to stderr, with a warning if the policy's profile was tuned for
// something else. `sampling`: "" if nothing is sampled.
void PrintConfiguration(const LoadedModel& model, const Session& session, const PotFlags& flags, const char* sampling);
// The policy's text there: as given, or with -v every option.
std::string PolicyText(const PolicySpec& policy, const PotFlags& flags);
// Prints to stderr what `-c 0` became, if the model was trained with more.
void PrintDefaultPot(const PotFlags& flags, int32_t n_slots, const ModelConfig& model);

// A file's bytes, at most max_bytes. kIo for what cannot be read, directories included; "-" is standard input.
Result<std::string> ReadTextFile(const std::string& path, int64_t max_bytes);

}  // namespace weir::app
