// weir-plugin: suite
// SPDX-License-Identifier: Apache-2.0
// weir eval ppl: perplexity of a text, as one endless stream or in windows.
#include <algorithm>
#include <cstdio>
#include <memory>
#include <nlohmann/json.hpp>

#include "eval/perplexity.h"
#include "io/json.h"
#include "print.h"
#include "progress.h"
#include "recall_flags.h"
#include "suites/exam.h"
#include "suites/suite.h"
#include "text/stream.h"

namespace weir::app {
namespace {

struct PplFlags {
  EvalFlags eval;
  std::string file;
  int window = 0;
  int64_t max_tokens = 0, segment = 10000;
  std::vector<int64_t> lengths;
};

// One policy in one pot, ready to read.
struct PplRun {
  const PplFlags& flags;
  const std::string policy;
  const Tokenizer& tokenizer;
  Session& session;
  Progress& progress;
  const bool others;           // there are runs with other policies or pots
  StreamRecall* const recall;  // nullptr: off

  // n_read: tokens read for this result and those before it.
  void Print(const char* task, const PerplexityResult& result, int64_t n_read, int64_t first = -1,
             int64_t end = -1) const {
    nlohmann::ordered_json row = RowStart("ppl", task, flags.eval, policy, session);
    row["metric"] = "perplexity";
    row["value"] = result.perplexity;
    row["stderr"] = result.perplexity * result.nll_stderr;
    row["n"] = result.n;
    row["seed"] = 0;
    const double rate = progress.tokens_per_s();
    row["tokens"] = n_read;
    row["seconds"] = rate > 0 ? static_cast<double>(n_read) / rate : 0;
    row["tokens_per_s"] = rate;
    row["peak_bytes"] = session.ledger().peak_bytes();
    row["resident_bytes"] = ResidentBytes();
    if (recall != nullptr) {
      row["recall"] = recall->recaller().spec().text;
      row["archive_bytes"] = recall->archive().disk_bytes();
    }
    if (first >= 0) row["first_token"] = first;
    if (end >= 0) row["end_token"] = end;
    app::Print(stdout, "{}\n", JsonText(row));
    std::fflush(stdout);
  }
};

Status Windows(const PplRun& run, TextSource* source) {
  const PplFlags& flags = run.flags;
  StreamEncoder encoder(run.tokenizer, EncodeOptions());
  std::vector<int32_t> tokens;
  std::string piece;
  for (bool more = true; more;) {
    WEIR_ASSIGN_OR_RETURN(more, source->Read(&piece));
    encoder.Push(piece, &tokens);
  }
  encoder.Finish(&tokens);
  if (flags.max_tokens > 0 && static_cast<int64_t>(tokens.size()) > flags.max_tokens) tokens.resize(flags.max_tokens);
  WindowOptions window;
  window.n_ctx = flags.window;
  window.bos_id = run.tokenizer.add_bos() ? run.tokenizer.bos_id() : -1;
  window.stop = &StopFlag();
  int64_t n_read = 0;
  window.progress = [&](int64_t done, int64_t, double) {
    run.progress.Update(n_read = done * flags.window, run.session);
  };
  WEIR_ASSIGN_OR_RETURN(const PerplexityResult result, WindowPerplexity(run.session, tokens, window));
  run.progress.Done();
  run.Print("windows", result, n_read);
  return Status();
}

Status Stream(const PplRun& run, TextSource* source) {
  const PplFlags& flags = run.flags;
  Session& session = run.session;
  std::vector<int64_t> lengths = flags.lengths;
  std::sort(lengths.begin(), lengths.end());
  auto next_length = lengths.begin();
  StreamPerplexity stream(session, flags.segment, [&](int64_t first, int64_t end, const PerplexityResult& result) {
    run.Print("stream", result, end, first, end);
  });
  StreamEncoder encoder(run.tokenizer, EncodeOptions());
  std::vector<int32_t> tokens;
  std::string piece;
  int64_t left = flags.max_tokens > 0 ? flags.max_tokens : INT64_MAX;
  Status full;
  for (bool more = true; more && left > 0 && full.ok();) {
    WEIR_ASSIGN_OR_RETURN(more, source->Read(&piece));
    tokens.clear();
    encoder.Push(piece, &tokens);
    if (!more) encoder.Finish(&tokens);
    if (static_cast<int64_t>(tokens.size()) > left) tokens.resize(static_cast<size_t>(left));
    left -= static_cast<int64_t>(tokens.size());
    // Pushed in chunks so that progress moves; a requested length is met to the token.
    for (size_t at = 0; at < tokens.size();) {
      int64_t n = std::min<int64_t>(static_cast<int64_t>(tokens.size() - at), session.plan().chunk_rows);
      if (next_length != lengths.end()) n = std::min(n, *next_length - session.counters().seen);
      const Status pushed = stream.Push({tokens.data() + at, static_cast<size_t>(n)}, &StopFlag());
      // A policy that never forgets: among others, what it read is a result, and they have theirs to come.
      if (pushed.code() == StatusCode::kOverBudget && run.others && flags.eval.pot.on_overflow != "error") {
        full = pushed;
        break;
      }
      WEIR_RETURN_IF_ERROR(pushed);
      at += static_cast<size_t>(n);
      run.progress.Update(session.counters().seen, session);
      for (; next_length != lengths.end() && *next_length <= session.counters().seen; ++next_length) {
        run.Print("stream_length", stream.total().Result(), *next_length, 0, *next_length);
      }
    }
  }
  stream.Finish();
  run.progress.Done();
  if (session.counters().seen == 0) return InvalidArgument("{} contains no text", flags.file);
  run.Print("stream_total", stream.total().Result(), session.counters().seen);
  if (!full.ok()) {
    app::Print(stderr, "weir: warning: {} stopped here: {}\n", run.policy, full.message());
  }
  return Status();
}

Status Ppl(const PplFlags& flags) {
  InstallStopHandler();
  // Windows are as long as the requested pot, also for policies that never forget.
  WEIR_ASSIGN_OR_RETURN(const std::vector<EvalRun> runs,
                        flags.window > 0 ? RunsOf(flags.eval) : DistinctRunsOf(flags.eval));
  if (runs.size() > 1 && flags.file == "-") return InvalidArgument("standard input works with one policy and pot only");
  if (runs.size() > 1 && !flags.eval.pot.trace.empty())
    return InvalidArgument("--trace works with one policy and pot only");
  WEIR_ASSIGN_OR_RETURN(const RecallOptions recall, ToNewRecallOptions(flags.eval.pot.recall));
  if (recall.on() && flags.window > 0) return InvalidArgument("--recall works with one stream, not with --window");
  std::vector<SessionOptions> options;
  for (const EvalRun& run : runs) {
    WEIR_ASSIGN_OR_RETURN(SessionOptions one, OptionsOf(flags.eval, run));
    one.nll = true;
    if (flags.window > 0 && one.pot_slots == 0) one.pot_slots = flags.window;
    options.push_back(std::move(one));
  }
  WEIR_ASSIGN_OR_RETURN(const std::unique_ptr<LoadedModel> model, Load(flags.eval.model));
  for (SessionOptions& one : options) {
    WEIR_ASSIGN_OR_RETURN(const std::unique_ptr<Policy> policy, one.policy.Make());
    if (!policy->Needs().evicts && flags.window == 0 && flags.max_tokens > 0) {
      GivePotForAll(one.policy.text, flags.max_tokens, model->model().config(), &one);
    }
    WEIR_RETURN_IF_ERROR(AddProbe(*model, flags.eval.model, false, std::nullopt, &one));
    WEIR_RETURN_IF_ERROR(AddRecall(recall, *model, &one));
    WEIR_ASSIGN_OR_RETURN(TextSource source, TextSource::Open(flags.file));
    WEIR_ASSIGN_OR_RETURN(const std::unique_ptr<Session> session, Session::Make(model->model(), model->backend(), one));
    std::unique_ptr<StreamRecall> recalled;
    if (recall.on()) {
      WEIR_ASSIGN_OR_RETURN(recalled, StreamRecall::Make(recall, *model, *session));
      WEIR_RETURN_IF_ERROR(recalled->CutTo({}));
    }
    WEIR_ASSIGN_OR_RETURN(const std::unique_ptr<TraceWriter> trace, StartTrace(flags.eval.pot, *session, model.get()));
    PrintConfiguration(*model, *session, flags.eval.pot, "");
    Progress progress("eval", Progress::kAuto);
    const PplRun run{flags, one.policy.text, model->tokenizer(), *session, progress, runs.size() > 1, recalled.get()};
    WEIR_RETURN_IF_ERROR(flags.window > 0 ? Windows(run, &source) : Stream(run, &source));
    WEIR_RETURN_IF_ERROR(FinishTrace(trace.get(), *session));
  }
  return Status();
}

Action AddPpl(CLI::App& sub) {
  auto flags = std::make_shared<PplFlags>();
  AddRunFlags(sub, &flags->eval);
  AddTraceFlag(sub, &flags->eval.pot);
  AddVerboseFlag(sub, &flags->eval.pot);
  sub.add_option("-f,--file", flags->file, "text to read; - is standard input")->required()->type_name("FILE");
  CLI::Option* window = sub.add_option("--window", flags->window,
                                       "windows of N tokens, of which the second half is scored; 0 = one stream")
                            ->check(Between(0, 1 << 20))
                            ->capture_default_str();
  sub.add_option("-n,--tokens", flags->max_tokens, "stop after N tokens; 0 = all")
      ->check(Between(int64_t{0}, INT64_MAX))
      ->capture_default_str();
  sub.add_option("--segment", flags->segment, "tokens per row of a stream's report")
      ->check(Between(int64_t{1}, INT64_MAX))
      ->excludes(window)
      ->capture_default_str();
  sub.add_option("--lengths", flags->lengths, "also report the stream up to each of these token counts")
      ->delimiter(',')
      ->check(Between(int64_t{2}, INT64_MAX))
      ->excludes(window)
      ->type_name("TOKENS,...");
  return [=] { return Ppl(*flags); };
}

}  // namespace

extern const SuiteInfo kPpl;
const SuiteInfo kPpl = {
    .name = "ppl", .summary = "perplexity of a text: one endless stream, or windows as in llama.cpp", .add = AddPpl};

}  // namespace weir::app
