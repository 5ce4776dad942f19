// SPDX-License-Identifier: Apache-2.0
#include "serve/answer_sender.h"

#include <chrono>
#include <memory>
#include <optional>
#include <utility>
#include <vector>

#include "base/clock.h"
#include "serve/answer_job.h"
#include "serve/http_server.h"
#include "serve/reply.h"
#include "serve/routes/common.h"

namespace weir {
namespace {

// Bytes that a log-likelihood counts as in the limit on request bytes: a body may also grow to thirty times its size.
constexpr int64_t kLikelihoodBytes = 24;
// The longest silence of a stream before it sends a keep-alive comment: clients and proxies time out after a minute,
// some much sooner.
constexpr auto kLongestSilence = std::chrono::seconds(5);

// `has_read`: the session has read a part of the request; it may also have been handed over since, with that part.
ApiError ErrorOf(const AnswerEvent& event, bool has_read) {
  const bool stopped = event.status.code() == StatusCode::kCancelled || event.status.code() == StatusCode::kNotFound;
  if (event.cut || (has_read && stopped)) return CutShort(event.status);
  return event.overflow ? ContextLengthExceeded(event.status) : FromStatus(event.status);
}

// The answers to the prompts of one request, n per prompt, in order. Its destructor cancels the work.
class Answers {
 public:
  Answers(Host& host, std::string id, std::vector<AnswerRequest> requests, int n)
      : host_(host), id_(std::move(id)), requests_(std::move(requests)), n_(static_cast<size_t>(n)) {}
  ~Answers() {
    if (job_) job_->Cancel();
  }
  Answers(const Answers&) = delete;
  Answers& operator=(const Answers&) = delete;

  // Work has begun, and is not refused because others wait.
  void Begun() { begun_ = true; }

  struct Next {
    size_t index = 0;
    AnswerEvent event;
    bool last = false;  // of the whole request
  };
  enum class Waited { kEvent, kNothing, kGone };
  // Waits for the next event: kNothing if none arrived in time, kGone if the client has disconnected. Must not be
  // called after kGone or after the last event.
  Waited Wait(const HttpConnection& client, Clock::time_point until, Next* next) {
    if (!job_) {
      job_ = std::make_shared<AnswerJob>(host_, id_, TakeRequest());
      const Status posted = begun_ ? host_.scheduler().PostAlways(job_) : host_.scheduler().Post(job_);
      if (!posted.ok()) job_->Dropped(posted);
    }
    for (;;) {
      auto event = job_->events.Pop(kLookAtClient);
      // Checked even while events keep arriving: a long answer would otherwise never notice a disconnect.
      const Clock::time_point now = Clock::now();
      if (now >= look_at_client_) {
        look_at_client_ = now + kLookAtClient;
        if (!client.Alive()) return Waited::kGone;
      }
      if (!event && now >= until) return Waited::kNothing;
      if (!event) continue;
      *next = {index_, *std::move(event), false};
      if (next->event.last) {
        job_.reset();
        next->last = ++index_ == requests_.size() * n_ || !next->event.status.ok();
      }
      return Waited::kEvent;
    }
  }
  // How far the prompt was read. REQUIRES: Wait() returned kNothing.
  AnswerJob::Progress progress() const { return job_->progress(); }

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
  bool begun_ = false;
  size_t index_ = 0;
  std::shared_ptr<AnswerJob> job_;
  Clock::time_point look_at_client_;
};

bool WriteText(httplib::DataSink& sink, const std::string& text) { return sink.write(text.data(), text.size()); }

// The state of a stream between calls from the HTTP library.
struct Stream {
  Stream(Host& host, const std::string& id, std::unique_ptr<ReplyShape> words, CompletionRequest request,
         std::unique_ptr<HistoryFeed> history)
      : host(host),
        id(id),
        ticket(host.Ticket(id)),
        shape(std::move(words)),
        answers(host, id, std::move(request.answers), request.n),
        before(std::move(history)) {}

  // Reads what comes before the question: http 0 once that is done, nullopt at `until`.
  std::optional<ApiError> ReadBefore(Clock::time_point until) {
    if (before == nullptr) return ApiError{0, "", ""};
    auto done = before->Go(until);
    if (!done) return done;
    has_read = before->has_read();
    if (has_read) answers.Begun();
    before.reset();
    return done;
  }

  // What the answer says is stored with its session before its end is sent.
  ApiError Settle() { return host.Settle(id, ticket); }

  Host& host;
  const std::string id;
  const SessionTicket ticket;
  const std::unique_ptr<ReplyShape> shape;
  Answers answers;
  std::unique_ptr<HistoryFeed> before;  // nullptr: nothing is left of it
  bool has_read = false;                // the session has read a part of the request
  std::optional<Answers::Next> first;   // read before the status of the response was known
  Clock::time_point silent_since = Clock::now();
};

// False ends the connection.
bool WriteNext(Stream& stream, httplib::DataSink& sink) {
  Answers::Next next;
  auto waited = Answers::Waited::kEvent;
  const auto before = stream.ReadBefore(stream.silent_since + kLongestSilence);
  if (!before || before->http != 0) {
    stream.silent_since = Clock::now();
    if (!WriteText(sink, before ? stream.shape->Failed(*before) : stream.shape->Waiting(0, 0))) return false;
    if (before) sink.done();
    return true;
  }
  if (stream.first) {
    next = *std::move(stream.first);
    stream.first.reset();
  } else {
    waited = stream.answers.Wait(*HttpConnection::Current(), stream.silent_since + kLongestSilence, &next);
  }
  if (waited == Answers::Waited::kGone) return false;
  stream.silent_since = Clock::now();
  if (waited == Answers::Waited::kNothing) {
    const AnswerJob::Progress progress = stream.answers.progress();
    return WriteText(sink, stream.shape->Waiting(progress.n_read, progress.n_prompt));
  }
  bool failed = !next.event.status.ok();
  ApiError error = failed ? ErrorOf(next.event, stream.has_read) : ApiError{0, "", ""};
  if (next.last && !failed) error = stream.Settle();
  failed = error.http != 0;
  std::string text = failed ? stream.shape->Failed(error) : stream.shape->Stream(next.index, next.event);
  if (next.last && !failed) text += stream.shape->End();
  if (!text.empty() && !WriteText(sink, text)) return false;
  if (next.last) sink.done();
  return true;
}

}  // namespace

void SendAnswers(Host& host, const std::string& id, CompletionRequest request, std::unique_ptr<ReplyShape> shape,
                 httplib::Response& response, std::unique_ptr<HistoryFeed> before) {
  HttpConnection& client = *HttpConnection::Current();
  if (const Status room = client.Take(request.n_likelihoods * kLikelihoodBytes); !room.ok()) {
    return SendError(room, response);
  }
  const bool as_stream = request.stream;
  auto stream = std::make_shared<Stream>(host, id, std::move(shape), std::move(request), std::move(before));
  // A stream's status must be sent before clients time out; later errors are events of the stream.
  const auto until = as_stream ? stream->silent_since + kLongestSilence : Clock::time_point::max();
  const auto send_stream = [&] {
    response.set_header("Cache-Control", "no-store");
    response.set_header("X-Accel-Buffering", "no");
    response.set_chunked_content_provider(
        stream->shape->stream_type(), [stream](size_t, httplib::DataSink& sink) { return WriteNext(*stream, sink); });
  };
  const auto done = stream->ReadBefore(until);
  if (!done) return send_stream();
  if (done->http != 0) {
    if (stream->has_read) ForbidRetry(response);
    return SendError(*done, response);
  }
  for (Answers::Next next; !next.last;) {
    const auto waited = stream->answers.Wait(client, until, &next);
    if (waited == Answers::Waited::kGone) return SendError({499, "cancelled", "the client disconnected"}, response);
    if (!next.event.status.ok()) {
      if (stream->has_read) ForbidRetry(response);
      return SendError(ErrorOf(next.event, stream->has_read), response);
    }
    if (as_stream) {
      if (waited == Answers::Waited::kEvent) stream->first = std::move(next);
      return send_stream();
    }
    stream->shape->Add(next.index, next.event);
  }
  if (const ApiError error = stream->Settle(); error.http != 0) return SendError(error, response);
  SendJson(stream->shape->Whole(), response);
}

}  // namespace weir
