// SPDX-License-Identifier: Apache-2.0
#include "serve/drain.h"

#include <algorithm>
#include <functional>
#include <mutex>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "base/caught.h"
#include "base/clock.h"
#include "serve/call_job.h"
#include "serve/reply.h"
#include "serve/request_trace.h"
#include "serve/session_id.h"

namespace weir {
namespace {

constexpr std::chrono::milliseconds kLook{20};
constexpr size_t kAtOnce = kSessionsLeavingAtOnce;
constexpr std::chrono::milliseconds kTryAgain{1000};  // interval between attempts to write a session

// Counts a request for as long as its handler runs.
class Inside {
 public:
  explicit Inside(std::atomic<int>& n) : n_(n) { ++n_; }
  ~Inside() { --n_; }
  Inside(const Inside&) = delete;
  Inside& operator=(const Inside&) = delete;

 private:
  std::atomic<int>& n_;
};

// Calls fn with every id, several at once: a store takes its time for each.
void ForAll(const std::vector<std::string>& ids, const std::function<void(const std::string&)>& fn) {
  std::atomic<size_t> next{0};
  const auto work = [&] {
    for (size_t i = next++; i < ids.size(); i = next++) (void)Tried([&] { fn(ids[i]); });
  };
  std::vector<std::thread> threads;
  // What no thread can be made for, this one does.
  (void)Tried([&] {
    threads.reserve(kAtOnce);
    while (threads.size() + 1 < std::min(ids.size(), kAtOnce)) threads.emplace_back(work);
  });
  work();
  for (std::thread& thread : threads) thread.join();
}

// The session that a request works on: its path names it, the header of a chat, or what its route says. Empty: none.
std::string SessionOf(const RouteInfo& route, const Call& call) {
  if (route.of_session()) return call.arguments[0];
  std::string given = call.http.get_header_value("x-session-id");
  if (route.session != nullptr) {
    if (std::string other = route.session(call); !other.empty()) given = std::move(other);
  }
  return IsSessionId(given) ? given : "";
}

}  // namespace

void Drain::Handle(const RouteInfo& route, const Call& call, httplib::Response& response, bool* refused) {
  const Inside inside(n_inside_);  // counted before the check whether the server drains
  const std::string session = handover_.enabled() ? SessionOf(route, call) : "";
  const ApiError moved = route.when_draining ? ApiError{0, "", ""} : Move(session);
  *refused = moved.http != 0;
  if (*refused) return SendError(moved, response);
  const SessionTicket ticket = host_.Ticket(session);
  route.handle(call, response);
  if (session.empty()) return;
  Correct(session, response);
  // A stream settles at its end.
  if (response.status >= 400 || response.content_provider_) return;
  const bool reads = call.http.method == "GET" || call.http.method == "HEAD";
  if (const ApiError error = host_.Settle(session, ticket, reads); error.http != 0) SendError(error, response);
}

ApiError Drain::Move(const std::string& session) {
  if (!handover_.enabled()) return {0, "", ""};
  if (draining_) {
    const SpanTimer leaving("hand over");
    const Status left = session.empty() ? Status() : handover_.Leave(host_, session);
    if (!session.empty()) leaving.Add();
    // Cancelled: the engine has stopped, and every session was handed over before that.
    if (left.ok() || left.code() == StatusCode::kCancelled) {
      return {503, "draining", "this server is shutting down; try again"};
    }
    return FromStatus(WithoutFolder(left, folder_));
  }
  if (session.empty()) return {0, "", ""};
  const SpanTimer taking("take over");
  const auto taken = handover_.Take(host_, session);
  if (!taken.ok() || *taken) taking.Add();
  if (taken.ok()) return {0, "", ""};
  // Nothing was done yet, and another server may reach the store.
  const Status why = WithoutFolder(taken.status(), folder_);
  return why.code() == StatusCode::kIo ? ApiError{503, "no_store", why.message()} : FromStatus(why);
}

void Drain::Correct(const std::string& session, httplib::Response& response) {
  if (draining_) {
    // A session that was handed over in the meantime is missing only here. A request whose work was stopped is answered
    // once its session can be found elsewhere, and a client is never told to retry work that has begun.
    if (response.status != 404 && response.status != 409 && response.status != 503) return;
    const ApiError moved = Move(session);
    if (response.status != 409) SendError(moved, response);
  } else if (response.status == 404 && handover_.Holds(session)) {
    // It was written to the folder while its request was in flight, or another server is taking it.
    SendError({503, "handed_over", "another server has the session, or is taking it; try again"}, response);
  }
}

Status Drain::Run(std::chrono::seconds wait) {
  if (!handover_.enabled()) return Status();
  draining_ = true;
  host_.StartDraining();
  // Work that takes too long is cancelled from here; a session is handed over once no job works on it.
  const auto end = Clock::now() + wait;
  std::atomic<bool> left{false};
  std::thread watch([&] {
    while (!left && Clock::now() < end) std::this_thread::sleep_for(kLook);
    host_.Hurry();
  });
  // Earlier requests may still create sessions or take them over, so the last check is after the last of them. A
  // streamed answer continues after its request is no longer counted.
  Status status;
  for (bool last = false; !last;) {
    const bool over = Clock::now() >= end, quiet = n_inside_ == 0;
    bool busy = false;
    status = LeaveAll(over, &busy);
    last = over || (quiet && !busy);
    if (!last) std::this_thread::sleep_for(status.ok() ? kLook : kTryAgain);
  }
  // Chats have no session to move, but may also finish.
  while (Clock::now() < end && (host_.scheduler().n_running() + host_.scheduler().n_waiting())) {
    std::this_thread::sleep_for(kLook);
  }
  left = true;
  watch.join();
  return status;
}

Status Drain::LeaveAll(bool wait, bool* busy) {
  std::vector<std::string> ids, others;
  Status status = CallEngine(host_, [&] {
    for (const auto& [id, stream] : host_.sessions().all()) ids.push_back(id);
    return Status();
  });
  std::mutex mutex;
  const auto leave = [&](const std::string& id) {
    bool stays = true;  // also where memory was short
    const Status one = Caught([&] {
      RequestScope scope(host_.telemetry(), "hand over", std::nullopt);
      scope.SetSession(id);
      const auto left = handover_.LeaveIdle(host_, id);
      stays = left.ok() && !*left;
      if (stays) scope.Forget();
      return left.status();
    });
    const std::lock_guard<std::mutex> lock(mutex);
    if (!one.ok()) status = one;
    if (stays) others.push_back(id);
  };
  ForAll(ids, leave);
  *busy = !others.empty();
  if (!wait) return status;
  ForAll(std::exchange(others, {}), [&](const std::string& id) {
    const Status one = Caught([&] { return handover_.Leave(host_, id); });
    const std::lock_guard<std::mutex> lock(mutex);
    if (!one.ok()) status = one;
  });
  return status;
}

}  // namespace weir
