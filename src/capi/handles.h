// SPDX-License-Identifier: Apache-2.0
// What is behind the C API's handles, and what its functions share: no exception leaves them, sizes are checked.
#pragma once

#include <cxxabi.h>

#include <algorithm>
#include <atomic>
#include <cstring>
#include <exception>
#include <memory>
#include <mutex>
#include <new>
#include <optional>
#include <string>

#include "capi/own_policy.h"
#include "chat/answerer.h"
#include "chat/form_memory.h"
#include "chat/talk.h"
#include "engine/loaded_draft.h"
#include "engine/loaded_encoder.h"
#include "engine/loaded_model.h"
#include "engine/picture_reader.h"
#include "engine/session.h"
#include "kv/trace.h"
#include "recall/stream_recall.h"
#include "rules/rule_set.h"
#include "text/forms/form.h"
#include "weir/weir.h"

namespace weir {

// What a session was opened with, so that it can be forked.
struct OpenedWith {
  std::shared_ptr<OwnRule> rule;  // nullptr: a built-in policy
  SessionOptions options;
  PictureRoom room;
  PrunerSpec prune;
  RecallOptions recall;
  int64_t form_bytes = 0;
  bool media_sandbox = true;
};

// An answer between weir_session_begin_answer() and weir_session_end_answer().
struct OpenAnswer {
  explicit OpenAnswer(Sampler made) : sampler(std::move(made)) {}
  Sampler sampler;
  std::optional<Answerer> answerer;  // refers to the sampler
  std::string text;                  // of the latest step
  bool unread = false;               // the latest token is not read yet
  Status failed;                     // why the answer cannot go on
};

}  // namespace weir

struct weir_model {
  std::atomic<int> n_owners{1};  // the caller's handle and the open sessions: the last one to go deletes it
  std::unique_ptr<weir::LoadedModel> loaded;
  std::unique_ptr<weir::LoadedEncoder> encoder;  // nullptr: no pictures
  std::unique_ptr<weir::LoadedDraft> draft;      // nullptr: none
  std::optional<weir::ChatTemplate> chat;
  weir::Status no_chat;  // why there is none
  weir::Ledger form_ledger;
  std::optional<weir::SharedFormVocab> form_vocab;  // once there is `loaded`; refers to it and the ledger
};

namespace weir {

// A share in a model. weir_model_close() may come before the sessions are closed.
class ModelShare {
 public:
  explicit ModelShare(weir_model& model) : model_(&model) { ++model.n_owners; }
  ~ModelShare() { Release(model_); }
  ModelShare(const ModelShare&) = delete;
  ModelShare& operator=(const ModelShare&) = delete;
  weir_model* operator->() const { return model_; }
  weir_model& operator*() const { return *model_; }
  static void Release(weir_model* model) {
    if (--model->n_owners == 0) delete model;
  }

 private:
  weir_model* const model_;
};

}  // namespace weir

struct weir_session {
  explicit weir_session(weir_model& of) : model(of) {}
  const weir::ModelShare model;  // first: it goes last
  bool in_call = false;          // a call is at work, perhaps in a callback of the caller's
  weir::OpenedWith opened;       // first: the session asks its rule
  std::unique_ptr<weir::Session> session;
  weir::FormMemory forms;                         // of the session's ledger
  std::unique_ptr<weir::PictureReader> pictures;  // nullptr without an encoder
  std::optional<weir::Conversation> talk;         // nullopt: no chat, or none yet
  std::unique_ptr<weir::StreamRecall> recall;     // nullptr without recall
  weir::Recalled recalled;                        // for the last question
  std::unique_ptr<weir::TraceWriter> trace;       // nullptr: none
  std::unique_ptr<weir::OpenAnswer> answer;       // nullptr: none
  std::optional<weir::RuleSet> rules;             // nullopt: the session has no room for any
  weir::Reservation rule_room;                    // in the session's ledger, for `rules`
  weir_event_callback on_event = nullptr;
  void* event_user = nullptr;
  mutable std::string rule_words;  // of the latest answer of weir_session_rule()
  int64_t t_ms = 0;                // of what is read next
  weir_progress_callback on_progress = nullptr;
  void* progress_user = nullptr;
  int64_t n_progress = 0;         // what it was told last in this call
  std::atomic<bool> stop{false};  // on_progress asked to
};

namespace weir {

// Stores the reason for weir_last_error().
weir_status Answer(const Status& status);

template <typename Fn>
weir_status Guarded(Fn fn) {
  try {
    return Answer(fn());
#ifdef __GLIBCXX__
  } catch (const abi::__forced_unwind&) {
    throw;  // a thread that ends in a callback of the caller's
#endif
  } catch (const std::bad_alloc&) {
    return Answer(Internal("out of memory"));
  } catch (const std::exception& error) {
    return Answer(Internal("{}", error.what()));
  } catch (...) {
    return Answer(Internal("something was thrown"));
  }
}

inline const Status kNull = InvalidArgument("a pointer that must not be NULL is NULL");

// The result of a call that read. If the caller's own policy failed in it, that is the reason.
inline Status WithReason(weir_session* session, const Status& status) {
  if (session->opened.rule == nullptr) return status;
  const Status why = session->opened.rule->TakeFailure();
  return why.ok() ? status : why;
}
// Between the tokens of an answer a session cannot read anything else, nor be copied.
inline Status CheckNoAnswer(const weir_session& session) {
  if (session.answer == nullptr) return Status();
  return InvalidArgument("an answer is being generated: weir_session_end_answer() comes first");
}
// Marks a session for as long as a call changes it. A callback must not change it meanwhile.
class InCall {
 public:
  explicit InCall(weir_session& session) : session_(session), first_(!session.in_call) { session.in_call = true; }
  ~InCall() {
    if (first_) session_.in_call = false;
  }
  InCall(const InCall&) = delete;
  InCall& operator=(const InCall&) = delete;
  Status status() const {
    if (first_) return Status();
    return InvalidArgument("a callback called the session that called it: only calls that ask are allowed there");
  }

 private:
  weir_session& session_;
  const bool first_;
};

// Runs a call that changes a session.
template <typename Fn>
weir_status Changing(weir_session* session, Fn fn) {
  return Guarded([&]() -> Status {
    if (session == nullptr) return kNull;
    const InCall in_call(*session);
    WEIR_RETURN_IF_ERROR(in_call.status());
    return fn();
  });
}
// Runs a call that reads into a session.
template <typename Fn>
weir_status Reading(weir_session* session, Fn fn) {
  return Changing(session, [&]() -> Status {
    WEIR_RETURN_IF_ERROR(CheckNoAnswer(*session));
    session->stop = false;
    session->n_progress = 0;
    return WithReason(session, fn());
  });
}
// Runs a call that goes on with an answer.
template <typename Fn>
weir_status Answering(weir_session* session, Fn fn) {
  return Changing(session, [&]() -> Status {
    if (session->answer == nullptr) return InvalidArgument("no answer is being generated");
    session->stop = false;
    return WithReason(session, fn());
  });
}

// Converts a caller's struct to this build's layout: fields that an older header lacks get their defaults, and those
// that only a newer one has must be zero.
template <typename T>
Status Read(const T* given, T* out) {
  if (given == nullptr) return Status();
  if (given->struct_bytes < sizeof(size_t) || given->struct_bytes > 4096) {
    return InvalidArgument("struct_bytes is {}; use the INIT macro", given->struct_bytes);
  }
  const auto* const bytes = reinterpret_cast<const unsigned char*>(given);
  for (size_t i = sizeof(T); i < given->struct_bytes; ++i) {
    if (bytes[i] == 0) continue;
    return InvalidArgument(
        "a struct of {} bytes sets a field at byte {}, of which weir {} knows nothing: leave it zero, or use a newer "
        "library",
        given->struct_bytes, i, WEIR_VERSION);
  }
  std::memcpy(out, given, std::min(given->struct_bytes, sizeof(T)));
  return Status();
}

// Converts back, as far as the caller's struct has room.
template <typename T>
Status Write(T value, T* out) {
  if (out == nullptr) return kNull;
  const size_t room = out->struct_bytes;
  if (room < sizeof(size_t) || room > 4096) {
    return InvalidArgument("struct_bytes is {}; use the INIT macro", room);
  }
  std::memcpy(out, &value, std::min(room, sizeof(T)));
  out->struct_bytes = room;
  return Status();
}

// How a call reads: time, pins, and what the caller's progress function says.
Session::AppendOptions AppendOptionsFor(weir_session* session, bool pinned);

// Before anything but frames is read: one that waits for the next is read (FrameStore::Interrupt()).
Status EndFrames(weir_session* session);

// Tells the caller's progress function; it may set `stop`.
void TellProgress(weir_session* session, int64_t n_done);

// Asks the session's rules, if any, about the present moment and tells the caller of events. kCancelled: the caller's
// functions asked to stop.
Status CheckRules(weir_session* session);

Status CheckPinFlag(uint32_t flags);
// The chat of a session; starts one without a system message if there is none.
Status EnsureChat(weir_session* session, const std::optional<std::string>& system, bool pinned);
Status OpenUserTurn(weir_session* session);

// Calls `fn` with a Talk; the conversation returns to the session whatever the result.
template <typename Fn>
Status WithTalk(weir_session* session, Sampler& sampler, Fn fn) {
  Talk talk(*session->session, sampler, std::move(*session->talk));
  const Status status = fn(talk);
  session->talk = std::move(talk.conversation());
  return status;
}

}  // namespace weir
