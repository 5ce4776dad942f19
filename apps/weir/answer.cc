// SPDX-License-Identifier: Apache-2.0
#include "answer.h"

#include <sys/stat.h>
#include <unistd.h>

#include <fmt/core.h>
#include <algorithm>
#include <chrono>
#include <cstdio>

#include "kv/held.h"
#include "print.h"
#include "recall/file_recall.h"
#include "recall/own_archive.h"
#include "text/held_answer.h"

namespace weir::app {
namespace {

constexpr int64_t kLargestPin = int64_t{1} << 24;  // far more than any pot

}  // namespace

void AddSamplingFlags(CLI::App& app, SamplingFlags* flags) {
  app.add_option("--temp", flags->sampler.temperature, "temperature; 0 = always the most likely token")
      ->capture_default_str();
  app.add_option("--top-k", flags->sampler.top_k, "sample from the K most likely tokens; 0 = all")
      ->capture_default_str();
  app.add_option("--top-p", flags->sampler.top_p,
                 "sample from the most likely tokens whose probabilities sum to P; 1 = all")
      ->capture_default_str();
  app.add_option("--min-p", flags->sampler.min_p, "drop tokens less likely than P times the most likely one; 0 = off")
      ->capture_default_str();
  app.add_option("--repeat-penalty", flags->sampler.repeat_penalty, "penalise recent tokens; 1 = off")
      ->capture_default_str();
  app.add_option("--repeat-last-n", flags->sampler.repeat_last_n, "tokens that count as recent; -1 = all")
      ->capture_default_str();
  app.add_option("-s,--seed", flags->seed, "random seed; -1 = a new one each time")
      ->check(Between(int64_t{-1}, INT64_MAX))
      ->capture_default_str();
}

namespace {

void AddFormFlags(CLI::App& app, FormFlags* flags) {
  std::vector<CLI::Option*> all = {
      app.add_option("--grammar", flags->grammar, "hold the answer to a GBNF grammar, as llama.cpp's")
          ->type_name("TEXT"),
      app.add_option("--grammar-file", flags->grammar_file, "the same, from a file")->type_name("FILE"),
      app.add_option("-j,--json-schema", flags->schema, "hold the answer to a JSON schema; {} is any JSON")
          ->type_name("TEXT"),
      app.add_option("--json-schema-file", flags->schema_file, "the same, from a file")->type_name("FILE"),
      app.add_option("--regex", flags->regex, "hold the answer to a regular expression")->type_name("TEXT"),
      app.add_option("--choice", flags->choices, "a text that the answer may be; give it once for each")
          ->type_name("TEXT")
          ->expected(1)
          ->multi_option_policy(CLI::MultiOptionPolicy::TakeAll),
  };
  app.add_option("--form-memory", flags->memory, "memory that such an answer's form may take, of the session's")
      ->check(NotEmpty())
      ->capture_default_str()
      ->type_name("BYTES");
  for (CLI::Option* option : all) {
    option->check(NotEmpty());
    for (CLI::Option* other : all) {
      if (option != other) option->excludes(other);
    }
  }
}

}  // namespace

void AddAnswerFlags(CLI::App& app, AnswerFlags* flags, bool with_output) {
  app.add_option("-n,--predict", flags->n_predict, "maximum answer length in tokens; -1 = until the model ends it")
      ->check(Between(-1, 1 << 30))
      ->capture_default_str();
  AddSamplingFlags(app, flags);
  app.add_flag("--ignore-eos", flags->ignore_eos, "continue after the model ends its answer");
  AddFormFlags(app, &flags->form);
  if (with_output) {
    app.add_option("-o,--output", flags->output, "text, or json: one object at the end")
        ->check(CLI::IsMember({"text", "json"}))
        ->capture_default_str();
  }
}

Result<Sampler> MakeSampler(AnswerFlags* flags) {
  if (flags->seed < 0) {
    flags->seed = std::chrono::system_clock::now().time_since_epoch().count() & 0x7fffffff;
  }
  flags->sampler.seed = static_cast<uint64_t>(flags->seed);
  return Sampler::Create(flags->sampler);
}

std::string SamplingText(const SamplingFlags& flags) {
  const SamplerOptions& s = flags.sampler;
  std::string out = "greedy";
  if (s.temperature > 0) {
    out = fmt::format("temp {:g}, top-k {}, top-p {:g}, min-p {:g}", s.temperature, s.top_k, s.top_p, s.min_p);
    if (flags.seed >= 0) out += fmt::format(", seed {}", flags.seed);
  }
  if (s.repeat_penalty != 1.0f) {
    out += fmt::format(", repeat penalty {:g} over ", s.repeat_penalty);
    out += s.repeat_last_n < 0 ? "all" : std::to_string(s.repeat_last_n);
  }
  return out;
}

Status AddFormRoom(const AnswerFlags& flags, PotFlags* pot_flags) {
  if (!flags.form.any()) return Status();
  WEIR_ASSIGN_OR_RETURN(pot_flags->form_bytes, ParseBytes(flags.form.memory));
  const Status fits = CheckFormBytes(pot_flags->form_bytes);
  if (fits.ok() && pot_flags->form_bytes > 0) return Status();
  return InvalidArgument("--form-memory {}: expected at least {} bytes", flags.form.memory, kLeastFormBytes);
}

Status MakeAnswerForm(const Setup& setup, AnswerFlags* flags, const ThoughtReading* reading) {
  const FormFlags& form = flags->form;
  const Tokenizer& tokenizer = setup.model->tokenizer();
  using Kind = FormSpec::Kind;
  const struct {
    const char* name;
    std::string value;
    Kind kind;
    bool is_file;
  } given[] = {
      {"--grammar", form.grammar, Kind::kGrammar, false},
      {"--grammar-file", form.grammar_file, Kind::kGrammar, true},
      {"--json-schema", form.schema, Kind::kJsonSchema, false},
      {"--json-schema-file", form.schema_file, Kind::kJsonSchema, true},
      {"--regex", form.regex, Kind::kRegex, false},
      {"--choice", form.choices.empty() ? std::string() : form.choices[0], Kind::kChoices, false},
  };
  for (const auto& one : given) {
    if (one.value.empty()) continue;
    FormSpec spec;
    spec.kind = one.kind;
    spec.text = one.value;
    spec.choices = form.choices;
    if (one.is_file) {
      WEIR_ASSIGN_OR_RETURN(spec.text, ReadTextFile(one.value, forms::FormLimits().text_bytes));
    }
    HeldAnswer held;
    held.words = spec;
    if (reading != nullptr) held.in_thoughts = reading->in_thoughts;
    const auto vocab = FormVocab::Make(tokenizer);
    auto made = reading != nullptr && reading->takes_apart() ? MakeForm(held, reading->form, vocab, setup.forms.room())
                                                             : MakeForm(spec, vocab, setup.forms.room());
    if (!made.ok()) return InvalidArgument("{}: {}", one.name, made.status().message());
    flags->made_form = *std::move(made);
  }
  return Status();
}

Result<GenerateResult> Answer(Session& session, Sampler& sampler, const Tokenizer& tokenizer, const AnswerFlags& flags,
                              bool print, int64_t t_src_ms, const ThoughtReading* reading, std::string* thoughts) {
  ThoughtPrinter apart(reading);
  GenerateOptions options;
  options.shown = apart.shown();
  options.t_src_ms = t_src_ms;
  options.max_tokens = flags.n_predict;
  options.ignore_eos = flags.ignore_eos;
  options.form = flags.made_form;
  // A SentencePiece model begins its answers with a space, which is no part of their form.
  options.own_text = flags.made_form != nullptr;
  options.stop = &StopFlag();
  Status output;
  // A model repeats what it read: on a terminal, control sequences of a stranger's text must not act.
  const bool terminal = isatty(STDOUT_FILENO) == 1;
  std::string answer;
  const auto show = [&](const std::string& text) {
    answer += text;
    if (!print || text.empty() || !output.ok()) return;
    const std::string shown = terminal ? Printable(text, /*lines=*/true) : text;
    std::fwrite(shown.data(), 1, shown.size(), stdout);
    output = FlushOutput();
    if (!output.ok()) RequestStop();  // the rest cannot be shown
  };
  auto result = Generate(session, sampler, tokenizer, options,
                         [&](const std::string& text) { show(apart.Take(text, /*last=*/false)); });
  const std::string rest = apart.Take("", /*last=*/true);
  if (result.ok()) show(rest);
  WEIR_RETURN_IF_ERROR(output);
  if (result.ok() && apart.active()) {
    result->text = std::move(answer);
    if (thoughts != nullptr && reading->where == "apart") *thoughts = apart.thoughts();
  }
  return result;
}

Status CheckNotCut(const GenerateResult& result) {
  if (result.reason != StopReason::kPotFull) return Status();
  return OverBudget("the answer was cut short: {}", result.full.message());
}

void AddPinFlags(CLI::App& app, PinFlags* flags) {
  app.add_option("--pin", flags->text, "text to read first and never forget: a file name, or the text itself")
      ->check(NotEmpty())
      ->type_name("FILE|TEXT");
  app.add_flag("--no-pin-system", flags->no_system, "let the system message be evicted like any other text");
}

Result<std::string> PinText(const PinFlags& flags) {
  struct stat info {};
  if (flags.text.empty() || stat(flags.text.c_str(), &info) != 0) return flags.text;
  return ReadTextFile(flags.text, kLargestPin);
}

PinnedPart FindPins(const PinFlags& flags, std::span<const int32_t> system, bool has_system,
                    std::span<const int32_t> head, std::span<const int32_t> prompt) {
  const auto count = [&](std::span<const int32_t> prefix) {
    return static_cast<size_t>(std::mismatch(prefix.begin(), prefix.end(), prompt.begin(), prompt.end()).first -
                               prefix.begin());
  };
  const size_t n_system = count(system);
  PinnedPart part;
  part.begin = flags.no_system ? n_system : 0;
  part.end = !flags.text.empty()              ? std::max(part.begin, count(head))
             : has_system && !flags.no_system ? n_system
                                              : part.begin;
  return part;
}

Status CheckPins(const Session& session, const PotFlags& pot_flags, const PinFlags& flags, size_t n_pinned,
                 bool has_system) {
  if (n_pinned == 0) return Status();
  const bool system = has_system && !flags.no_system;
  std::string what = system ? "the system message" : "";
  if (!flags.text.empty()) {
    struct stat info {};
    what += what.empty() ? "" : " and ";
    what += stat(flags.text.c_str(), &info) == 0 ? "the text of " + Printable(flags.text)
                                                 : std::string("the text of --pin");
  }
  Print(stderr, "pinned   {} tokens: {}\n", CountText(static_cast<int64_t>(n_pinned)), what);
  WEIR_ASSIGN_OR_RETURN(const PolicySpec spec, ParsePolicySpec(pot_flags.policy));
  WEIR_ASSIGN_OR_RETURN(const std::unique_ptr<Policy> policy, spec.Make());
  const SessionPlan& plan = session.plan();
  const int64_t n_needed = static_cast<int64_t>(n_pinned) + plan.probe_slots + policy->Needs().min_slots;
  if (n_needed <= plan.pot_slots) return Status();
  return OverBudget("{} pinned tokens leave no room in a pot of {} with policy {}; use --pot {} or more{}{}", n_pinned,
                    plan.pot_slots, spec.info->name, n_needed, flags.text.empty() ? "" : ", a shorter --pin",
                    system ? ", or --no-pin-system" : "");
}

Status AppendPinned(Session& session, std::span<const int32_t> tokens, const PinnedPart& part,
                    const Session::AppendOptions& options) {
  const size_t seams[] = {0, part.begin, part.end, tokens.size()};
  for (size_t i = 0; i < 3; ++i) {
    if (seams[i] == seams[i + 1]) continue;
    Session::AppendOptions here = options;
    here.pinned = i == 1;
    here.end_of_prompt = options.end_of_prompt && seams[i + 1] == tokens.size();
    if (options.nll != nullptr) here.nll = options.nll + seams[i];
    if (options.progress) {
      here.progress = [&, before = static_cast<int64_t>(seams[i])](int64_t n_done) {
        options.progress(before + n_done);
      };
    }
    WEIR_RETURN_IF_ERROR(session.Append(tokens.subspan(seams[i], seams[i + 1] - seams[i]), here));
  }
  return Status();
}

nlohmann::ordered_json ModalitiesJson(const SessionCounters& counters) {
  nlohmann::ordered_json json;
  if (counters.by[0].seen == counters.seen) return json;
  for (int m = 0; m < kNumModalities; ++m) {
    const TokenCounters& c = counters.by[static_cast<size_t>(m)];
    if (c.seen == 0) continue;
    json[ModalityName(static_cast<Modality>(m))] = {
        {"tokens_seen", c.seen}, {"tokens_kept", c.kept}, {"tokens_dropped", c.dropped}};
  }
  return json;
}

nlohmann::ordered_json AnswerJson(const Session& session, const GenerateResult& result, double read_tokens_per_s,
                                  double ttft_ms, const PictureReader* reader) {
  const SessionCounters counters = session.counters();
  const Held held = session.held();
  nlohmann::ordered_json json;
  json["text"] = result.text;
  json["stop"] = StopReasonName(result.reason);
  json["tokens_seen"] = counters.seen;
  json["tokens_kept"] = counters.kept;
  json["tokens_dropped"] = counters.dropped;
  if (const auto modalities = ModalitiesJson(counters); !modalities.is_null()) json["modalities"] = modalities;
  AddPruned(reader, &json);
  json["tokens_pinned"] = held.n_pinned;
  json["oldest_unpinned"] = held.oldest_unpinned;
  json["unbroken_from"] = held.unbroken_from;
  json["tokens_generated"] = result.tokens.size();
  json["peak_bytes"] = session.ledger().peak_bytes();
  json["resident_bytes"] = ResidentBytes();
  json["tokens_per_s"] = read_tokens_per_s;
  json["decode_tokens_per_s"] = result.tokens_per_s;
  json["ttft_ms"] = ttft_ms;
  return json;
}

void AddPruned(const PictureReader* reader, nlohmann::ordered_json* json) {
  if (reader != nullptr && reader->pictures().pruner().info != nullptr)
    (*json)["rows_pruned"] = reader->pictures().n_pruned();
}

std::string KeptText(const Session& session) {
  const int64_t n_seen = session.counters().seen;
  const Held held = session.held();
  std::string out = fmt::format("kept {} of {}", CountText(held.n_kept), CountText(n_seen));
  if (held.n_kept == n_seen) return out;
  out += held.oldest_unpinned < 0 ? std::string(" (nothing unpinned")
                                  : fmt::format(" (oldest unpinned: token {}", CountText(held.oldest_unpinned));
  if (held.unbroken_from == n_seen) return out + "; the newest is missing somewhere)";
  return out + fmt::format("; unbroken from token {})", CountText(held.unbroken_from));
}

void PrintMemoryLine(const Session& session, const PictureReader* reader) {
  const SessionCounters counters = session.counters();
  Print(stderr, "tokens   {} seen, {} kept, {} dropped; session {} of {}; process {}\n", CountText(counters.seen),
        CountText(counters.kept), CountText(counters.dropped), BytesText(session.ledger().peak_bytes()),
        BytesText(session.plan().total_bytes), BytesText(ResidentBytes()));
  if (counters.by[0].seen != counters.seen) {
    std::string line;
    for (int m = 0; m < kNumModalities; ++m) {
      const TokenCounters& c = counters.by[static_cast<size_t>(m)];
      if (c.seen == 0) continue;
      line += fmt::format("{}{} {} seen, {} kept, {} dropped", line.empty() ? "" : "; ",
                          ModalityName(static_cast<Modality>(m)), CountText(c.seen), CountText(c.kept),
                          CountText(c.dropped));
    }
    Print(stderr, "         {}\n", line);
  }
  if (reader != nullptr && reader->pictures().pruner().info != nullptr)
    Print(stderr, "         {}\n", PrunedText(*reader));
  if (counters.dropped > 0) Print(stderr, "{}\n", KeptText(session));
}

void PrintReport(const EncodeReport& report, const std::string& where) {
  if (report.n_replaced > 0) {
    Print(stderr, "weir: warning: {} is not valid UTF-8; {} invalid sequence{} read as U+FFFD\n", Printable(where),
          CountText(report.n_replaced), report.n_replaced == 1 ? " was" : "s were");
  }
  if (report.n_dropped_bytes > 0) {
    Print(stderr, "weir: warning: {} contains {} bytes that this vocabulary has no token for; they were skipped\n",
          Printable(where), CountText(report.n_dropped_bytes));
  }
}

Result<Setup> MakeSetup(const ModelFlags& model_flags, const PotFlags& pot_flags, const std::string& sampling,
                        const ProbeContext& probe, const PictureNeeds& pictures) {
  Setup out;
  WEIR_ASSIGN_OR_RETURN(SessionOptions options, ToSessionOptions(pot_flags));
  PrunerSpec prune;
  if (pictures.flags != nullptr) {
    WEIR_ASSIGN_OR_RETURN(prune, ToPruner(*pictures.flags));
  }
  WEIR_ASSIGN_OR_RETURN(out.model, Load(model_flags));
  WEIR_ASSIGN_OR_RETURN(out.draft, LoadDraft(pot_flags.guesses, *out.model, &options));
  std::optional<std::string_view> question;
  if (!probe.question.empty()) question = probe.question;
  WEIR_RETURN_IF_ERROR(AddProbe(*out.model, model_flags, probe.in_chat, question, &options));
  PictureRoom room;
  if (pictures.flags != nullptr) {
    WEIR_ASSIGN_OR_RETURN(out.encoder, LoadPictureEncoder(*pictures.flags, *out.model));
  }
  if (out.encoder != nullptr) {
    options.pictures = pot_flags.pictures.value_or(true);
    WEIR_ASSIGN_OR_RETURN(room, MeasurePictures(pictures.flags, pictures.more_later));
    room.n_waiting = pictures.n_waiting;
    WEIR_ASSIGN_OR_RETURN(const auto beside, PictureReader::Plan(out.encoder->encoder(), room, prune));
    options.beside.insert(options.beside.end(), beside.begin(), beside.end());
  }
  WEIR_ASSIGN_OR_RETURN(RecallOptions recall, ToRecallOptions(pot_flags.recall));
  if (out.encoder != nullptr) recall.max_rows = out.encoder->encoder().config().max_rows();
  WEIR_RETURN_IF_ERROR(probe.own_archive ? AddRecall(recall, *out.model, &options)
                                         : FileRecall::Plan(recall.spec, recall.tokens, &options));
  WEIR_RETURN_IF_ERROR(AddForms(pot_flags.form_bytes, &options));
  WEIR_ASSIGN_OR_RETURN(out.session, Session::Make(out.model->model(), out.model->backend(), options));
  WEIR_ASSIGN_OR_RETURN(out.forms, FormMemory::Make(pot_flags.form_bytes, *out.session));
  if (out.encoder != nullptr) {
    WEIR_ASSIGN_OR_RETURN(out.reader, PictureReader::Make(out.encoder->encoder(), *out.session, room, prune));
  }
  if (recall.on() && probe.own_archive) {
    WEIR_ASSIGN_OR_RETURN(out.recall, StreamRecall::Make(recall, *out.model, *out.session));
    if (!probe.goes_on) WEIR_RETURN_IF_ERROR(GoOnFrom(*out.recall, std::nullopt));
    PrintArchiveNotes(*out.recall);
  }
  WEIR_ASSIGN_OR_RETURN(out.trace, StartTrace(pot_flags, *out.session, out.model.get()));
  PrintConfiguration(*out.model, *out.session, pot_flags, sampling.c_str());
  PrintDraft(out.draft.get(), out.session->plan());
  if (out.reader != nullptr) PrintEncoder(*out.encoder, *out.reader);
  return out;
}

}  // namespace weir::app
