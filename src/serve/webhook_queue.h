// SPDX-License-Identifier: Apache-2.0
// Events that wait to be delivered, in order, and that outlive the process.
//
// They are kept in memory and in a journal: a file of JSON lines, one for every event that came, one for its first
// attempt and one for its end. Opened again, the journal gives back what was not done. A line that the end of a process
// cut off is no line. Once most of it is about events that are done, it is written anew.
//
// Not thread-safe.
#pragma once

#include <cstdint>
#include <list>
#include <string>
#include <string_view>
#include <vector>

#include "base/status.h"
#include "io/json.h"

namespace weir {

class WebhookQueue {
 public:
  struct Event {
    std::string id;       // never given to another event
    std::string session;  // that it is of
    std::string target;   // address that it goes to
    int64_t made_s = 0;   // Unix time
    std::string body;
    int64_t attempts = 0;   // to send it, here or elsewhere
    int64_t n_line = 0;     // bytes of its line in the journal
    std::string trace;      // traceparent of what it came of; ends with the process
    int64_t bytes() const;  // of memory
  };
  static constexpr size_t kMostEvents = 10000;
  static constexpr int64_t kMostBytes = 16 << 20;     // of all events together
  static constexpr size_t kMostBodyBytes = 64 << 10;  // of one
  // The most memory that a queue takes, with the lines of its journal that it reads and writes.
  static int64_t MemoryBytes();

  // An empty path: without a journal. kIo if the file cannot be used, or another process uses it; kInvalidArgument for
  // a file that is no journal.
  static Result<WebhookQueue> Open(const std::string& path);
  WebhookQueue(WebhookQueue&& other) noexcept;
  WebhookQueue& operator=(WebhookQueue&&) = delete;
  ~WebhookQueue();

  // Adds one at the end, unless one of this id waits already. Where it does not fit, the oldest go: returns how many.
  // One with a larger body than kMostBodyBytes goes itself.
  int64_t Push(Event event);
  // The oldest for this target; nullptr if none waits. Valid until the queue changes.
  const Event* Oldest(const std::string& target) const;
  // It is about to be sent: returns how often, with this time. That it was tried at all outlives the process.
  int64_t Try(const std::string& id);
  // It has been delivered, or is given up. Nothing happens if it does not wait.
  void Done(const std::string& id);
  // What waits of a session, oldest first.
  std::vector<Event> Of(const std::string& session) const;
  size_t size() const { return events_.size(); }

  // Makes what was pushed outlast a failure of power, too; a process may end at any time without it.
  void Sync();
  // Why the journal lacks something; empty: it has everything.
  const std::string& trouble() const { return trouble_; }

  static Json ToJson(const Event& event);
  static Result<Event> FromJson(const Json& json);

 private:
  WebhookQueue() = default;
  Status Load();
  // False for what is no line of a journal.
  bool TakeLine(std::string_view line);
  void Erase(std::list<Event>::iterator at);
  // Returns the bytes of the line, also where it could not be written.
  int64_t Append(const Json& line);
  void Rewrite();

  std::string path_;
  int lock_ = -1, file_ = -1;
  std::list<Event> events_;  // a deque moves events, and short ones would keep the memory of long ones
  int64_t bytes_ = 0;        // of events_
  int64_t file_bytes_ = 0;   // up to the end of the last whole line
  int64_t line_bytes_ = 0;   // of that, the lines of events_
  std::string trouble_;
};

}  // namespace weir
