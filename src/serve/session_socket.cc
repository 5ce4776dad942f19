// SPDX-License-Identifier: Apache-2.0
#include "serve/session_socket.h"

#include <fmt/core.h>

#include <chrono>
#include <deque>
#include <functional>
#include <optional>
#include <span>
#include <utility>
#include <vector>

#include "base/caught.h"
#include "base/clock.h"
#include "serve/answer_job.h"
#include "serve/answer_tally.h"
#include "serve/live_frame.h"
#include "serve/openai_request.h"
#include "serve/request_trace.h"
#include "serve/routes/common.h"
#include "serve/rule_request.h"
#include "serve/session_json.h"

namespace weir {
namespace {

constexpr size_t kMostRequests = 16;  // that wait
constexpr size_t kMostReplies = 64;   // that the client has not taken
constexpr size_t kMostIdBytes = 128;  // of a request
constexpr size_t kTimeBytes = 8;      // in front of a frame
constexpr std::chrono::milliseconds kSoon{5};
constexpr std::chrono::milliseconds kTellFrames{250};  // from one message about frames to the next

// Runs a function with the session, without anybody waiting.
class SessionCall : public SessionJob {
 public:
  SessionCall(Host& host, std::string id, std::function<Result<Json>(StreamSession&)> fn)
      : SessionJob(host, std::move(id)), fn_(std::move(fn)) {}
  Step Advance() override {
    if (Status status = CheckGoOn(); !status.ok()) {
      result_ = std::move(status);
    } else {
      const Status called = Caught([&] {
        result_ = fn_(*stream_);
        return Status();
      });
      if (!called.ok()) result_ = called;
    }
    return Step::kDone;
  }
  void Finish() override {
    SessionJob::Finish();
    events.Push(std::move(result_));
  }
  void Dropped(const Status& why) override { events.Push(why); }

  Channel<Result<Json>> events;

 private:
  const std::function<Result<Json>(StreamSession&)> fn_;
  Result<Json> result_ = Json();
};

class SessionSocket {
 public:
  SessionSocket(Host& host, const ServerOptions& options, WebSocket& socket, SocketSession session)
      : host_(host), options_(options), socket_(socket), session_(std::move(session)) {}
  ~SessionSocket() { CancelRequest(); }
  SessionSocket(const SessionSocket&) = delete;
  SessionSocket& operator=(const SessionSocket&) = delete;

  void Run() {
    Json hello = {{"type", "session"}, {"session", std::move(session_.state)}};
    if (session_.ring != nullptr) hello["last_event_id"] = session_.ring->newest();
    Reply(hello);
    for (;;) {
      WebSocket::Message message;
      const bool busy = request_.under_way() || !frames_.empty();
      const auto heard = socket_.Next(busy ? kSoon : kLookAtClient, &message);
      if (heard == WebSocket::Heard::kGone) return;
      if (heard == WebSocket::Heard::kMessage) Take(std::move(message));
      ReadFrame();
      StartRequest();
      SendSome();
      if (replies_.size() > kMostReplies) return socket_.Close(WebSocket::Why::kPolicy, "answers are not being read");
      if (host_.hurry() || !host_.sessions().Has(session_.id)) {
        return socket_.Close(WebSocket::Why::kGoingAway, "the session is not here any more");
      }
    }
  }

 private:
  struct Request {
    Json id, body;
    std::vector<Reservation> room;
  };
  struct Frame {
    int64_t number = 0;  // in the queue
    int64_t t_ms = 0;
    int32_t width = 0, height = 0;
    WebSocket::Message message;
  };
  // What is being done.
  struct UnderWay {
    Json id;
    const char* type = "";
    SessionTicket ticket;
    std::shared_ptr<AppendJob> append;
    std::shared_ptr<AnswerJob> answer;
    std::shared_ptr<SessionCall> call;
    std::vector<Reservation> room;
    bool under_way() const { return append != nullptr || answer != nullptr || call != nullptr; }
  };

  // ---- what comes

  void Take(WebSocket::Message message) {
    if (message.binary) return TakeFrame(std::move(message));
    auto body = ParseJsonObject(message.bytes);
    if (!body.ok()) return Fail(nullptr, FromStatus(body.status()));
    Json id = body->contains("id") ? (*body)["id"] : Json();
    const bool usable = id.is_null() || id.is_number_integer() ||
                        (id.is_string() && id.get_ref<const std::string&>().size() <= kMostIdBytes);
    if (!usable) return Fail(nullptr, {400, "", "'id' must be a whole number or a short text"});
    const std::string type =
        body->contains("type") && (*body)["type"].is_string() ? (*body)["type"].get<std::string>() : "";
    if (type == "cancel") return CancelRequest();
    if (type == "format") {
      const Status status = SetFormat(*body);
      if (!status.ok()) Fail(id, FromStatus(status));
      return;
    }
    if (requests_.size() == kMostRequests) {
      return Fail(id, {429, "too_many_requests", fmt::format("{} requests wait already", kMostRequests)});
    }
    requests_.push_back({std::move(id), *std::move(body), std::move(message.room)});
  }

  // What the binary messages after this one are.
  Status SetFormat(const Json& body) {
    Fields fields(body);
    std::string format = "file";
    int64_t width = 0, height = 0;
    fields.Ignore("type");
    fields.Ignore("id");
    fields.Get("format", &format);
    const int64_t most = host_.options().decode.max_side;
    fields.Get("width", &width, 1, most);
    fields.Get("height", &height, 1, most);
    const bool raw = format == "rgb";
    if (!raw && format != "file") fields.Fail("format", "must be 'file' (JPEG, PNG ...) or 'rgb'");
    if (raw != (width > 0) || raw != (height > 0)) {
      fields.Fail("width", "and 'height' belong to the format 'rgb', which needs them");
    }
    WEIR_RETURN_IF_ERROR(fields.Done());
    width_ = static_cast<int32_t>(width);
    height_ = static_cast<int32_t>(height);
    return Status();
  }

  void TakeFrame(WebSocket::Message message) {
    if (session_.frames == nullptr) {
      return FailFrame({400, "", "this session has no live video: make it with 'frames_waiting' above 0"});
    }
    Frame frame{.width = width_, .height = height_};
    const size_t n = message.bytes.size();
    const size_t wanted = kTimeBytes + 3 * static_cast<size_t>(width_) * static_cast<size_t>(height_);
    if (n <= kTimeBytes) return FailFrame({400, "", "a binary message is eight bytes of time and a picture"});
    if (width_ > 0 && n != wanted) {
      return FailFrame(
          {400, "",
           fmt::format("a frame of {} x {} has {} bytes with its time, this one {}", width_, height_, wanted, n)});
    }
    uint64_t t_ms = 0;
    for (size_t i = kTimeBytes; i-- > 0;) t_ms = t_ms << 8 | static_cast<unsigned char>(message.bytes[i]);
    if (t_ms > static_cast<uint64_t>(kMaxMoment)) return FailFrame({400, "", "a frame's time is out of range"});
    frame.t_ms = static_cast<int64_t>(t_ms);
    frame.message = std::move(message);
    frame.number = session_.frames->Enter();
    frames_.push_back(std::move(frame));
  }

  // Puts the oldest frame that still waits into the session's queue, once there is a lane to decode it in.
  void ReadFrame() {
    while (!frames_.empty() && !session_.frames->Waits(frames_.front().number)) {
      (void)session_.frames->Leave(frames_.front().number);  // newer ones came
      frames_.pop_front();
    }
    if (frames_.empty()) return ticket_.reset();
    DecodeLanes& lanes = *host_.vision()->lanes;
    if (!ticket_) ticket_.emplace(lanes);
    // Only those that wait have a place in the line.
    std::optional<DecodeLanes::Lane> lane = lanes.Take(*ticket_, kSoon);
    if (!lane) return;
    ticket_.reset();
    const Frame frame = std::move(frames_.front());
    frames_.pop_front();
    if (!session_.frames->Leave(frame.number)) return;
    const Status pushed = PushLiveFrame(host_, session_.id, session_.frames, *std::move(lane),
                                        {.bytes = std::string_view(frame.message.bytes).substr(kTimeBytes),
                                         .width = frame.width,
                                         .height = frame.height,
                                         .t_ms = frame.t_ms});
    if (!pushed.ok()) FailFrame(FromStatus(pushed), frame.t_ms);
  }

  // ---- what is done

  void StartRequest() {
    if (request_.under_way() || requests_.empty()) return;
    Request next = std::move(requests_.front());
    requests_.pop_front();
    request_.id = std::move(next.id);
    request_.room = std::move(next.room);
    request_.ticket = host_.Ticket(session_.id);
    // A request of its own, below that of the connection.
    RequestScope scope(host_.telemetry(), "socket", std::nullopt);
    scope.SetSession(session_.id);
    Status status = Start(std::move(next.body));
    if (status.ok()) return;
    Fail(request_.id, FromStatus(status));
    request_ = {};
  }

  Status Start(Json body) {
    std::string type;
    Fields fields(body);
    fields.Get("type", &type);
    body.erase("type");
    body.erase("id");
    // Where it is a text, it names the rule, too.
    if (type == "rule" && request_.id.is_string()) body["id"] = request_.id;
    if (type == "append") return StartAppend(body);
    if (type == "ask") return StartAnswer(body);
    if (type == "rule" || type == "forget") return StartRule(type == "rule", body);
    return InvalidArgument("'type' must be append, ask, rule, forget, format or cancel");
  }

  Status StartAppend(const Json& body) {
    Fields fields(body);
    std::string text;
    bool pinned = false;
    fields.Get("text", &text);
    fields.Get("pinned", &pinned);
    if (!fields.Has("text")) fields.Fail("text", "is missing");
    WEIR_RETURN_IF_ERROR(fields.Done());
    EncodeOptions options;
    options.add_special = false;
    request_.append = std::make_shared<AppendJob>(host_, session_.id, host_.tokenizer().Encode(text, options), pinned);
    request_.type = "appended";
    return Post(request_.append);
  }

  Status StartAnswer(const Json& body) {
    WEIR_ASSIGN_OR_RETURN(CompletionRequest asked, ParseAsk(host_, body, options_.answers));
    if (asked.logprobs) return InvalidArgument("'logprobs' are not sent over a WebSocket");
    request_.answer = std::make_shared<AnswerJob>(host_, session_.id, std::move(asked.answers[0]));
    request_.type = "answer";
    return Post(request_.answer);
  }

  Status StartRule(bool adds, const Json& body) {
    if (adds) {
      WEIR_ASSIGN_OR_RETURN(Rule rule, ParseRuleRequest(host_, body));
      request_.call = std::make_shared<SessionCall>(
          host_, session_.id, [rule = std::move(rule)](StreamSession& stream) { return AddRule(stream, rule); });
    } else {
      Fields fields(body);
      std::string rule;
      fields.Get("rule", &rule);
      WEIR_RETURN_IF_ERROR(fields.Done());
      request_.call = std::make_shared<SessionCall>(host_, session_.id,
                                                    [rule, &host = host_](StreamSession& stream) -> Result<Json> {
                                                      WEIR_RETURN_IF_ERROR(RemoveRule(host, stream, rule));
                                                      return Json{{"id", rule}, {"object", "rule"}, {"deleted", true}};
                                                    });
    }
    request_.type = "rule";
    return Post(request_.call);
  }

  Status Post(const std::shared_ptr<SessionJob>& job) {
    Status posted = host_.scheduler().Post(job);
    return posted;
  }

  void CancelRequest() {
    if (request_.append != nullptr) request_.append->Cancel();
    if (request_.answer != nullptr) request_.answer->Cancel();
    if (request_.call != nullptr) request_.call->Cancel();
  }

  // ---- what goes

  // One message, if the client has taken the last.
  void SendSome() {
    if (socket_.sending()) return;
    if (replies_.empty()) TakeResult();
    if (replies_.empty()) TakeEvent();
    if (replies_.empty()) TellFrames();
    if (replies_.empty()) return;
    socket_.Send(std::move(replies_.front()));
    replies_.pop_front();
  }

  void TakeResult() {
    constexpr std::chrono::milliseconds kNow{0};
    if (request_.answer != nullptr) {
      if (auto event = request_.answer->events.Pop(kNow)) TakeWords(*event);
      return;
    }
    std::optional<Result<Json>> result;
    if (request_.append != nullptr) result = request_.append->events.Pop(kNow);
    if (request_.call != nullptr) result = request_.call->events.Pop(kNow);
    if (!result) return;
    const ApiError unsettled = result->ok() ? host_.Settle(session_.id, request_.ticket) : ApiError{0, "", ""};
    if (unsettled.http != 0) {
      Fail(request_.id, unsettled);
    } else if (result->ok()) {
      const char* const what = request_.append != nullptr ? "session" : "rule";
      Reply({{"type", request_.type}, {"id", request_.id}, {what, **std::move(result)}});
    } else {
      const bool cut = request_.append != nullptr && request_.append->has_read() &&
                       result->status().code() == StatusCode::kCancelled;
      Fail(request_.id, cut ? CutShort(result->status()) : FromStatus(result->status()));
    }
    request_ = {};
  }

  void TakeWords(const AnswerEvent& event) {
    if (!event.text.empty()) Reply({{"type", "words"}, {"id", request_.id}, {"text", event.text}});
    if (!event.last) return;
    const ApiError unsettled = event.status.ok() ? host_.Settle(session_.id, request_.ticket) : ApiError{0, "", ""};
    if (unsettled.http != 0) {
      Fail(request_.id, unsettled);
    } else if (!event.status.ok()) {
      Fail(request_.id, event.cut        ? CutShort(event.status)
                        : event.overflow ? ContextLengthExceeded(event.status)
                                         : FromStatus(event.status));
    } else {
      AnswerTally tally;
      tally.Count(0, event.summary);
      const char* const why = event.summary.cancelled ? "cancelled" : event.summary.ended ? "stop" : "length";
      Reply({{"type", "answer"},
             {"id", request_.id},
             {"finish_reason", why},
             {"usage", {{"prompt_tokens", tally.n_prompt()}, {"completion_tokens", tally.n_answer()}}},
             {"weir", tally.memory()}});
    }
    request_ = {};
  }

  void TakeEvent() {
    if (session_.ring == nullptr) return;
    auto event = session_.ring->After(session_.last_event, std::chrono::milliseconds(0));
    if (!event) return;
    if (event->n_missed > 0) Reply({{"type", "missed"}, {"events", event->n_missed}});
    replies_.push_back(std::move(event->json));
    session_.last_event = event->id;
  }

  void TellFrames() {
    if (Clock::now() - told_at_ < kTellFrames) return;
    const FrameCounters now = session_.frames == nullptr ? FrameCounters() : session_.frames->counters();
    if (!frame_error_.is_null()) {
      Reply(std::exchange(frame_error_, Json()));
    } else if (now.arrived != told_.arrived || now.read != told_.read || now.dropped != told_.dropped) {
      Reply({{"type", "frames"}, {"t_ms", now.t_ms}, {"frames", FramesJson(now)}});
      told_ = now;
    } else {
      return;
    }
    told_at_ = Clock::now();
  }

  void Reply(const Json& json) { replies_.push_back(JsonText(json)); }
  void Fail(const Json& id, const ApiError& error) {
    Json out = {{"type", "error"}, {"id", id}, {"status", error.http}};
    out.update(error.Body());
    Reply(out);
  }
  // Of many frames with an error the newest is told.
  void FailFrame(const ApiError& error, int64_t t_ms = -1) {
    frame_error_ = {{"type", "error"}, {"id", nullptr}, {"status", error.http}};
    if (t_ms >= 0) frame_error_["t_ms"] = t_ms;
    frame_error_.update(error.Body());
  }

  Host& host_;
  const ServerOptions& options_;
  WebSocket& socket_;
  SocketSession session_;
  std::deque<Request> requests_;
  UnderWay request_;
  std::deque<std::string> replies_;
  int32_t width_ = 0, height_ = 0;  // of raw frames; 0: files
  std::deque<Frame> frames_;        // not decoded yet
  std::optional<DecodeLanes::Ticket> ticket_;
  FrameCounters told_;
  Clock::time_point told_at_;
  Json frame_error_;
};

}  // namespace

void RunSessionSocket(Host& host, const ServerOptions& options, WebSocket& socket, SocketSession session) {
  SessionSocket(host, options, socket, std::move(session)).Run();
}

}  // namespace weir
