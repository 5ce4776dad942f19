// SPDX-License-Identifier: Apache-2.0
// Shared by `run`, `chat` and `read`: sampling flags (also used by `serve`), the trace, printing an answer, the closing
// JSON object.
#pragma once

#include <CLI/CLI.hpp>
#include <memory>
#include <nlohmann/json.hpp>
#include <span>
#include <string>
#include <vector>

#include "chat/form_memory.h"
#include "chat/generate.h"
#include "common.h"
#include "pictures.h"
#include "recall_flags.h"
#include "text/chat_template.h"
#include "text/forms/form.h"
#include "text/sampler.h"
#include "thoughts.h"

namespace weir::app {

struct SamplingFlags {
  SamplerOptions sampler;
  int64_t seed = -1;  // -1: a different one each time
};
void AddSamplingFlags(CLI::App& app, SamplingFlags* flags);
std::string SamplingText(const SamplingFlags& flags);

// What answers must look like: at most one of these.
struct FormFlags {
  std::string grammar, grammar_file, schema, schema_file, regex;
  std::vector<std::string> choices;
  std::string memory = "16MiB";
  // Whether one of them was asked for.
  bool any() const { return !choices.empty() || !(grammar + grammar_file + schema + schema_file + regex).empty(); }
};

struct AnswerFlags : SamplingFlags {
  int n_predict = -1;
  bool ignore_eos = false;
  std::string output = "text";
  FormFlags form;
  std::shared_ptr<const Form> made_form;  // by MakeAnswerForm(); nullptr: none was asked for
};
void AddAnswerFlags(CLI::App& app, AnswerFlags* flags, bool with_output);
// Fills in a seed if none was given. kInvalidArgument for values out of range.
Result<Sampler> MakeSampler(AnswerFlags* flags);

// Fills in made_form. Call before a prompt is read. `reading`: of a chat, whose answer's thoughts are not held to the
// form; nullptr: there are none. kInvalidArgument names the flag; kIo for a file that cannot be read.
struct Setup;
Status MakeAnswerForm(const Setup& setup, AnswerFlags* flags, const ThoughtReading* reading = nullptr);
// Gives the session room for a form that was asked for. Call before MakeSetup().
Status AddFormRoom(const AnswerFlags& flags, PotFlags* pot_flags);

// Generates an answer; with `print` whole characters appear on stdout as they are generated. `t_src_ms`: the stream
// time of the answer's tokens. With `reading` thoughts are taken out of the result's text, and *thoughts receives them.
Result<GenerateResult> Answer(Session& session, Sampler& sampler, const Tokenizer& tokenizer, const AnswerFlags& flags,
                              bool print, int64_t t_src_ms = 0, const ThoughtReading* reading = nullptr,
                              std::string* thoughts = nullptr);

// kOverBudget, with the reason, if the answer was cut short because its last token could not be read.
Status CheckNotCut(const GenerateResult& result);

// What is pinned: a text of the user's choice, and the system message.
struct PinFlags {
  std::string text;        // --pin: a file name, or the text itself
  bool no_system = false;  // --no-pin-system
};
void AddPinFlags(CLI::App& app, PinFlags* flags);
// The text of --pin; empty without one. kIo for a file that cannot be read.
Result<std::string> PinText(const PinFlags& flags);
// Tokens [begin, end) of a prompt.
struct PinnedPart {
  size_t begin = 0, end = 0;
};
// Which of the tokens of a prompt are pinned. `system`: the tokens of the prompt's words up to where the user's turn
// begins; `head`: of those up to the end of the pinned text, if there is one. Words at a boundary that were merged into
// one token with what follows stay unpinned.
PinnedPart FindPins(const PinFlags& flags, std::span<const int32_t> system, bool has_system,
                    std::span<const int32_t> head, std::span<const int32_t> prompt);
// Prints what is pinned to stderr (nothing for zero tokens). kOverBudget if the pins leave no room to read more.
Status CheckPins(const Session& session, const PotFlags& pot_flags, const PinFlags& flags, size_t n_pinned,
                 bool has_system);
// Session::Append() of a prompt's tokens; those in `part` are pinned.
Status AppendPinned(Session& session, std::span<const int32_t> tokens, const PinnedPart& part,
                    const Session::AppendOptions& options);

// Token counters of each modality seen; empty if that was only text.
nlohmann::ordered_json ModalitiesJson(const SessionCounters& counters);
// The object that `-o json` ends with. `reader`: whose pruned rows are counted; nullptr without pictures.
nlohmann::ordered_json AnswerJson(const Session& session, const GenerateResult& result, double read_tokens_per_s,
                                  double ttft_ms, const PictureReader* reader = nullptr);
// Adds the count of pruned rows where there is a pruner.
void AddPruned(const PictureReader* reader, nlohmann::ordered_json* json);
// One line to stderr: tokens seen, kept, dropped, memory; one more each for modalities and a pruner.
void PrintMemoryLine(const Session& session, const PictureReader* reader = nullptr);
// "kept 2,048 of 167,916 (oldest unpinned: token 151,204; unbroken from token 166,001)"
std::string KeptText(const Session& session);
// Warns about replaced or dropped input bytes.
void PrintReport(const EncodeReport& report, const std::string& where);

// The common setup of every answering command: a model, a session, its trace, its reader.
struct Setup {
  std::unique_ptr<LoadedModel> model;
  std::unique_ptr<LoadedEncoder> encoder;  // nullptr without --mmproj
  std::unique_ptr<LoadedDraft> draft;      // nullptr without --draft
  std::unique_ptr<TraceWriter> trace;
  std::unique_ptr<Session> session;
  FormMemory forms;                       // of the session's ledger
  std::unique_ptr<PictureReader> reader;  // nullptr without --mmproj
  std::unique_ptr<StreamRecall> recall;   // nullptr without --recall, or with the text's own file as archive
};
// What the session must have room for in addition to text. `flags` may be changed by MeasurePictures().
struct PictureNeeds {
  PictureFlags* flags = nullptr;  // nullptr: no pictures
  bool more_later = false;        // sources are named while the session runs
  int32_t n_waiting = 0;          // frames
};
// What a policy's probe may use: the question, if known in advance, and the model's chat template.
struct ProbeContext {
  bool in_chat = false;
  std::string question;
  bool own_archive = true;  // false: recall gets room, and the caller makes a FileRecall
  bool goes_on = false;     // RestoreSaved() follows: the folder of --recall-dir may hold the session's archive
};
Result<Setup> MakeSetup(const ModelFlags& model_flags, const PotFlags& pot_flags, const std::string& sampling,
                        const ProbeContext& probe = {}, const PictureNeeds& pictures = {});

}  // namespace weir::app
