// What `run`, `chat` and `read` share: sampling flags, the trace, printing an answer, the closing JSON object.
#pragma once

#include <CLI/CLI.hpp>
#include <memory>
#include <nlohmann/json.hpp>
#include <string>

#include "common.h"
#include "engine/generate.h"
#include "text/chat_template.h"
#include "text/sampler.h"

namespace weir::app {

struct AnswerFlags {
  SamplerOptions sampler;
  int64_t seed = -1;  // -1: another one each time, printed
  int n_predict = -1;
  bool ignore_eos = false;
  std::string output = "text";
};
void AddAnswerFlags(CLI::App& app, AnswerFlags* flags, bool with_output);
// Fills in a seed when none was asked for. kInvalidArgument for values out of range.
Result<Sampler> MakeSampler(AnswerFlags* flags);
std::string SamplingText(const AnswerFlags& flags);

// Answers from the session's state; whole characters appear on stdout as they come when `print`.
Result<GenerateResult> Answer(Session& session, Sampler& sampler, const Tokenizer& tokenizer, const AnswerFlags& flags,
                              bool print);

// kOverBudget when the answer was cut short because the pot is full and nothing may be forgotten.
Status CheckNotCut(const GenerateResult& result, const Session& session);

// The object that `-o json` ends with.
nlohmann::ordered_json AnswerJson(const Session& session, const GenerateResult& result, double read_tokens_per_s,
                                  double ttft_ms);
// One line to stderr: tokens seen, kept, dropped, memory.
void PrintMemoryLine(const Session& session);
// Warns about replaced or dropped input bytes.
void PrintReport(const EncodeReport& report, const std::string& where);

// A model, a session, its trace: what every answering command sets up the same way.
struct Setup {
  std::unique_ptr<LoadedModel> model;
  std::unique_ptr<TraceWriter> trace;
  std::unique_ptr<Session> session;
};
Result<Setup> MakeSetup(const ModelFlags& model_flags, const PotFlags& pot_flags, const std::string& sampling);

// A rendering of the user content kContent, split where that content stands: the real content may then be of any length
// and be appended piece by piece. kInternal when the rendering lost it.
inline constexpr const char* kContent = "text";
struct AroundContent {
  std::vector<TextPiece> before, after;
};
Result<AroundContent> SplitAtContent(const std::vector<TextPiece>& pieces);

}  // namespace weir::app
