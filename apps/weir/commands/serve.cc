// weir-plugin: command
// SPDX-License-Identifier: Apache-2.0
// weir serve: serves the model over HTTP.
#include <malloc.h>
#include <sys/stat.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <initializer_list>
#include <memory>
#include <string>
#include <string_view>
#include <thread>
#include <utility>
#include <vector>

#include "answer.h"
#include "base/caught.h"
#include "commands/command.h"
#include "common.h"
#include "memory_reserve.h"
#include "mqtt_flags.h"
#include "pictures.h"
#include "print.h"
#include "recall_flags.h"
#include "serve/event_pictures.h"
#include "serve/loading_door.h"
#include "serve/origin.h"
#include "serve/png.h"
#include "serve/server.h"
#include "server_log.h"
#include "server_sandbox.h"
#include "telemetry_flags.h"

namespace weir::app {
namespace {

constexpr int64_t kSessionsWithRecall = 8;  // that a server without --recall-disk-total has room for

struct ServeFlags {
  SamplingFlags sampling;  // the defaults for requests
  std::string host = "127.0.0.1", api_key_file, api_key, budget, max_body = "8MiB", max_bodies, snapshots, name;
  int port = 8080, pots = 2, queue = 256, connections = 64, timeout = 60, predict = 1024, together = 8;
  std::string mmproj, prune, node;
  std::vector<std::string> origins, webhooks;
  std::string webhook_secret_file, webhook_queue;
  MqttFlags mqtt;
  TelemetryFlags telemetry;
  bool hand_over = false, cache_prompt = true, sandbox = false, public_metrics = false;
  int drain = 30, session_idle = 0;
  DecodeOptions decode;
  int media_timeout_s = 30, frames_waiting = 4;
  std::string recall_disk_total, form_memory, s3_endpoint;
  bool durable = false;
  int lease = 15;
};

// A model's name as an id, which clients put into paths and configuration files: "SmolLM2 135M" is SmolLM2-135M.
std::string ModelId(std::string name) {
  for (char& c : name) {
    const bool fine = (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '.' ||
                      c == '_' || c == '-' || c == ':';
    if (!fine) c = '-';
  }
  return name;
}

Result<int64_t> PositiveBytes(const std::string& text, const char* flag) {
  const auto bytes = ParseBytes(text);
  if (!bytes.ok() || *bytes <= 0) return InvalidArgument("{} {}: expected a size such as 64MiB", flag, text);
  return *bytes;
}

// Splits a text of keys at `separator`. White space around a key is removed, because headers do not carry it.
Result<std::vector<std::string>> ParseKeys(std::string_view text, char separator, const std::string& where) {
  constexpr std::string_view kSpace = " \t\r\n";
  std::vector<std::string> out;
  for (int n = 1; !text.empty(); ++n) {
    const std::string_view part = text.substr(0, text.find(separator));
    text.remove_prefix(std::min(part.size() + 1, text.size()));
    const size_t begin = part.find_first_not_of(kSpace);
    if (begin == part.npos) continue;
    std::string key(part.substr(begin, part.find_last_not_of(kSpace) + 1 - begin));
    if (std::any_of(key.begin(), key.end(), [](unsigned char c) { return c < 0x20 || c == 0x7F; })) {
      return InvalidArgument("{}: {} {} has a control character, which no request can send", where,
                             separator == '\n' ? "line" : "key", n);
    }
    out.push_back(std::move(key));
  }
  if (out.empty()) return InvalidArgument("{} contains no key", where);
  return out;
}

// The limit on disk is what allows recall: what eight sessions need where --recall is given, else nothing.
Status ToRecall(const PotFlags& pot_flags, const ServeFlags& flags, ServerOptions* out) {
  RecallFlags given = pot_flags.recall;
  const std::string dir = std::exchange(given.dir, "");
  const int tokens = std::exchange(given.tokens, -1);
  WEIR_ASSIGN_OR_RETURN(out->host.recall, ToRecallOptions(given));
  RecallOptions& recall = out->host.recall;
  recall.dir = dir;
  recall.tokens = tokens;
  while (recall.dir.size() > 1 && recall.dir.back() == '/') recall.dir.pop_back();
  WEIR_ASSIGN_OR_RETURN(recall.disk_bytes, PositiveBytes(given.disk, "--recall-disk"));
  int64_t& total = out->host.recall_disk_total;
  if (!flags.recall_disk_total.empty()) {
    WEIR_ASSIGN_OR_RETURN(total, PositiveBytes(flags.recall_disk_total, "--recall-disk-total"));
  } else if (recall.on()) {
    total = kSessionsWithRecall * std::min(recall.disk_bytes, INT64_MAX / kSessionsWithRecall);
  }
  if (total == 0 && (!recall.dir.empty() || recall.tokens != -1)) {
    return InvalidArgument(
        "--recall-dir and --recall-tokens need --recall, for example --recall words, or --recall-disk-total for "
        "sessions "
        "that ask for it");
  }
  if (total > 0 && flags.hand_over && recall.dir.empty()) {
    return InvalidArgument("recall with --hand-over needs --recall-dir: a folder that all these servers share");
  }
  return Status();
}

bool IsFolder(const std::string& snapshots) { return snapshots.find("://") == snapshots.npos; }

std::string FromEnvironment(std::initializer_list<const char*> names) {
  for (const char* const name : names) {
    if (const char* const value = std::getenv(name); value != nullptr && *value != '\0') return value;
  }
  return "";
}

// Secrets come from the environment, under the names that other programs use: process lists show arguments.
StoreOptions ToStoreOptions(const ServeFlags& flags, const std::string& spool) {
  StoreOptions out;
  out.spool = spool;
  out.s3_endpoint =
      flags.s3_endpoint.empty() ? FromEnvironment({"AWS_ENDPOINT_URL_S3", "AWS_ENDPOINT_URL"}) : flags.s3_endpoint;
  if (const std::string region = FromEnvironment({"AWS_REGION", "AWS_DEFAULT_REGION"}); !region.empty()) {
    out.s3_region = region;
  }
  out.s3_key = FromEnvironment({"AWS_ACCESS_KEY_ID"});
  out.s3_secret = FromEnvironment({"AWS_SECRET_ACCESS_KEY"});
  out.s3_session_token = FromEnvironment({"AWS_SESSION_TOKEN"});
  out.redis_user = FromEnvironment({"REDISCLI_USER"});
  out.redis_password = FromEnvironment({"REDISCLI_AUTH"});
  return out;
}

Result<ServerOptions> ToOptions(const ModelFlags& model_flags, const PotFlags& pot_flags, const ServeFlags& flags) {
  ServerOptions out;
  WEIR_ASSIGN_OR_RETURN(out.host.session, ToSessionOptions(pot_flags));
  out.host.chat_template = model_flags.chat_template;
  out.host.chat_arguments = model_flags.chat_arguments;
  out.host.answer_pots = flags.pots;
  out.host.max_waiting = flags.queue;
  out.host.max_together = flags.together;
  out.host.cache_prompt = flags.cache_prompt;
  if (!flags.budget.empty()) {
    WEIR_ASSIGN_OR_RETURN(out.host.budget_bytes, PositiveBytes(flags.budget, "--budget"));
  }
  if (!flags.form_memory.empty()) {
    WEIR_ASSIGN_OR_RETURN(out.host.form_bytes, ParseBytes(flags.form_memory));
  } else if (out.host.budget_bytes > 0) {
    // A small budget is for sessions first.
    const int64_t share = std::min(out.host.form_bytes, out.host.budget_bytes / 8);
    out.host.form_bytes = share < kLeastFormBytes ? 0 : share;
  }
  if (!CheckFormBytes(out.host.form_bytes).ok()) {
    return InvalidArgument("--form-memory {}: expected 0, for no forms, or at least {} bytes", flags.form_memory,
                           kLeastFormBytes);
  }
  WEIR_ASSIGN_OR_RETURN(out.http.max_body_bytes, PositiveBytes(flags.max_body, "--max-body"));
  if (!flags.max_bodies.empty()) {
    WEIR_ASSIGN_OR_RETURN(out.http.max_bodies_bytes, PositiveBytes(flags.max_bodies, "--max-bodies"));
    if (out.http.max_bodies_bytes < out.http.max_body_bytes) {
      return InvalidArgument("--max-bodies {} has no room for one body of {}; raise it, or lower --max-body",
                             flags.max_bodies, flags.max_body);
    }
  }
  out.http.n_threads = flags.connections;
  out.http.request_timeout_s = flags.timeout;
  out.host.decode = flags.decode;
  if (!flags.prune.empty()) {
    WEIR_ASSIGN_OR_RETURN(out.host.prune, ParsePrunerSpec(flags.prune));
  }
  out.host.decode.timeout_ms = int64_t{1000} * flags.media_timeout_s;
  out.host.frames_waiting = flags.frames_waiting;
  out.address = flags.host;
  out.port = flags.port;
  WEIR_RETURN_IF_ERROR(flags.sampling.sampler.Validate());
  out.answers.sampler = flags.sampling.sampler;
  if (flags.sampling.seed >= 0) out.answers.seed = static_cast<uint64_t>(flags.sampling.seed);
  out.answers.max_tokens = flags.predict;
  if (!flags.api_key.empty()) {
    WEIR_ASSIGN_OR_RETURN(out.api_keys, ParseKeys(flags.api_key, ',', "--api-key"));
  }
  if (!flags.api_key_file.empty()) {
    WEIR_ASSIGN_OR_RETURN(const std::string text, ReadTextFile(flags.api_key_file, 1 << 16));
    WEIR_ASSIGN_OR_RETURN(out.api_keys, ParseKeys(text, '\n', flags.api_key_file));
  }
  out.host.webhooks.targets = flags.webhooks;
  out.host.webhooks.queue = flags.webhook_queue;
  if (!flags.webhooks.empty()) {
    if (flags.webhook_secret_file.empty()) {
      return InvalidArgument("--webhook needs --webhook-secret-file FILE: events are signed with what it holds");
    }
    WEIR_ASSIGN_OR_RETURN(out.host.webhooks.secret, ReadTextFile(flags.webhook_secret_file, 1 << 12));
  }
  if (flags.mqtt.pictures && flags.mmproj.empty()) {
    return InvalidArgument("--mqtt-pictures needs --mmproj: without it there are no pictures");
  }
  WEIR_ASSIGN_OR_RETURN(out.host.mqtt, ToMqtt(flags.mqtt));
  WEIR_ASSIGN_OR_RETURN(out.host.telemetry, ToTelemetry(flags.telemetry, flags.node));
  out.origins = flags.origins;
  out.public_metrics = flags.public_metrics;
  if (out.api_keys.empty() && std::find(out.origins.begin(), out.origins.end(), "*") != out.origins.end()) {
    return InvalidArgument("--allow-origin '*' lets every web page use this server, so it needs --api-key");
  }
  WEIR_RETURN_IF_ERROR(ToRecall(pot_flags, flags, &out));
  out.folder = flags.snapshots;
  out.store_options = ToStoreOptions(flags, out.host.recall.temp_dir);
  out.hand_over = flags.hand_over;
  out.handover.durable = flags.durable;
  out.handover.lease = std::chrono::seconds(flags.lease);
  if (flags.durable && out.host.recall_disk_total > 0) {
    return InvalidArgument(
        "--durable does not keep the archives of recall: leave out --recall and --recall-disk-total");
  }
  out.session_idle = std::chrono::seconds(flags.session_idle);
  out.host.node = flags.node;
  if (out.folder.empty()) return out;
  const auto info = StoreOf(out.folder);
  if (!info.ok()) return InvalidArgument("--snapshots {}", info.status().message());
  if (struct stat is{}; IsFolder(out.folder) && (stat(out.folder.c_str(), &is) != 0 || !S_ISDIR(is.st_mode))) {
    return NotFound("--snapshots {} is not a folder", out.folder);
  }
  return out;
}

// Memory that requests gave back returns to the system. glibc's own thresholds grow with the largest block that was
// ever freed, and every thread may keep an arena of its own: after large bodies an idle server kept hundreds of
// megabytes. Fixed thresholds and few arenas bound what is kept; the model's memory is not allocated per request.
void KeepLittleMemory() {
#ifdef __GLIBC__
  mallopt(M_MMAP_THRESHOLD, 1 << 20);
  mallopt(M_TRIM_THRESHOLD, 2 << 20);
  mallopt(M_ARENA_MAX, 4);
#endif
}

// Once every file of the configuration has been read, and before there is another thread.
Status EnterServerSandbox(const RecallOptions& recall, const ServeFlags& flags, const PotFlags& pot,
                          ModelFlags* model) {
  if (model->hub) {
    WEIR_ASSIGN_OR_RETURN(model->path, FindHubModel(*model->hub, model->hub_download));
    model->hub.reset();
  }
  ServerPaths paths;
  paths.read = {model->path, flags.mmproj, pot.guesses.draft, flags.mqtt.ca_file};
  paths.write = {recall.dir, model->packed, flags.webhook_queue};
  if (!flags.snapshots.empty()) paths.write.push_back(IsFolder(flags.snapshots) ? flags.snapshots : recall.temp_dir);
  if (recall.dir.empty() && (recall.on() || !flags.recall_disk_total.empty())) paths.write.push_back(recall.temp_dir);
  if (!model->device.empty() || model->gpu_layers > 0) paths.write.emplace_back("/dev");
  const Status entered = EnterSandbox(ServerSandbox(paths));
  if (entered.ok()) return Status();
  return Status(entered.code(), "--sandbox: " + entered.message());
}

Status Serve(ModelFlags model_flags, const PotFlags& pot_flags, const ServeFlags& flags) {
  WEIR_ASSIGN_OR_RETURN(ServerOptions options, ToOptions(model_flags, pot_flags, flags));
  const auto log = std::make_shared<ServerLog>(flags.telemetry.log_format == "json");
  if (log->json()) options.host.telemetry.log = [log](const RequestRecord& record) { log->Request(record); };
  if (flags.sandbox) WEIR_RETURN_IF_ERROR(EnterServerSandbox(options.host.recall, flags, pot_flags, &model_flags));
  // A port that is chosen at the end is one that nobody asks before.
  std::unique_ptr<LoadingDoor> door;
  if (flags.port != 0) {
    WEIR_ASSIGN_OR_RETURN(door, LoadingDoor::Open(flags.host, flags.port));
  }
  WEIR_ASSIGN_OR_RETURN(const std::unique_ptr<LoadedModel> model, Load(model_flags));
  WEIR_ASSIGN_OR_RETURN(const std::unique_ptr<LoadedDraft> draft,
                        LoadDraft(pot_flags.guesses, *model, &options.host.session));
  std::unique_ptr<LoadedEncoder> encoder;
  if (!flags.mmproj.empty()) {
    WEIR_ASSIGN_OR_RETURN(encoder, LoadedEncoder::Load(flags.mmproj, *model));
    options.host.encoder = encoder.get();
  }
  options.host.model_name = flags.name.empty() ? ModelId(ModelName(*model)) : flags.name;
  const std::string policy = PolicyText(options.host.session.policy, pot_flags);
  const bool open = flags.api_key.empty() && flags.api_key_file.empty();
  WEIR_ASSIGN_OR_RETURN(const std::unique_ptr<Server> server,
                        Server::Make(*model, std::move(options), [&] { door.reset(); }));
  const Host& host = server->host();
  log->Say("model", "{} ({}), weights {}", Printable(host.options().model_name), model->backend().name(),
           BytesText(model->ledger().used_bytes()));
  log->Say("pot", "{} tokens, policy {}, {} each", host.plan().pot_slots, policy, BytesText(host.session_bytes()));
  if (!log->json()) {
    PrintDefaultPot(pot_flags, host.plan().pot_slots, model->model().config());
    PrintDraft(draft.get(), host.plan());
  }
  if (encoder != nullptr) {
    log->Say("vision", "{}, {} tokens a picture, weights {}, pictures up to {} pixels a side",
             encoder->encoder().config().projector, encoder->encoder().config().max_rows(),
             BytesText(encoder->ledger().used_bytes()), host.options().decode.max_side);
    if (const PrunerSpec& prune = host.options().prune; prune.info != nullptr) {
      log->Say("pruner", "{}, keeps {} of a picture's {} tokens", prune.text, host.vision()->encoder->n_rows(),
               encoder->encoder().config().n_rows);
    }
  }
  log->Say("memory", "{} for all sessions, {} of it for {} answer pots", BytesText(host.ledger().budget_bytes()),
           BytesText(host.ledger().used_bytes()), host.options().answer_pots);
  if (host.recall().allowed()) {
    const RecallOptions& recall = host.options().recall;
    log->Say("recall", "{}, archives of up to {} each, {} in all, {}",
             recall.on() ? recall.spec.text : std::string("for sessions that ask for it"), BytesText(recall.disk_bytes),
             BytesText(host.recall().disk_total()),
             recall.dir.empty() ? "in files that end with the server" : "in " + Printable(recall.dir));
  }
  if (const WebhookSender* const webhooks = host.webhooks(); webhooks != nullptr) {
    log->Say("webhooks", "to {} addresses, {} events wait, {}", host.options().webhooks.targets.size(),
             webhooks->counters().waiting,
             host.options().webhooks.queue.empty() ? std::string("which end with the server")
                                                   : "in " + Printable(host.options().webhooks.queue));
  }
  if (host.mqtt() != nullptr) log->Say("mqtt", "events go to {}", Printable(host.options().mqtt.address));
  log->Say("sampling", "{}; requests may override it", SamplingText(flags.sampling));
  if (open && flags.host != "127.0.0.1" && flags.host != "localhost" && flags.host != "::1") {
    log->Warn(fmt::format("anyone who can reach {} can use this server; require a key with --api-key",
                          Printable(flags.host)));
  }
  // Signals only set a flag; this thread polls it.
  std::atomic<bool> ended{false};
  std::thread watch;
  const auto look = [&, drained = false]() mutable {
    for (; !ended; std::this_thread::sleep_for(std::chrono::milliseconds(50))) {
      RenewMemoryReserve();
      if (!StopFlag()) continue;
      const Status left = drained ? Status() : Caught([&] { return server->Drain(std::chrono::seconds(flags.drain)); });
      if (!left.ok()) {
        log->Tell("handover", fmt::format("a session was not handed over: {}", Printable(left.message())));
      }
      drained = true;
      server->Stop();  // called repeatedly, because it does nothing before the server listens
    }
  };
  WEIR_RETURN_IF_ERROR(Caught([&] {
    watch = std::thread(look);
    return Status();
  }));
  const Status status = Caught([&] {
    log->Say("serving", "http://{}:{}", Printable(flags.host), server->port());
    return server->Run();
  });
  ended = true;
  watch.join();
  if (StopFlag()) {
    log->Tell("end", "stopped");
    return Status();
  }
  return status;
}

void AddWebhookFlags(CLI::App& app, ServeFlags* flags) {
  CLI::Option* const webhook =
      app.add_option("--webhook", flags->webhooks,
                     "address that rules may send their events to, such as https://hooks.example/weir; may be repeated")
          ->check(NotEmpty())
          ->expected(1)
          ->take_all()
          ->type_name("URL");
  app.add_option("--webhook-secret-file", flags->webhook_secret_file,
                 "file with the secret that signs events: 16 to 256 bytes, or whsec_ and base64")
      ->check(NotEmpty())
      ->needs(webhook)
      ->type_name("FILE");
  app.add_option("--webhook-queue", flags->webhook_queue,
                 "file of events that wait to be delivered; without it they end with the server")
      ->check(NotEmpty())
      ->needs(webhook)
      ->type_name("FILE");
}

void AddVisionFlags(CLI::App& app, ServeFlags* flags) {
  CLI::Option* const mmproj =
      app.add_option("--mmproj", flags->mmproj,
                     "the model's vision encoder, an `mmproj` file (-mm), for pictures and video")
          ->check(NotEmpty())
          ->type_name("FILE");
  app.add_option(
         "--prune", flags->prune,
         "pruner that selects which picture tokens the language model sees: NAME[:key=value,...], see `weir pruners`")
      ->check(NotEmpty())
      ->needs(mmproj)
      ->type_name("NAME");
  app.add_option("--max-side", flags->decode.max_side,
                 "shrink pictures and frames to at most this many pixels on the longer side")
      ->check(Between(16, 1 << 14))
      ->capture_default_str()
      ->type_name("PIXELS");
  app.add_option("--decoders", flags->decode.lanes, "pictures and videos decoded at once; further ones wait")
      ->check(Between(1, 256))
      ->capture_default_str();
  app.add_option("--media-timeout", flags->media_timeout_s,
                 "maximum wait for ffmpeg to deliver a picture or the next video frame")
      ->check(Between(1, 86400))
      ->capture_default_str()
      ->type_name("SECONDS");
  AddMediaSandboxFlag(app, &flags->decode.sandbox);
  app.add_option("--decode-time", flags->decode.decode_s,
                 "maximum time to decode all pictures and videos of one request")
      ->check(Between(1, 1 << 30))
      ->capture_default_str()
      ->type_name("SECONDS");
  app.add_option("--max-frames", flags->decode.max_frames,
                 "maximum pictures and video frames in one request, repeated frames included")
      ->check(Between(1, 1 << 30))
      ->capture_default_str();
  app.add_option("--frames-waiting", flags->frames_waiting,
                 "frames of a session's live video that may wait for the model; older ones are dropped")
      ->check(Between(1, 256))
      ->capture_default_str();
}

Action AddServe(CLI::App& sub) {
  auto model = std::make_shared<ModelFlags>();
  auto pot = std::make_shared<PotFlags>();
  auto flags = std::make_shared<ServeFlags>();
  AddModelFlags(sub, model.get());
  AddChatFlags(sub, model.get());
  AddPotFlags(sub, pot.get());
  AddGuessFlags(sub, &pot->guesses);
  AddVerboseFlag(sub, pot.get());
  sub.remove_option(sub.get_option("--budget"));  // here it is for all sessions together
  sub.add_option("--budget", flags->budget,
                 "bytes that all sessions together may use: 256MiB, 1GiB ...; default: enough for --answer-pots and "
                 "eight sessions with rules")
      ->check(NotEmpty())
      ->type_name("BYTES");
  sub.add_option(
         "--form-memory", flags->form_memory,
         "memory for answers that are held to a form or to the schemas of tools, of all requests, and a part of "
         "--budget; 0 = there are none; default: 32MiB, at most an eighth of --budget, none where that is below 1MiB")
      ->check(NotEmpty())
      ->type_name("BYTES");
  sub.add_option("--host", flags->host, "address to listen on; 0.0.0.0 = every address of this machine")
      ->check(NotEmpty())
      ->capture_default_str();
  sub.add_option("--port", flags->port, "port to listen on; 0 = any free port, which is printed")
      ->check(Between(0, 65535))
      ->capture_default_str();
  CLI::Option* key = sub.add_option("--api-key", flags->api_key, "key that every request must send; several: KEY,KEY")
                         ->check(NotEmpty())
                         ->type_name("KEY");
  sub.add_option("--api-key-file", flags->api_key_file,
                 "file with the keys, one per line; unlike --api-key, process lists do not show them")
      ->check(NotEmpty())
      ->excludes(key)
      ->type_name("FILE");
  sub.add_flag("--public-metrics", flags->public_metrics,
               "answer /metrics without a key, for scrapers and schedulers that send none");
  sub.add_option("--allow-origin", flags->origins,
                 "site whose pages may use the server, such as https://app.example; may be repeated; with a key, '*' "
                 "allows every site")
      ->check(CLI::Validator(
          [](std::string& origin) {
            return IsOrigin(origin) ? std::string() : "must be an origin such as https://app.example, or '*'";
          },
          ""))
      ->expected(1)
      ->take_all()
      ->type_name("ORIGIN");
  sub.add_option("--name", flags->name, "model name to report; default: the name in the model file")->check(NotEmpty());
  sub.add_option("--answer-pots", flags->pots, "chats and completions answered at once")
      ->check(Between(1, 1024))
      ->capture_default_str();
  sub.add_option("--together", flags->together, "answers decoded in one forward pass; 1 = each on its own")
      ->check(Between(1, 256))
      ->capture_default_str();
  sub.add_flag("--cache-prompt,!--no-cache-prompt", flags->cache_prompt,
               "reuse the part of a chat's or completion's prompt that an answer pot still holds; on by default");
  sub.add_option("--queue", flags->queue, "requests that may wait for the engine; further ones are refused (429)")
      ->check(Between(1, 1 << 20))
      ->capture_default_str();
  sub.add_option("--connections", flags->connections, "maximum requests held open at once")
      ->check(Between(1, 4096))
      ->capture_default_str();
  sub.add_option("--timeout", flags->timeout, "seconds a request may take to arrive")
      ->check(Between(1, 86400))
      ->capture_default_str();
  sub.add_option("--max-body", flags->max_body, "maximum size of a request body")
      ->capture_default_str()
      ->type_name("BYTES");
  sub.add_option("--max-bodies", flags->max_bodies,
                 "maximum size of all request bodies together, further requests are refused (429); default: four times "
                 "--max-body, at least 32MiB")
      ->check(NotEmpty())
      ->type_name("BYTES");
  sub.add_option("-n,--predict", flags->predict,
                 "maximum answer length in tokens if a request sets no limit; -1 = until the model ends it")
      ->check(Between(-1, 1 << 30))
      ->capture_default_str();
  AddSamplingFlags(sub, &flags->sampling);
  sub.add_option("--snapshots", flags->snapshots,
                 "where sessions are saved and restored from: a folder, s3://BUCKET/PREFIX or redis://HOST:PORT/DB; "
                 "nothing outside it is used")
      ->check(NotEmpty())
      ->type_name("PLACE");
  CLI::Option* snapshots = sub.get_option("--snapshots");
  sub.add_flag("--sandbox", flags->sandbox,
               "reach nothing but the files that these flags name, the system's programs and libraries, and the "
               "network; needs Linux 5.13");
  sub.add_flag(
         "--hand-over", flags->hand_over,
         "on shutdown, leave every session where --snapshots says; take over sessions that other servers left there")
      ->needs(snapshots);
  sub.add_flag("--durable", flags->durable,
               "store what a request changed in its session before it is answered, so that another server can take the "
               "session when this one dies")
      ->needs(sub.get_option("--hand-over"));
  sub.add_option("--lease", flags->lease,
                 "with --hand-over: seconds without a sign of a server after which others take its sessions")
      ->check(Between(1, 3600))
      ->capture_default_str()
      ->type_name("SECONDS");
  sub.add_option("--s3-endpoint", flags->s3_endpoint,
                 "address of S3-compatible storage, such as https://minio.example:9000; default: AWS_ENDPOINT_URL, or "
                 "Amazon's")
      ->check(NotEmpty())
      ->needs(snapshots)
      ->type_name("URL");
  sub.add_option("--node", flags->node,
                 "name to put into this server's session ids, so that a proxy can ask the right server first")
      ->check(CLI::Validator(
          [](std::string& name) {
            const bool fine = !name.empty() && name.size() <= 32 && std::all_of(name.begin(), name.end(), [](char c) {
              return (c >= 'a' && c <= 'z') || (c >= '0' && c <= '9');
            });
            return fine ? std::string() : "must be 1 to 32 small letters and digits";
          },
          ""));
  sub.add_option("--drain", flags->drain, "with --hand-over: seconds to let running answers finish")
      ->check(Between(0, 86400))
      ->capture_default_str();
  sub.add_option("--session-idle", flags->session_idle,
                 "seconds without a request after which a session ends; with --hand-over the next request brings it "
                 "back; 0 = never")
      ->check(Between(0, 1 << 30))
      ->capture_default_str()
      ->type_name("SECONDS");
  AddRecallFlags(sub, &pot->recall);
  sub.add_option(
         "--recall-disk-total", flags->recall_disk_total,
         "bytes of disk that the archives of all sessions may have; without --recall, sessions that ask for recall "
         "get it within this limit; without it what eight of --recall-disk have")
      ->check(NotEmpty())
      ->type_name("SIZE");
  AddWebhookFlags(sub, flags.get());
  flags->mqtt.picture_bytes = PngBytes(EventPictures::kMostPixels);
  AddMqttFlags(sub, &flags->mqtt);
  AddTelemetryFlags(sub, &flags->telemetry);
  AddVisionFlags(sub, flags.get());
  return [=] {
    InstallStopHandler();
    KeepLittleMemory();
    return Serve(*model, *pot, *flags);
  };
}

}  // namespace

extern const CommandInfo kServe;
const CommandInfo kServe = {.name = "serve",
                            .summary = "serve the OpenAI API over HTTP, and sessions that read endless streams",
                            .group = CommandGroup::kAnswer,
                            .add = AddServe};

}  // namespace weir::app
