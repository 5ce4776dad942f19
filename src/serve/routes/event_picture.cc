// weir-plugin: route
// SPDX-License-Identifier: Apache-2.0
// The picture of an event: what a session's stream showed when one of its rules began to hold or ceased.
#include <charconv>
#include <memory>
#include <string>

#include "serve/call_job.h"
#include "serve/png.h"
#include "serve/reply.h"
#include "serve/routes/common.h"
#include "serve/routes/route.h"

namespace weir {
namespace {

Result<std::string> Picture(const Call& call) {
  const std::string& text = call.arguments[1];
  int64_t event = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), event);
  if (error != std::errc() || end != text.data() + text.size() || event < 1) {
    return InvalidArgument("the address names no event: expected the id of one, a number from 1 on");
  }
  std::shared_ptr<EventPictures> pictures;
  WEIR_RETURN_IF_ERROR(LookAtSession(call.host, call.arguments[0], [&](const StreamSession& stream) {
    if (stream.rules != nullptr) pictures = stream.rules->pictures;
  }));
  const auto copy = pictures == nullptr ? std::nullopt : pictures->Get(event);
  if (!copy) {
    return NotFound("there is no picture of event {}: the newest {} have one, those of streams that showed pictures",
                    event, EventPictures::kMost);
  }
  return EncodePng(copy->view());
}

void Handle(const Call& call, httplib::Response& response) {
  auto picture = Picture(call);
  if (!picture.ok()) return SendError(picture.status(), response);
  response.set_header("Cache-Control", "private, max-age=86400, immutable");
  response.set_content(*std::move(picture), "image/png");
}

}  // namespace

extern const RouteInfo kEventPicture;
const RouteInfo kEventPicture = {
    .method = "GET",
    .path = "/v1/sessions/{id}/events/{event}/picture",
    .handle = Handle,
};

}  // namespace weir
