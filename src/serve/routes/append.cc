// weir-plugin: route
// SPDX-License-Identifier: Apache-2.0
// Appends texts, pictures, videos and live frames to a session.
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <utility>

#include "serve/call_job.h"
#include "serve/live_frame.h"
#include "serve/reply.h"
#include "serve/routes/common.h"
#include "serve/routes/route.h"
#include "serve/session_job.h"
#include "serve/session_json.h"
#include "serve/visual_input.h"

namespace weir {
namespace {

// The content of one request.
struct Appended {
  std::string text;
  std::optional<VisualInput> visual;
  bool live = false;  // a live frame: the request does not wait until it is read
  bool pinned = false;
  int64_t t_ms = -1;
};

Result<Appended> ParseAppend(const Host& host, const Json& body) {
  Fields fields(body);
  Appended out;
  int n_kinds = 0;
  const char* kind = "text";
  for (const char* name : {"text", "image", "frame", "video"}) {
    if (!fields.Has(name)) continue;
    kind = name;
    ++n_kinds;
  }
  const std::string what = kind;
  fields.Get("text", &out.text);
  const Json* const image = fields.Get("image");
  const Json* const frame = fields.Get("frame");
  const Json* const video = fields.Get("video");
  if (n_kinds != 1) fields.Fail("text", "or one of 'image', 'frame' and 'video' must be given, and only one");
  if (what == "frame") fields.Get("wait", &out.live);
  out.live = what == "frame" && !out.live;
  if (what == "frame" || what == "video") fields.Get("t_ms", &out.t_ms, 0, kMaxMoment);
  if (what == "frame" && out.t_ms < 0) fields.Fail("t_ms", "is missing: the time of the frame");
  fields.Get("pinned", &out.pinned);
  if (out.pinned && out.live) fields.Fail("pinned", "cannot be used without 'wait'");
  if (what != "text" && host.vision() == nullptr) {
    fields.Fail(kind, "needs a server that runs with --mmproj");
  }
  for (const Json* picture : {image, frame}) {
    if (picture != nullptr && !picture->is_string()) fields.Fail(kind, "must be a picture: data:TYPE;base64,...");
  }
  WEIR_RETURN_IF_ERROR(fields.Done());
  if (video != nullptr) {
    WEIR_ASSIGN_OR_RETURN(out.visual, ParseVideo(*video, kind));
  } else if (what != "text") {
    VisualInput& picture = out.visual.emplace();
    picture.where = kind;
    WEIR_ASSIGN_OR_RETURN(std::string bytes,
                          FileBytes((image != nullptr ? image : frame)->get_ref<const std::string&>(), kind));
    picture.files.push_back(std::move(bytes));
    if (frame != nullptr) {
      picture.kind = VisualInput::Kind::kFrames;
      picture.t_ms = {0};
    }
  }
  return out;
}

ApiError ErrorOf(const Status& status) {
  return status.code() == StatusCode::kOverBudget ? ContextLengthExceeded(status) : FromStatus(status);
}

// Queues one frame of a live video in the session's queue without waiting for the model.
void AppendFrame(Host& host, const std::string& id, const VisualInput& frame, int64_t t_ms,
                 httplib::Response& response) {
  std::shared_ptr<FrameQueue> queue;
  const Status found = LookAtSession(host, id, [&](const StreamSession& stream) { queue = stream.frames; });
  if (!found.ok()) return SendError(found, response);
  if (queue == nullptr) {
    return SendError({400, "", "'frame' needs 'wait', or a session created with 'frames_waiting' above 0"}, response);
  }
  const int64_t number = queue->Enter();
  DecodeLanes& lanes = *host.vision()->lanes;
  DecodeLanes::Ticket ticket(lanes);
  std::optional<DecodeLanes::Lane> lane;
  while (!lane && queue->Waits(number)) {
    lane = lanes.Take(ticket, kLookAtClient);
    if (!lane && !ClientWaits()) {
      (void)queue->Leave(number);
      return SendError({499, "cancelled", "the client disconnected"}, response);
    }
  }
  const bool dropped = !queue->Leave(number);  // newer ones came while it waited
  const Status pushed = dropped ? Status()
                                : PushLiveFrame(host, id, queue, *std::move(lane),
                                                {.bytes = frame.files[0], .t_ms = t_ms, .where = frame.where.c_str()});
  if (!pushed.ok()) return SendError(ErrorOf(pushed), response);
  // The session may have ended while the frame waited for a decoder; its queue is then no longer read.
  if (!host.sessions().Has(id)) return SendError(FromStatus(NotFound("there is no session '{}'", id)), response);
  SendJson({{"object", "frame"}, {"t_ms", t_ms}, {"frames", FramesJson(queue->counters())}}, response, 202);
}

void Handle(const Call& call, httplib::Response& response) {
  auto given = [&]() -> Result<Appended> {
    WEIR_ASSIGN_OR_RETURN(const Json body, ParseJsonObject(call.body));
    return ParseAppend(call.host, body);
  }();
  if (!given.ok()) return SendError(given.status(), response);
  const std::string& id = call.arguments[0];
  if (given->live) return AppendFrame(call.host, id, *given->visual, given->t_ms, response);
  std::shared_ptr<AppendJob> job;
  if (given->visual) {
    job = std::make_shared<AppendJob>(call.host, id, *std::move(given->visual), given->pinned, given->t_ms);
  } else {
    EncodeOptions options;
    options.add_special = false;
    job = std::make_shared<AppendJob>(call.host, id, call.host.tokenizer().Encode(given->text, options), given->pinned);
  }
  if (const Status posted = call.host.scheduler().Post(job); !posted.ok()) return SendError(posted, response);
  for (;;) {
    if (const auto result = job->events.Pop(kLookAtClient)) {
      if (result->ok()) return SendJson(**result, response);
      if (job->has_read() && result->status().code() == StatusCode::kCancelled) {
        return SendError(CutShort(result->status()), response);
      }
      return SendError(ErrorOf(result->status()), response);
    }
    if (!ClientWaits()) {
      job->Cancel();
      return SendError({499, "cancelled", "the client disconnected"}, response);
    }
  }
}

}  // namespace

extern const RouteInfo kAppend;
const RouteInfo kAppend = {
    .method = "POST",
    .path = "/v1/sessions/{id}/append",
    .handle = Handle,
};

}  // namespace weir
