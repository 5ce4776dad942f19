// SPDX-License-Identifier: Apache-2.0
#include "common.h"
#include "base/ascii.h"

#include <sys/stat.h>
#include <unistd.h>

#include <fmt/core.h>
#include <algorithm>
#include <cerrno>
#include <charconv>
#include <cmath>
#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <string_view>

#include "base/utf8.h"
#include "chat/probe.h"
#include "kv/cache_types.h"
#include "print.h"
#include "text/chat_template.h"

namespace weir::app {
namespace {

std::atomic<bool> stop_flag{false};
std::atomic<void (*)()> hard_stop{nullptr};

void OnSignal(int) {
  if (!stop_flag.exchange(true)) return;
  if (void (*cleanup)() = hard_stop.load()) cleanup();
  _exit(130);
}

int64_t StatusField(const char* field) {
  std::FILE* file = std::fopen("/proc/self/status", "r");
  if (file == nullptr) return 0;
  char line[256];
  long long kib = 0;
  const size_t length = std::strlen(field);
  while (std::fgets(line, sizeof(line), file) != nullptr) {
    if (std::strncmp(line, field, length) == 0) {
      kib = std::strtoll(line + length, nullptr, 10);
      break;
    }
  }
  std::fclose(file);
  return kib * 1024;
}

}  // namespace

int Fail(const Status& status) {
  std::string line = status.message();
  std::replace(line.begin(), line.end(), '\n', ' ');
  line = Printable(line);
  const bool cancelled = status.code() == StatusCode::kCancelled;
  Print(stderr, "weir: {}{}\n", cancelled ? "" : "error: ", line);
  if (cancelled) return 130;
  return status.code() == StatusCode::kInternal ? 1 : 2;
}

std::string Printable(std::string_view text, bool lines) {
  std::string out;
  for (size_t at = 0; at < text.size();) {
    const Utf8Char c = DecodeUtf8(text, at);
    const std::string_view bytes = text.substr(at, static_cast<size_t>(c.bytes));
    at += bytes.size();
    if (!c.valid || c.cp < 0x20 || c.cp == 0x7F) {
      if (lines && (bytes == "\n" || bytes == "\t")) {
        out += bytes;
        continue;
      }
      for (const char byte : bytes) out += fmt::format("\\x{:02x}", static_cast<unsigned char>(byte));
    } else if ((c.cp >= 0x80 && c.cp < 0xA0) || (c.cp >= 0x2028 && c.cp <= 0x202E) ||
               (c.cp >= 0x2066 && c.cp <= 0x2069)) {
      out += fmt::format("\\u{{{:x}}}", static_cast<unsigned>(c.cp));
    } else {
      out += bytes;
    }
  }
  return out;
}

const std::atomic<bool>& StopFlag() { return stop_flag; }
void RequestStop() { stop_flag = true; }
void ClearStop() { stop_flag = false; }
void AtHardStop(void (*cleanup)()) { hard_stop = cleanup; }
void InstallStopHandler() {
  struct sigaction action {};
  action.sa_handler = OnSignal;
  sigaction(SIGINT, &action, nullptr);
  sigaction(SIGTERM, &action, nullptr);
}

void AddModelFlags(CLI::App& app, ModelFlags* flags) {
  CLI::Option* const model =
      app.add_option("-m,--model", flags->path, "model file (GGUF)")->required()->type_name("FILE");
  CLI::Option* const hub = app.add_option_function<std::string>(
                                  "--hf-repo",
                                  [flags, model](const std::string& text) {
                                    auto parsed = ParseHubModel(text);
                                    if (!parsed.ok()) throw CLI::ValidationError("-hf", parsed.status().message());
                                    flags->hub = *std::move(parsed);
                                    model->required(false);
                                  },
                                  "(-hf) instead of -m: a model of huggingface.co that was downloaded before, by its "
                                  "name; FILE may be a type such as Q4_K_M")
                               ->excludes(model)
                               ->type_name("OWNER/NAME[:FILE]");
  app.add_flag("--hf-download", flags->hub_download, "download it with the site's tool `hf` if it is not there")
      ->needs(hub);
  app.add_option("-t,--threads", flags->threads, "worker threads; 0 = one per core")
      ->check(Between(0, 1024))
      ->capture_default_str();
  app.add_option("--device", flags->device,
                 "cpu (default), cuda, auto (cuda if there is one, else cpu) or ref (the slow scalar reference)")
      ->check(NotEmpty())
      ->type_name("NAME");
  app.add_option(
         "--packed", flags->packed,
         "keep the weights, packed for the CPU, in FOLDER as well, and map them from there at the next start: it "
         "starts sooner, programs share them, and the system may drop what is not used; as large as the model")
      ->check(NotEmpty())
      ->envname("WEIR_PACKED")
      ->type_name("FOLDER");
  // CLI11 only allows one letter after a single dash; main.cc expands -ngl.
  app.add_option(
         "--gpu-layers", flags->gpu_layers,
         "layers on the GPU (-ngl), all or none: 0 = use the CPU, more = --device auto unless --device is given")
      ->check(Between(0, 1 << 20))
      ->type_name("N");
}

void AddChatFlags(CLI::App& app, ModelFlags* flags, CLI::Option* needs) {
  CLI::Option* const text =
      app.add_option("--chat-template", flags->chat_template,
                     "chat template to use instead of the model file's: chatml, llama3, gemma ..., or a Jinja text");
  CLI::Option* const file = app.add_option_function<std::string>(
      "--chat-template-file",
      [flags](const std::string& path) {
        auto source = ReadTextFile(path, kMaxChatProgramBytes);
        if (!source.ok()) {
          const bool too_long = source.status().code() == StatusCode::kInvalidArgument;
          throw CLI::ValidationError("--chat-template-file", too_long
                                                                 ? path + " is larger than 256 KiB: no chat template"
                                                                 : source.status().message());
        }
        if (!IsChatProgram(*source)) {
          throw CLI::ValidationError("--chat-template-file", path + " has no {{ ... }}, so it is no Jinja template");
        }
        flags->chat_template = *std::move(source);
      },
      "file with a Jinja chat template to use instead of the model file's");
  file->excludes(text)->type_name("FILE");
  CLI::Option* const arguments =
      app.add_option("--chat-template-kwargs", flags->chat_arguments,
                     "arguments for the chat template, as a JSON object: '{\"enable_thinking\": false}'");
  arguments->type_name("JSON");
  // llama.cpp's flag for what is done anyway.
  app.add_flag("--jinja")->group("");
  if (needs == nullptr) return;
  for (CLI::Option* option : {text, file, arguments}) option->needs(needs);
}

namespace {

// WEIR_CUDA_GRAPH=0 launches a token's operations one by one, for measuring what graphs gain (docs/gpu.md).
Result<bool> WantsCudaGraphs() {
  const char* wanted = std::getenv("WEIR_CUDA_GRAPH");
  if (wanted == nullptr || std::string_view(wanted) == "1") return true;
  if (std::string_view(wanted) == "0") return false;
  return InvalidArgument("WEIR_CUDA_GRAPH is '{}'; it must be 0 or 1", wanted);
}

}  // namespace

Result<std::unique_ptr<LoadedModel>> Load(const ModelFlags& flags, bool plan_only) {
  LoadModelOptions options;
  WEIR_ASSIGN_OR_RETURN(options.cuda_graphs, WantsCudaGraphs());
  options.path = flags.path;
  if (flags.hub) {
    WEIR_ASSIGN_OR_RETURN(options.path, FindHubModel(*flags.hub, flags.hub_download));
  }
  options.n_threads = flags.threads;
  options.device = !flags.device.empty() ? flags.device : flags.gpu_layers > 0 ? "auto" : "cpu";
  options.n_gpu_layers = flags.gpu_layers;
  options.plan_only = plan_only;
  options.packed_folder = flags.packed;
  options.stop = &StopFlag();
  WEIR_ASSIGN_OR_RETURN(std::unique_ptr<LoadedModel> model, LoadedModel::Load(options));
  if (const std::string note = model->packed_note(); !note.empty()) {
    Print(stderr, "weir: {}; running without\n", Printable(note));
  }
  if (!model->device_note().empty()) {
    Print(stderr, "weir: {}; running on the CPU\n", Printable(model->device_note()));
  }
  return model;
}

void AddPotFlags(CLI::App& app, PotFlags* flags) {
  app.add_option("--policy", flags->policy,
                 "policy that decides what to evict when the pot is full: NAME[:key=value,...], see `weir policies`")
      ->capture_default_str()
      ->type_name("NAME");
  CLI::Option* pot = app.add_option("--pot", flags->pot,
                                    "tokens kept per layer and head, however long the input; default: as many as "
                                    "--budget allows, else the context length the model was trained with, up to 4096")
                         ->check(Between(1, 1 << 26))
                         ->type_name("TOKENS");
  app.add_option("-c,--ctx-size", flags->ctx,
                 "another name for --pot, as in llama.cpp; 0 = the default size, up to 4096")
      ->check(Between(0, 1 << 26))
      ->excludes(pot)
      ->type_name("TOKENS");
  app.add_option("--budget", flags->budget,
                 "total bytes the session may use: 256MiB, 1GiB ...; the pot is sized to fit")
      ->check(NotEmpty())
      ->type_name("BYTES");
  app.add_option("-b,--chunk", flags->chunk, "tokens read at once; 0 = a quarter of the pot, at most 256")
      ->check(Between(0, 1 << 16))
      ->capture_default_str();
  app.add_option("--window-layers", flags->window_layers,
                 "what layers with a sliding window hold: the newest tokens, as many as the window needs where that is "
                 "less than the pot, or what the policy keeps for the others: newest, pot")
      ->check(CLI::IsMember({"newest", "pot"}))
      ->capture_default_str();
  app.add_option("--cache-type-k", flags->k_type, "type of stored keys (-ctk): " + CacheTypeNames())
      ->capture_default_str();
  app.add_option("--cache-type-v", flags->v_type, "type of stored values (-ctv): the same")->capture_default_str();
  app.add_option_function<std::string>(
         "--cache-type", [flags](const std::string& type) { flags->k_type = flags->v_type = type; },
         "type of both; small = the pair that tells most in the bytes of a given pot")
      ->excludes("--cache-type-k")
      ->excludes("--cache-type-v")
      ->type_name("TYPE");
  app.add_option("--on-overflow", flags->on_overflow,
                 "when the pot is full: evict tokens and report it, or refuse further input with an error")
      ->check(CLI::IsMember({"evict", "error"}))
      ->capture_default_str();
}

void AddVerboseFlag(CLI::App& app, PotFlags* flags) {
  app.add_flag("-v,--verbose", flags->verbose, "print every option of the policy at startup");
}

void AddTraceFlag(CLI::App& app, PotFlags* flags) {
  CLI::Option* trace =
      app.add_option("--trace", flags->trace,
                     "log what is evicted, when and why, to FILE, for `weir trace` and `weir remembers`")
          ->check(NotEmpty())
          ->type_name("FILE");
  app.add_flag("--trace-scores", flags->trace_scores,
               "with --trace: also log the scores of what was kept, for attention maps; the file is far larger")
      ->needs(trace);
  app.add_option("--trace-attention", flags->trace_attention,
                 "with --trace: also log where the ends of prompts and the tokens of answers attend, for the first N "
                 "such tokens; see `weir trace --attention`")
      ->check(Between(0, 1 << 20))
      ->needs(trace)
      ->type_name("N");
}

Result<std::unique_ptr<TraceWriter>> StartTrace(const PotFlags& flags, Session& session, const LoadedModel* model) {
  if (flags.trace.empty()) return std::unique_ptr<TraceWriter>();
  WEIR_ASSIGN_OR_RETURN(const PolicySpec policy, ParsePolicySpec(flags.policy));
  TraceInfo info;
  info.model = session.model().config().name;
  info.policy = policy.text;
  info.pot = session.plan().pot;
  info.all_scores = flags.trace_scores;
  info.attention_rows = flags.trace_attention;
  if (model != nullptr) {
    if (info.model.empty()) info.model = model->file().path();
    info.piece = [tokenizer = &model->tokenizer()](int32_t id) {
      return tokenizer->TokenBytes(id, /*show_special=*/true);
    };
  }
  WEIR_ASSIGN_OR_RETURN(std::unique_ptr<TraceWriter> trace, TraceWriter::Open(flags.trace, std::move(info)));
  session.SetTrace(trace.get());
  return trace;
}

Status FinishTrace(TraceWriter* trace, const Session& session) {
  return trace == nullptr ? Status() : trace->Close(session.pot(), session.counters().seen);
}

Status AddProbe(const LoadedModel& model, const ModelFlags& flags, bool in_chat,
                std::optional<std::string_view> question, SessionOptions* options) {
  if (!in_chat) return PrepareProbe(model.tokenizer(), nullptr, question, options);
  // A missing or unknown template is reported where the conversation needs it.
  const auto chat = ChatTemplate::ForFile(model.file(), model.tokenizer(), flags.chat_template, flags.chat_arguments);
  return PrepareProbe(model.tokenizer(), chat.ok() ? &*chat : nullptr, question, options);
}

Result<SessionOptions> ToSessionOptions(const PotFlags& flags) {
  SessionOptions options;
  WEIR_ASSIGN_OR_RETURN(options.policy, ParsePolicySpec(flags.policy));
  options.pot_slots = flags.pot > 0 ? flags.pot : std::max(flags.ctx, 0);
  if (!flags.budget.empty()) {
    WEIR_ASSIGN_OR_RETURN(options.budget_bytes, ParseBytes(flags.budget));
    if (options.budget_bytes <= 0) return InvalidArgument("--budget {}: expected more than 0 bytes", flags.budget);
  }
  options.chunk_rows = flags.chunk;
  options.windows_in_pot = flags.window_layers == "pot";
  options.max_guesses = flags.guesses.lookup;
  options.aside_slots = flags.aside;
  options.beside = flags.beside;
  WEIR_ASSIGN_OR_RETURN(options.k_type, ParseCacheType(flags.k_type, CachePart::kKeys));
  WEIR_ASSIGN_OR_RETURN(options.v_type, ParseCacheType(flags.v_type, CachePart::kValues));
  options.watch_attention = flags.trace_attention > 0;
  options.on_overflow = flags.on_overflow == "error" ? OnOverflow::kError : OnOverflow::kEvict;
  options.pictures = flags.pictures.value_or(false);
  return options;
}

Result<int64_t> ParseBytes(const std::string& text) {
  double value = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  const std::string unit = AsciiLower(std::string_view(end, text.data() + text.size()));
  double scale = 0;
  for (const auto& [name, bytes] : {std::pair<const char*, double>{"", 1.0},
                                    {"b", 1.0},
                                    {"k", 1024.0},
                                    {"kib", 1024.0},
                                    {"m", 1048576.0},
                                    {"mib", 1048576.0},
                                    {"g", 1073741824.0},
                                    {"gib", 1073741824.0},
                                    {"kb", 1e3},
                                    {"mb", 1e6},
                                    {"gb", 1e9}}) {
    if (unit == name) scale = bytes;
  }
  if (error != std::errc() || scale == 0 || !(value >= 0) || value * scale > 1e15) {
    return InvalidArgument("--budget '{}' is not a size; write for example 262144, 64KiB, 256MiB or 1.5GiB", text);
  }
  return static_cast<int64_t>(std::llround(value * scale));
}

Status FlushOutput() {
  errno = 0;
  if (std::fflush(stdout) == 0 && std::ferror(stdout) == 0) return Status();
  return IoError("cannot write the output{}{}", errno != 0 ? ": " : "", errno != 0 ? std::strerror(errno) : "");
}

const CLI::Validator& NotEmpty() {
  static const CLI::Validator validator(
      [](std::string& value) { return value.empty() ? std::string("must not be empty") : std::string(); }, "");
  return validator;
}

std::string BytesText(int64_t bytes) {
  if (bytes >= (int64_t{1} << 30)) return fmt::format("{:.2f} GiB", static_cast<double>(bytes) / (1 << 30));
  if (bytes >= (1 << 20)) return fmt::format("{:.1f} MiB", static_cast<double>(bytes) / (1 << 20));
  return fmt::format("{:.1f} KiB", static_cast<double>(bytes) / 1024);
}

std::string CountText(int64_t n) {
  std::string digits = std::to_string(n);
  for (int64_t at = static_cast<int64_t>(digits.size()) - 3; at > (n < 0 ? 1 : 0); at -= 3) digits.insert(at, ",");
  return digits;
}

std::string DurationText(double seconds) {
  const int64_t s = std::llround(std::ceil(std::clamp(seconds, 0.0, 1e9)));
  if (s < 60) return fmt::format("{} s", static_cast<int>(s));
  if (s < 3600) return fmt::format("{} min {:02} s", static_cast<int>(s / 60), static_cast<int>(s % 60));
  return fmt::format("{} h {:02} min", static_cast<int>(s / 3600), static_cast<int>(s / 60 % 60));
}

int64_t ResidentBytes() { return StatusField("VmRSS:"); }
int64_t PeakResidentBytes() { return StatusField("VmHWM:"); }

std::string ModelName(const LoadedModel& model) {
  const std::string& name = model.model().config().name;
  return name.empty() ? model.file().path().substr(model.file().path().find_last_of('/') + 1) : name;
}

std::string PolicyText(const PolicySpec& policy, const PotFlags& flags) {
  // Of a profile, what it came to: the file may change.
  if (flags.verbose || !policy.profile.empty()) return Printable(policy.text);
  std::string said;
  for (const PolicyOptionInfo& option : policy.info->options) {
    if (!policy.given.contains(option.key)) continue;
    said += (said.empty() ? "" : ",") + std::string(option.key) + "=" + OptionText(policy, option);
  }
  return Printable(policy.info->name + (said.empty() ? "" : ":" + said));
}

void PrintDefaultPot(const PotFlags& flags, int32_t n_slots, const ModelConfig& model) {
  if (flags.ctx != 0 || n_slots >= model.n_ctx_train) return;
  Print(stderr, "         -c 0 means {} tokens here; for all {} that the model was trained with, use -c {}\n",
        CountText(n_slots), CountText(model.n_ctx_train), model.n_ctx_train);
}

void PrintConfiguration(const LoadedModel& model, const Session& session, const PotFlags& flags, const char* sampling) {
  const ModelConfig& config = model.model().config();
  const SessionPlan& plan = session.plan();
  Print(stderr, "model    {} ({}, {}), weights {}{}\n",
        Printable(config.name.empty() ? model.file().path() : config.name), config.architecture, model.backend().name(),
        BytesText(model.ledger().used_bytes()),
        model.maps_weights()    ? ", mapped"
        : model.keeps_weights() ? ", kept for the next start"
                                : "");
  Print(stderr, "pot      {} tokens, policy {}, positions {}, keys {}, values {}, {} tokens read at once\n",
        plan.pot_slots, PolicyText(session.policy(), flags), PositionsName(plan.pot.positions),
        InfoOf(plan.pot.k_type).name, InfoOf(plan.pot.v_type).name, plan.chunk_rows);
  PrintDefaultPot(flags, plan.pot_slots, config);
  Print(stderr, "memory   {} for this session, fixed from now on\n", BytesText(plan.total_bytes));
  if (sampling[0] != '\0') Print(stderr, "sampling {}\n", sampling);
  if (plan.pot.n_slots > config.n_ctx_train) {
    const std::string excerpts =
        plan.excerpt_slots > 0 ? fmt::format(", with {} more for what is recalled,", plan.excerpt_slots) : "";
    Print(stderr, "weir: warning: the pot of {} tokens{} is longer than the {} the model was trained with\n",
          plan.pot_slots, excerpts, config.n_ctx_train);
  }
  const PolicySpec& spec = session.policy();
  if (!spec.profile.empty() && (spec.profile_pot != plan.pot_slots || spec.profile_model != ModelName(model))) {
    Print(stderr, "weir: warning: profile {} was tuned with {} and a pot of {}\n", Printable(spec.profile),
          Printable(spec.profile_model), spec.profile_pot);
  }
}

Result<std::string> ReadTextFile(const std::string& path, int64_t max_bytes) {
  std::FILE* file = path == "-" ? stdin : std::fopen(path.c_str(), "rb");
  if (file == nullptr) return IoError("cannot read {}: {}", path, std::strerror(errno));
  struct stat info {};
  std::string out;
  bool failed = fstat(fileno(file), &info) != 0;
  if (!failed && S_ISDIR(info.st_mode)) {
    if (file != stdin) std::fclose(file);
    return IoError("cannot read {}: it is a directory", path);
  }
  char buffer[1 << 16];
  for (size_t n; !failed && (n = std::fread(buffer, 1, sizeof(buffer), file)) > 0;) {
    out.append(buffer, n);
    if (static_cast<int64_t>(out.size()) > max_bytes) {
      if (file != stdin) std::fclose(file);
      return InvalidArgument("{} is larger than {}; use `weir read` for long texts", path, BytesText(max_bytes));
    }
  }
  failed = failed || std::ferror(file) != 0;
  const int code = errno;
  if (file != stdin) std::fclose(file);
  if (failed) return IoError("cannot read {}: {}", path, std::strerror(code));
  return out;
}

}  // namespace weir::app
