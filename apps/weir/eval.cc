// weir eval: the protocols that results are measured with. One JSON line per figure.
#include <cstdio>
#include <memory>
#include <nlohmann/json.hpp>

#include "common.h"
#include "eval/perplexity.h"
#include "progress.h"
#include "text/stream.h"

namespace weir::app {
namespace {

struct PplFlags {
  std::string file;
  int window = 0;
  int64_t max_tokens = 0, segment = 10000;
};

nlohmann::ordered_json Row(const char* task, const ModelFlags& model, const SessionOptions& options,
                           const Session& session, const PerplexityResult& result, double tokens_per_s) {
  nlohmann::ordered_json row;
  row["suite"] = "ppl";
  row["task"] = task;
  row["model"] = model.path.substr(model.path.find_last_of('/') + 1);
  row["policy"] = options.policy.text;
  row["pot"] = session.plan().pot.n_slots;
  row["chunk"] = session.plan().chunk_rows;
  row["budget_bytes"] = session.plan().total_bytes;
  row["metric"] = "perplexity";
  row["value"] = result.perplexity;
  row["stderr"] = result.perplexity * result.nll_stderr;
  row["n"] = result.n;
  row["seed"] = 0;
  row["tokens_per_s"] = tokens_per_s;
  row["peak_bytes"] = session.ledger().peak_bytes();
  row["resident_bytes"] = ResidentBytes();
  return row;
}

Status Ppl(const ModelFlags& model_flags, const PotFlags& pot_flags, const PplFlags& flags) {
  WEIR_ASSIGN_OR_RETURN(SessionOptions options, ToSessionOptions(pot_flags));
  options.nll = true;
  if (flags.window > 0 && options.pot_slots == 0) options.pot_slots = flags.window;
  WEIR_ASSIGN_OR_RETURN(const std::unique_ptr<LoadedModel> model, Load(model_flags));
  WEIR_ASSIGN_OR_RETURN(TextSource source, TextSource::Open(flags.file));
  WEIR_ASSIGN_OR_RETURN(const std::unique_ptr<Session> session,
                        Session::Make(model->model(), model->backend(), options));
  WEIR_ASSIGN_OR_RETURN(const std::unique_ptr<TraceWriter> trace, StartTrace(pot_flags, *session));
  PrintConfiguration(*model, *session, options.policy.text, "");
  Progress progress("eval", Progress::kAuto);
  const Tokenizer& tokenizer = model->tokenizer();

  StreamEncoder encoder(tokenizer, EncodeOptions());
  std::vector<int32_t> tokens;
  std::string piece;
  if (flags.window > 0) {
    for (bool more = true; more;) {
      WEIR_ASSIGN_OR_RETURN(more, source.Read(&piece));
      encoder.Push(piece, &tokens);
    }
    encoder.Finish(&tokens);
    if (flags.max_tokens > 0 && static_cast<int64_t>(tokens.size()) > flags.max_tokens) tokens.resize(flags.max_tokens);
    WindowOptions window;
    window.n_ctx = flags.window;
    window.bos_id = tokenizer.add_bos() ? tokenizer.bos_id() : -1;
    window.stop = &StopFlag();
    window.progress = [&](int64_t done, int64_t, double) { progress.Update(done * flags.window, *session); };
    WEIR_ASSIGN_OR_RETURN(const PerplexityResult result, WindowPerplexity(*session, tokens, window));
    progress.Done();
    std::printf("%s\n",
                JsonText(Row("windows", model_flags, options, *session, result, progress.tokens_per_s())).c_str());
    return trace != nullptr ? trace->Close() : Status();
  }
  StreamPerplexity stream(*session, flags.segment, [&](int64_t first, int64_t end, const PerplexityResult& result) {
    nlohmann::ordered_json row = Row("stream", model_flags, options, *session, result, progress.tokens_per_s());
    row["first_token"] = first;
    row["end_token"] = end;
    std::printf("%s\n", JsonText(row).c_str());
    std::fflush(stdout);
  });
  int64_t left = flags.max_tokens > 0 ? flags.max_tokens : INT64_MAX;
  for (bool more = true; more && left > 0;) {
    WEIR_ASSIGN_OR_RETURN(more, source.Read(&piece));
    tokens.clear();
    encoder.Push(piece, &tokens);
    if (!more) encoder.Finish(&tokens);
    if (static_cast<int64_t>(tokens.size()) > left) tokens.resize(static_cast<size_t>(left));
    left -= static_cast<int64_t>(tokens.size());
    // Push in chunks so that progress moves.
    for (size_t at = 0; at < tokens.size();) {
      const size_t n = std::min<size_t>(tokens.size() - at, static_cast<size_t>(session->plan().chunk_rows));
      WEIR_RETURN_IF_ERROR(stream.Push({tokens.data() + at, n}, &StopFlag()));
      at += n;
      progress.Update(session->counters().seen, *session);
    }
  }
  stream.Finish();
  progress.Done();
  if (session->counters().seen == 0) return InvalidArgument("%s holds no text", flags.file.c_str());
  std::printf("%s\n", JsonText(Row("stream_total", model_flags, options, *session, stream.total().Result(),
                                   progress.tokens_per_s()))
                          .c_str());
  return trace != nullptr ? trace->Close() : Status();
}

// Greedy ids and the two leading logits of every step, for comparisons with other programs (tools/peer_parity.py).
Status Greedy(const ModelFlags& model_flags, const PotFlags& pot_flags, const std::vector<int32_t>& ids, int n) {
  WEIR_ASSIGN_OR_RETURN(const SessionOptions options, ToSessionOptions(pot_flags));
  WEIR_ASSIGN_OR_RETURN(const std::unique_ptr<LoadedModel> model, Load(model_flags));
  WEIR_ASSIGN_OR_RETURN(const std::unique_ptr<Session> session,
                        Session::Make(model->model(), model->backend(), options));
  WEIR_RETURN_IF_ERROR(session->Append(ids));
  nlohmann::ordered_json out;
  for (int i = 0; i < n; ++i) {
    WEIR_ASSIGN_OR_RETURN(const std::span<float> logits, session->Logits());
    int32_t best = 0, second = -1;
    for (int32_t v = 1; v < static_cast<int32_t>(logits.size()); ++v) {
      if (logits[v] > logits[best]) {
        second = best;
        best = v;
      } else if (second < 0 || logits[v] > logits[second]) {
        second = v;
      }
    }
    out["ids"].push_back(best);
    out["top"].push_back({logits[best], second < 0 ? logits[best] : logits[second]});
    WEIR_RETURN_IF_ERROR(session->Append({&best, 1}));
  }
  std::printf("%s\n", JsonText(out).c_str());
  return Status();
}

void AddGreedy(CLI::App& app, int* code) {
  CLI::App* sub = app.add_subcommand("greedy", "continue token ids greedily and print ids and leading logits");
  auto model = std::make_shared<ModelFlags>();
  auto pot = std::make_shared<PotFlags>();
  auto ids = std::make_shared<std::vector<int32_t>>();
  auto n = std::make_shared<int>(128);
  AddModelFlags(*sub, model.get());
  AddPotFlags(*sub, pot.get());
  sub->add_option("--ids", *ids, "token ids to read first, separated by commas")->required()->delimiter(',');
  sub->add_option("-n,--predict", *n, "tokens to write")->check(Between(1, 1 << 20))->capture_default_str();
  sub->callback([=] {
    const Status status = Greedy(*model, *pot, *ids, *n);
    *code = status.ok() ? 0 : Fail(status);
  });
}

}  // namespace

void AddEval(CLI::App& app, int* code) {
  CLI::App* sub = app.add_subcommand("eval", "measure a model and a policy with the papers' protocols");
  sub->require_subcommand(1);
  AddGreedy(*sub, code);
  CLI::App* ppl =
      sub->add_subcommand("ppl", "perplexity of a text: one endless stream, or windows as llama.cpp counts them");
  auto model = std::make_shared<ModelFlags>();
  auto pot = std::make_shared<PotFlags>();
  auto flags = std::make_shared<PplFlags>();
  AddModelFlags(*ppl, model.get());
  AddPotFlags(*ppl, pot.get());
  AddTraceFlag(*ppl, pot.get());
  ppl->add_option("-f,--file", flags->file, "text to read; - is standard input")->required()->type_name("FILE");
  CLI::Option* window =
      ppl->add_option("--window", flags->window, "windows of N tokens, second half counted; 0 = one stream")
          ->check(Between(0, 1 << 20))
          ->capture_default_str();
  ppl->add_option("-n,--tokens", flags->max_tokens, "stop after N tokens; 0 = all")
      ->check(Between(int64_t{0}, INT64_MAX))
      ->capture_default_str();
  ppl->add_option("--segment", flags->segment, "tokens per line of a stream's report")
      ->check(Between(int64_t{1}, INT64_MAX))
      ->excludes(window)
      ->capture_default_str();
  ppl->callback([=] {
    InstallStopHandler();
    const Status status = Ppl(*model, *pot, *flags);
    *code = status.ok() ? 0 : Fail(status);
  });
}

}  // namespace weir::app
