// weir-plugin: route
// SPDX-License-Identifier: Apache-2.0
// The events of a session's rules as they come, as server-sent events that a client can go on with after a break.
#include <fmt/core.h>

#include <charconv>
#include <memory>
#include <string>

#include "base/clock.h"
#include "serve/call_job.h"
#include "serve/reader_places.h"
#include "serve/reply.h"
#include "serve/routes/common.h"
#include "serve/routes/route.h"

namespace weir {
namespace {

constexpr auto kLongestSilence = std::chrono::seconds(5);

struct Reader {
  const ReaderPlace place;
  std::shared_ptr<EventRing> ring;
  int64_t at = 0;  // id of the last event that was sent
  Clock::time_point silent_since = Clock::now();
};

bool Write(httplib::DataSink& sink, const std::string& text) { return sink.write(text.data(), text.size()); }

// False ends the connection.
bool SendNext(const Host& host, Reader& reader, httplib::DataSink& sink) {
  const auto event = reader.ring->After(reader.at, kLookAtClient);
  if (event) {
    std::string text;
    if (event->n_missed > 0) text = fmt::format("event: missed\ndata: {{\"events\":{}}}\n\n", event->n_missed);
    text += fmt::format("id: {}\nevent: {}\ndata: {}\n\n", event->id, event->name, event->json);
    reader.at = event->id;
    reader.silent_since = Clock::now();
    return Write(sink, text);
  }
  if (reader.ring->closed() || host.hurry()) {
    sink.done();
    return true;
  }
  if (!HttpConnection::Current()->Alive()) return false;
  if (Clock::now() - reader.silent_since < kLongestSilence) return true;
  reader.silent_since = Clock::now();
  return Write(sink, ":\n\n");
}

void Handle(const Call& call, httplib::Response& response) {
  const auto reader = std::make_shared<Reader>();
  if (const ApiError full = reader->place.Check(call.options.http); full.http != 0) return SendError(full, response);
  const std::string from = call.http.get_header_value("Last-Event-ID");
  const auto [end, error] = std::from_chars(from.data(), from.data() + from.size(), reader->at);
  if (!from.empty() && (error != std::errc() || end != from.data() + from.size() || reader->at < 0)) {
    return SendError({400, "", "the header Last-Event-ID is not the id of an event"}, response);
  }
  const Status status = LookAtSession(call.host, call.arguments[0], [&](const StreamSession& stream) {
    if (stream.rules != nullptr) reader->ring = stream.rules->events;
  });
  if (!status.ok()) return SendError(status, response);
  if (reader->ring == nullptr) {
    return SendError({400, "", "this session was made without room for rules: make it with 'rule_tokens'"}, response);
  }
  response.set_header("Cache-Control", "no-store");
  response.set_header("X-Accel-Buffering", "no");
  response.set_chunked_content_provider(
      "text/event-stream",
      [&host = call.host, reader](size_t, httplib::DataSink& sink) { return SendNext(host, *reader, sink); });
}

}  // namespace

extern const RouteInfo kSessionEvents;
const RouteInfo kSessionEvents = {
    .method = "GET",
    .path = "/v1/sessions/{id}/events",
    .handle = Handle,
};

}  // namespace weir
