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
    std::string body;  // JSON
    bool owns = true;  // the session was made for it, and ends when there is no room
  };
  // Replaces the session's newest response. The oldest ones are forgotten beyond the limits; returns sessions that were
  // made for responses of which none is left, for the caller to end.
  std::vector<std::string> Put(Response response);
  std::optional<Response> Find(const std::string& id) const;
  // Whether the session has said nothing since: its conversation can go on from here.
  bool IsNewest(const Response& response) const;
  // False if there is none.
  bool Erase(const std::string& id);
  // Of the sessions that were made for responses: the one whose newest response is the oldest; empty: none.
  std::string OldestSession() const;
  int64_t NumSessions() const;

  // How many of a request's messages (their hashes, in order) the session has read: the longest beginning of them that
  // ends what it has read.
  size_t NumRead(const std::string& session, std::span<const uint64_t> messages) const;
  // The session has read, or said, these messages. Only its last kMaxMessages are remembered.
  void Read(const std::string& session, std::span<const uint64_t> messages);

  // The session has ended.
  void Forget(const std::string& session);

 private:
  struct Thread {
    std::vector<uint64_t> messages;
    int64_t used = 0;
  };
  void EraseAt(std::deque<Response>::iterator at);

  mutable std::mutex mutex_;
  std::deque<Response> responses_;             // oldest first
  std::map<std::string, std::string> newest_;  // response by session
  int64_t response_bytes_ = 0;
  std::map<std::string, Thread> threads_;
  int64_t n_used_ = 0;
};

}  // namespace weir
