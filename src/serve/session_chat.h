// SPDX-License-Identifier: Apache-2.0
// A conversation that a client tells anew with every request, held in a stream session: only what the session has not
// read yet is read.
#pragma once

#include <functional>
#include <memory>
#include <string>

#include "serve/api_error.h"
#include "serve/chat_body.h"
#include "serve/reply_shape.h"
#include "serve/routes/route.h"

namespace weir {

// Makes the words for an answer, once its request is known.
using MakeShape = std::function<std::unique_ptr<ReplyShape>(const CompletionRequest& request)>;

// Reads the messages that session `id` does not have and answers the last of them, the user's. Messages of the user
// that no answer follows become part of the turn; rounds with an answer are read as they took place. A system message
// that differs from the session's is read as a text.
//
// The session remembers what it read, so the client may send the whole conversation, its end, or only what is new.
// Requests that continue one session must come one after another. Everything is checked before anything is read; an
// error after that is 409 if the work was stopped, and says with `x-should-retry` that it is not to be sent again.
void AnswerInSession(const Call& call, const std::string& id, const ChatBody& body, const MakeShape& make_shape,
                     httplib::Response& response);

// Whether a new session can hold the conversation, and answer it. Errors in the client's words; kUnsupported for calls
// of tools.
Status CheckForSession(const Call& call, const ChatBody& body);
// Makes a session for a conversation: its system message, if it has one, is the session's. http 0: its id is *id.
ApiError SessionFor(const Call& call, const ChatBody& body, std::string* id);

}  // namespace weir
