// Stream sessions: each a pot of its own that is read into, asked, copied, saved and brought back.
#include <algorithm>
#include <charconv>
#include <chrono>
#include <memory>

#include "chat/session_file.h"
#include "serve/api.h"
#include "serve/held_map.h"
#include "serve/session_job.h"

namespace weir {
namespace {

constexpr size_t kMaxNameBytes = 100;
constexpr int64_t kDefaultBins = 128, kMaxBins = 4096;
constexpr int64_t kMaxFramesWaiting = 256;
constexpr size_t kMaxSystemBytes = 1 << 16;  // it is encoded on the engine's thread
constexpr std::chrono::milliseconds kLookAtClient{100};

// 429 when it could fit after another one went, 400 when it never will.
ApiError AdmissionError(const Host& host, const SessionOptions& options, const Status& status) {
  if (status.code() != StatusCode::kOverBudget) return FromStatus(status);
  const auto plan = PlanSession(host.model().model(), host.model().backend(), options);
  const bool never = plan.ok() && plan->total_bytes > host.ledger().budget_bytes();
  return {never ? 400 : 429, "budget_exceeded", status.message()};
}

bool ClientWaits() { return HttpConnection::Current()->Alive(); }

}  // namespace

void Api::ListSessions(const Call&, httplib::Response& response) {
  Json list = Json::array();
  const Status status = host_.Call([&] {
    for (const auto& [id, stream] : host_.sessions()) list.push_back(SessionJson(*stream));
    return Status();
  });
  if (!status.ok()) return SendError(FromStatus(status), response);
  SendJson({{"object", "list"}, {"data", std::move(list)}}, response);
}

void Api::CreateSession(const Call& call, httplib::Response& response) {
  const auto body = ParseJsonObject(call.body.empty() ? "{}" : call.body);
  if (!body.ok()) return SendError(FromStatus(body.status()), response);
  Fields fields(*body);
  std::string policy, system;
  int64_t pot = 0, n_waiting = host_.options().frames_waiting;
  bool pin_system = true;
  fields.Get("policy", &policy);
  fields.Get("pot", &pot, 1, 1 << 26);
  fields.Get("system", &system);
  if (system.size() > kMaxSystemBytes) {
    fields.Fail("system", StrFormat("may have at most %zu bytes; append longer texts", kMaxSystemBytes));
  }
  fields.Get("pin_system", &pin_system);
  fields.Get("frames_waiting", &n_waiting, 0, kMaxFramesWaiting);
  if (host_.eyes() == nullptr) fields.Only("frames_waiting", 0);
  if (const Status bad = fields.Done(); !bad.ok()) return SendError(FromStatus(bad), response);
  const auto options = host_.OptionsFor(policy, pot);
  if (!options.ok()) {
    // An unknown policy is a wrong field, not a missing page.
    return SendError({400, "", "'policy' is not usable: " + options.status().message()}, response);
  }
  std::string id;
  std::vector<int32_t> head;
  const Status status = host_.Call([&]() -> Status {
    WEIR_ASSIGN_OR_RETURN(StreamSession* const stream, host_.Create(*options, static_cast<int>(n_waiting)));
    id = stream->id;
    head = stream->conversation.Begin(system.empty() ? std::nullopt : std::optional<std::string>(system));
    return Status();
  });
  if (!status.ok()) return SendError(AdmissionError(host_, *options, status), response);
  // Read step by step like any other text: others go on meanwhile.
  const auto job = std::make_shared<BeginJob>(host_, id, std::move(head), pin_system && !system.empty());
  if (const Status posted = host_.scheduler().PostAlways(job); !posted.ok()) {
    return SendError(FromStatus(posted), response);
  }
  for (;;) {
    if (const auto result = job->events.Pop(kLookAtClient)) {
      if (result->ok()) return SendJson(**result, response, 201);
      Status why = result->status();
      if (why.code() == StatusCode::kOverBudget || why.code() == StatusCode::kInvalidArgument) {
        why = InvalidArgument("'system' does not fit into the pot: %s", why.message().c_str());
      }
      return SendError(FromStatus(why), response);
    }
    if (!ClientWaits()) job->Cancel();  // the session then goes, too
  }
}

void Api::GetSession(const Call& call, httplib::Response& response) {
  Json state;
  // Not through the session's queue: its state may be seen while it reads.
  const Status status = host_.Call([&]() -> Status {
    const StreamSession* stream = host_.Find(call.arguments[0]);
    if (stream == nullptr) return NotFound("there is no session '%s'", call.arguments[0].c_str());
    state = SessionJson(*stream);
    state["busy"] = stream->busy;
    return Status();
  });
  if (!status.ok()) return SendError(FromStatus(status), response);
  SendJson(state, response);
}

void Api::GetHeld(const Call& call, httplib::Response& response) {
  int64_t n_bins = kDefaultBins;
  if (call.http.has_param("bins")) {
    const std::string text = call.http.get_param_value("bins");
    const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), n_bins);
    if (error != std::errc() || end != text.data() + text.size() || n_bins < 1 || n_bins > kMaxBins) {
      return SendError(
          {400, "", StrFormat("'bins' must be a whole number from 1 to %lld", static_cast<long long>(kMaxBins))},
          response);
    }
  }
  Json held;
  const Status status = host_.Call([&]() -> Status {
    const StreamSession* stream = host_.Find(call.arguments[0]);
    if (stream == nullptr) return NotFound("there is no session '%s'", call.arguments[0].c_str());
    held = HeldMap(*stream->session, n_bins);
    return Status();
  });
  if (!status.ok()) return SendError(FromStatus(status), response);
  SendJson(held, response);
}

void Api::DeleteSession(const Call& call, httplib::Response& response) {
  if (const Status status = host_.Delete(call.arguments[0]); !status.ok()) {
    return SendError(FromStatus(status), response);
  }
  SendJson({{"id", call.arguments[0]}, {"object", "session"}, {"deleted", true}}, response);
}

void Api::Fork(const Call& call, httplib::Response& response) {
  Json state;
  SessionOptions options;
  const Status status = host_.CallWith(
      call.arguments[0],
      [&](StreamSession& from) -> Status {
        options = from.options;
        WEIR_ASSIGN_OR_RETURN(StreamSession* const to,
                              host_.Create(from.options, from.frames == nullptr ? 0 : from.frames->n_waiting()));
        if (Status copied = to->session->CopyFrom(*from.session); !copied.ok()) {
          host_.Erase(to->id);
          return copied;
        }
        to->conversation = from.conversation;
        to->t_ms = from.t_ms;
        to->rows_pruned = from.rows_pruned;
        if (to->frames != nullptr) to->frames->GoOnFrom(from.frames->counters());
        state = SessionJson(*to);
        return Status();
      },
      ClientWaits);
  if (!status.ok()) return SendError(AdmissionError(host_, options, status), response);
  SendJson(state, response, 201);
}

Result<std::string> Api::SnapshotPath(const Json& body) const {
  if (options_.folder.empty()) return InvalidArgument("the server was started without --snapshots FOLDER");
  Fields fields(body);
  std::string name;
  fields.Get("name", &name);
  const bool fine = !name.empty() && name.size() <= kMaxNameBytes && name[0] != '.' &&
                    std::all_of(name.begin(), name.end(), [](char c) {
                      return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '_' ||
                             c == '-' || c == '.';
                    });
  if (!fine) {
    fields.Fail("name",
                StrFormat("must be 1 to %zu letters, digits, '_', '-' or '.', not beginning with '.'", kMaxNameBytes));
  }
  WEIR_RETURN_IF_ERROR(fields.Done());
  return options_.folder + "/" + name + ".weir";
}

void Api::SaveSession(const Call& call, httplib::Response& response) {
  const auto body = ParseJsonObject(call.body);
  if (!body.ok()) return SendError(FromStatus(body.status()), response);
  const auto path = SnapshotPath(*body);
  if (!path.ok()) return SendError(FromStatus(path.status()), response);
  std::unique_ptr<SnapshotWriter> file;
  Json json;
  Status status = host_.CallWith(
      call.arguments[0],
      [&](StreamSession& stream) -> Status {
        json = SessionJson(stream);
        WEIR_ASSIGN_OR_RETURN(file, host_.Save(stream, *path));
        return Status();
      },
      ClientWaits);
  // The disk is synced here, not on the engine's thread.
  if (status.ok()) status = file->Finish();
  if (!status.ok()) return SendError(FromStatus(WithoutFolder(status, options_.folder)), response);
  SendJson(
      {{"name", (*body)["name"]}, {"object", "snapshot"}, {"bytes", file->state_bytes()}, {"session", std::move(json)}},
      response);
}

void Api::RestoreSession(const Call& call, httplib::Response& response) {
  const auto body = ParseJsonObject(call.body);
  if (!body.ok()) return SendError(FromStatus(body.status()), response);
  const auto path = SnapshotPath(*body);
  if (!path.ok()) return SendError(FromStatus(path.status()), response);
  const auto snapshot = SnapshotReader::Open(*path, host_.ledger().budget_bytes() + kMaxSnapshotText);
  if (!snapshot.ok()) return SendError(FromStatus(WithoutFolder(snapshot.status(), options_.folder)), response);
  Json state;
  const Status status = host_.Call([&]() -> Status {
    WEIR_ASSIGN_OR_RETURN(StreamSession* const stream, host_.Restore(**snapshot));
    state = SessionJson(*stream);
    return Status();
  });
  if (!status.ok()) return SendError(FromStatus(WithoutFolder(status, options_.folder)), response);
  SendJson(state, response, 201);
}

}  // namespace weir
