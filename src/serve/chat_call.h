// SPDX-License-Identifier: Apache-2.0
// Answers a chat, whichever API it came through: in an answer pot, or in a stream session where the request's header
// `x-session-id` names one.
#pragma once

#include <cstdint>
#include <string>

#include "serve/chat_body.h"
#include "serve/routes/route.h"
#include "serve/session_chat.h"

namespace weir {

// Fills in the response, errors included.
void AnswerChat(const Call& call, ChatBody body, const MakeShape& make_shape, httplib::Response& response);

// An id for an answer: "msg_" and some characters that no other answer of this server has.
std::string NewReplyId(const char* prefix);
// "2026-11-23T04:18:19Z"
std::string UtcText(int64_t unix_s);

}  // namespace weir
