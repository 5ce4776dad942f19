// SPDX-License-Identifier: Apache-2.0
// Delivers events of rules to addresses that the operator allows: POST requests, signed (serve/webhook_signature.h).
//
// Each address gets its events one after another, in the order in which they came; one that does not answer holds up no
// other, and nobody who posts an event. An answer of 2xx ends an event. Otherwise it is sent again under the same id,
// after 0.5 s, 1 s, 2 s ... up to a minute (a Retry-After of up to an hour is kept to), until it is a day old. An
// answer that refuses it (400, 410, 413, 422) ends it at once.
//
// A receiver whose answer was lost sees an event again, under its id, as another attempt. Of a session it is then the
// last one that it saw: no event of a session is sent before the one before it is over, here or on the next server. All
// methods: any thread.
#pragma once

#include <condition_variable>
#include <cstdint>
#include <memory>
#include <mutex>
#include <string>
#include <thread>
#include <vector>

#include "base/ledger.h"
#include "base/status.h"
#include "serve/webhook_queue.h"
#include "serve/webhook_signature.h"

namespace weir {

struct WebhookOptions {
  static constexpr size_t kMostTargets = 16;
  std::vector<std::string> targets;  // http:// or https:// addresses; empty: none
  std::string secret;                // as WebhookKey::Parse() reads it
  std::string queue;                 // file of what waits; empty: it ends with the server
};

class WebhookSender {
 public:
  // What Make() reserves: the queue, and what is under way to each address.
  static int64_t MemoryBytes(const WebhookOptions& options);
  // kInvalidArgument for an address that is none or too many of them, a secret that is none, or a queue without an
  // address; errors of WebhookQueue::Open(); kOverBudget. What its file has is delivered from now on. `ledger` must
  // outlive it.
  static Result<std::unique_ptr<WebhookSender>> Make(const WebhookOptions& options, Ledger& ledger);
  // Ends deliveries that are under way: they were not delivered.
  ~WebhookSender();

  // kInvalidArgument for anything but an address of the options.
  Status CheckTarget(const std::string& target) const;
  // The event of a session's rule: its id is unique within the session. `trace`: the traceparent of what it came of;
  // empty: none. Errors of CheckTarget().
  Status Post(const std::string& session, int64_t event, const std::string& target, std::string body,
              std::string trace = "");

  // A session moves to another server and takes along what waits of it. Between Hold() and Release() nothing of it is
  // sent; with `moved` it has left. Hold() waits for up to a second for a delivery of the session that is under way,
  // and then breaks it off.
  std::vector<WebhookQueue::Event> Hold(const std::string& session);
  void Release(const std::string& session, bool moved);
  // It has come from another server. Errors of CheckTarget(), after the events with an address have been taken in.
  Status Resume(const std::vector<WebhookQueue::Event>& events);

  struct Counters {
    int64_t waiting = 0;
    int64_t delivered = 0, failed = 0;  // requests with an answer of 2xx, and all others
    int64_t dropped = 0;                // events that were refused, became too old, or did not fit
  };
  Counters counters() const;
  // Why what waits may not outlast the process; empty: it will.
  std::string trouble() const;

 private:
  class Target;
  using Lock = std::unique_lock<std::mutex>;
  explicit WebhookSender(WebhookKey key, WebhookQueue queue);
  void Work(Target& target);
  // Waits until nothing of the session is under way (empty: nothing at all), and breaks off what takes longer.
  void Settle(Target& target, const std::string& session, Lock& lock);

  const WebhookKey key_;
  Reservation room_;
  mutable std::mutex mutex_;
  std::condition_variable changed_;
  WebhookQueue queue_;
  Counters counters_;              // `waiting` is the queue's
  std::vector<std::string> held_;  // sessions
  bool stop_ = false;
  std::vector<std::unique_ptr<Target>> targets_;
};

}  // namespace weir
