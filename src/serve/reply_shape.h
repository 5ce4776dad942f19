// SPDX-License-Identifier: Apache-2.0
// How one API words an answer: whole, or as a stream. An adapter (src/serve/apis) defines one and gets the same events
// for both, so that they agree. One object per request, used by the request's own thread only.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>

#include "io/json.h"
#include "serve/answer_job.h"
#include "serve/api_error.h"

namespace weir {

class ReplyShape {
 public:
  virtual ~ReplyShape() = default;

  // For whole answers: takes an event of answer `index`, which is number index mod n for prompt index / n. Answers come
  // one after another, and the first event of an answer begins it.
  virtual void Add(size_t index, const AnswerEvent& event) = 0;
  // The answer's body. Called once, after the last event.
  virtual Json Whole() = 0;

  // For streams: what to send for an event; may be empty.
  virtual std::string Stream(size_t index, const AnswerEvent& event) = 0;
  // What to send after the last event.
  virtual std::string End() { return ""; }
  // What ends the stream if there is no (whole) answer.
  virtual std::string Failed(const ApiError& error) = 0;
  // What to send while there is nothing to say: `n_read` of `n_prompt` tokens of the prompt were read. By default a
  // comment of an event stream, which clients ignore.
  virtual std::string Waiting(int64_t n_read, int64_t n_prompt);
  virtual const char* stream_type() const { return "text/event-stream"; }
};

// One event of a text/event-stream; `name` may be empty.
std::string EventText(const Json& data, std::string_view name = {});

}  // namespace weir
