// Chats, completions and questions to sessions: one way to answer, whole or as a stream.
#include <memory>
#include <optional>

#include "serve/api.h"

namespace weir {
namespace {

constexpr auto kLookAtClient = std::chrono::milliseconds(100);

ApiError ErrorOf(const AnswerEvent& event) {
  return event.overflow ? ContextLengthExceeded(event.status) : FromStatus(event.status);
}

// The answers to the prompts of one request, n to each, one after another. Ends its work when it is destroyed.
class Answers {
 public:
  Answers(Host& host, std::string id, std::vector<AnswerRequest> requests, int n)
      : host_(host), id_(std::move(id)), requests_(std::move(requests)), n_(static_cast<size_t>(n)) {}
  ~Answers() {
    if (job_) job_->Cancel();
  }
  Answers(const Answers&) = delete;
  Answers& operator=(const Answers&) = delete;

  struct Next {
    size_t index = 0;
    AnswerEvent event;
    bool last = false;  // of the whole request
  };
  // Waits for the next event; nullopt when the client is gone. Not to be called after either.
  std::optional<Next> Wait(const HttpConnection& client) {
    if (!job_) {
      job_ = std::make_shared<AnswerJob>(host_, id_, TakeRequest());
      if (const Status posted = host_.scheduler().Post(job_); !posted.ok()) job_->Dropped(posted);
    }
    for (;;) {
      auto event = job_->events.Pop(kLookAtClient);
      // Looked at however fast events come: an answer of many tokens would otherwise never notice.
      if (const auto now = std::chrono::steady_clock::now(); now >= look_at_client_) {
        look_at_client_ = now + kLookAtClient;
        if (!client.Alive()) return std::nullopt;
      }
      if (!event) continue;
      Next next{index_, *std::move(event), false};
      if (next.event.last) {
        job_.reset();
        next.last = ++index_ == requests_.size() * n_ || !next.event.status.ok();
      }
      return next;
    }
  }

 private:
  // Copied only where it is needed again.
  AnswerRequest TakeRequest() {
    AnswerRequest& of_prompt = requests_[index_ / n_];
    const size_t k = index_ % n_;
    AnswerRequest out = k + 1 == n_ ? std::move(of_prompt) : of_prompt;
    out.sampler.seed += k;
    return out;
  }

  Host& host_;
  const std::string id_;
  std::vector<AnswerRequest> requests_;
  const size_t n_;
  size_t index_ = 0;
  std::shared_ptr<AnswerJob> job_;
  std::chrono::steady_clock::time_point look_at_client_;
};

bool Write(httplib::DataSink& sink, const Json& json) {
  const std::string line = "data: " + JsonText(json) + "\n\n";
  return sink.write(line.data(), line.size());
}

// What a stream carries from one call of the HTTP library to the next.
struct Stream {
  Stream(Host& host, const std::string& id, AnswerShape::Kind kind, CompletionRequest request)
      : shape(host, kind, request),
        include_usage(request.include_usage),
        answers(host, id, std::move(request.answers), request.n) {}

  AnswerShape shape;
  const bool include_usage;
  Answers answers;
  std::optional<Answers::Next> first;  // read before the status of the response was known
};

// False ends the connection.
bool WriteNext(Stream& stream, httplib::DataSink& sink) {
  std::optional<Answers::Next> next;
  if (stream.first) {
    next = std::move(stream.first);
    stream.first.reset();
  } else {
    next = stream.answers.Wait(*HttpConnection::Current());
  }
  if (!next) return false;
  if (!next->event.status.ok()) {
    if (!Write(sink, ErrorOf(next->event).Body())) return false;
    sink.done();
    return true;
  }
  for (const Json& chunk : stream.shape.Chunks(next->index, next->event)) {
    if (!Write(sink, chunk)) return false;
  }
  if (!next->last) return true;
  if (stream.include_usage && !Write(sink, stream.shape.UsageChunk())) return false;
  constexpr std::string_view kDone = "data: [DONE]\n\n";
  if (!sink.write(kDone.data(), kDone.size())) return false;
  sink.done();
  return true;
}

}  // namespace

void Api::Answer(const std::string& id, CompletionRequest request, AnswerShape::Kind kind,
                 httplib::Response& response) {
  const HttpConnection& client = *HttpConnection::Current();
  const bool as_stream = request.stream;
  auto stream = std::make_shared<Stream>(host_, id, kind, std::move(request));
  std::optional<Answers::Next> next = stream->answers.Wait(client);
  if (!next) return SendError({499, "cancelled", "the client went away"}, response);
  if (!next->event.status.ok()) return SendError(ErrorOf(next->event), response);
  if (as_stream) {
    stream->first = std::move(next);
    response.set_header("Cache-Control", "no-store");
    response.set_header("X-Accel-Buffering", "no");
    response.set_chunked_content_provider(
        "text/event-stream", [stream](size_t, httplib::DataSink& sink) { return WriteNext(*stream, sink); });
    return;
  }
  for (;;) {
    stream->shape.Add(next->index, next->event);
    if (next->last) break;
    next = stream->answers.Wait(client);
    if (!next) return SendError({499, "cancelled", "the client went away"}, response);
    if (!next->event.status.ok()) return SendError(ErrorOf(next->event), response);
  }
  SendJson(stream->shape.Whole(), response);
}

void Api::Chat(const Call& call, httplib::Response& response) {
  const auto body = ParseJsonObject(call.body);
  if (!body.ok()) return SendError(FromStatus(body.status()), response);
  auto request = ParseChat(host_, *body, options_.answers);
  if (!request.ok()) return SendError(FromStatus(request.status()), response);
  Answer("", *std::move(request), AnswerShape::Kind::kChat, response);
}

void Api::Completion(const Call& call, httplib::Response& response) {
  const auto body = ParseJsonObject(call.body);
  if (!body.ok()) return SendError(FromStatus(body.status()), response);
  auto request = ParseCompletion(host_, *body, options_.answers);
  if (!request.ok()) return SendError(FromStatus(request.status()), response);
  Answer("", *std::move(request), AnswerShape::Kind::kCompletion, response);
}

void Api::Ask(const Call& call, httplib::Response& response) {
  const auto body = ParseJsonObject(call.body);
  if (!body.ok()) return SendError(FromStatus(body.status()), response);
  auto request = ParseAsk(host_, *body, options_.answers);
  if (!request.ok()) return SendError(FromStatus(request.status()), response);
  Answer(call.arguments[0], *std::move(request), AnswerShape::Kind::kChat, response);
}

}  // namespace weir
