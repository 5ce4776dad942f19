// SPDX-License-Identifier: Apache-2.0
// Which conversations of the clients' APIs live in which stream sessions. An API that sends a conversation's whole
// history with every request, or names an earlier response, finds here what its session has read already.
//
// Everything is bounded; what is forgotten costs a client its place, never a wrong answer. Thread-safe.
#pragma once

#include <cstdint>
#include <deque>
#include <map>
#include <mutex>
#include <optional>
#include <span>
#include <string>
#include <vector>

namespace weir {

class ThreadBook {
 public:
  static constexpr size_t kMaxThreads = 256, kMaxMessages = 4096, kMaxResponses = 1024;
  static constexpr int64_t kMaxResponseBytes = 8 << 20;  // of all bodies together

  // An answer of a stored conversation.
  struct Response {
    std::string id, session;
    std::string body;  // JSON; empty: it can be continued, but not read again
    bool owns = true;  // the session was made for it, and ends when there is no room
  };
  // Replaces the session's newest response, and ends its use. The oldest ones are forgotten beyond the limits, and a
  // body that is larger than all may be is not kept; returns sessions that were made for responses of which none is
  // left, for the caller to end.
  std::vector<std::string> Put(Response response);
  std::optional<Response> Find(const std::string& id) const;
  // Whether the session has said nothing since: its conversation can go on from here.
  bool IsNewest(const Response& response) const;
  // False if there is none.
  bool Erase(const std::string& id);

  // A session was made for a response that is being written: it is in use.
  void Begin(const std::string& session);
  // The session goes on from this response and is in use. False if it is not the newest, or the session is in use.
  bool Claim(const Response& response);
  // Ends the use of a session that gave no response. `changed`: it read something, so no response can be continued.
  void Release(const std::string& session, bool changed);
  // Forgets, of the sessions that were made for responses and are not in use, the longest unused; empty: none.
  std::string TakeOldestSession();
  // Sessions that were made for responses, those in use too.
  int64_t NumSessions() const;

  // How many of a request's messages (their hashes, in order) the session has read: the longest beginning of them that
  // ends what it has read.
  size_t NumRead(const std::string& session, std::span<const uint64_t> messages);
  // The session has read, or said, these messages. Only its last kMaxMessages are remembered.
  void Read(const std::string& session, std::span<const uint64_t> messages);
  // What NumRead() and Read() call the thread of a session's system messages.
  static std::string SystemOf(const std::string& session) { return session + "/system"; }

  // The session has ended.
  void Forget(const std::string& session);

 private:
  struct Thread {
    std::vector<uint64_t> messages;
    int64_t used = 0;
  };
  struct Place {
    std::string newest;  // response; empty: none can be continued
    bool owns = false, in_use = false;
    int64_t used = 0;
  };
  void EraseAt(std::deque<Response>::iterator at);
  void ForgetSession(const std::string& session);

  mutable std::mutex mutex_;
  std::deque<Response> responses_;       // oldest first
  std::map<std::string, Place> places_;  // by session
  int64_t response_bytes_ = 0;
  std::map<std::string, Thread> threads_;
  int64_t n_used_ = 0;
};

}  // namespace weir
