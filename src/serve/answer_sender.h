// SPDX-License-Identifier: Apache-2.0
// Sends the answers of chats, completions and questions to sessions, whole or as a stream of events.
#pragma once

#include <memory>
#include <string>

#include "serve/completion_request.h"
#include "serve/history_feed.h"
#include "serve/host.h"
#include "serve/http_server.h"
#include "serve/reply_shape.h"

namespace weir {

// Runs the request's prompts and fills in the response, streamed or whole as requested, including errors. An empty id:
// answer in an answer pot. `before`: what the session has to read first; errors tell whether it has read a part of it.
// Work is cancelled when the client disconnects.
void SendAnswers(Host& host, const std::string& id, CompletionRequest request, std::unique_ptr<ReplyShape> shape,
                 httplib::Response& response, std::unique_ptr<HistoryFeed> before = nullptr);

}  // namespace weir
