// SPDX-License-Identifier: Apache-2.0
#include "serve/webhook_queue.h"

#include <fcntl.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdio>
#include <cstring>
#include <string_view>
#include <utility>

#include "base/heap_bytes.h"

namespace weir {
namespace {

constexpr size_t kJournalReadBytes = 64 << 10;
// A body may be written with six bytes for each of its own.
constexpr size_t kMostLineBytes = 6 * WebhookQueue::kMostBodyBytes + (64 << 10);
constexpr int64_t kRewriteBytes = 1 << 20;  // smaller journals are left as they are
constexpr size_t kMostIdBytes = 256, kMostTargetBytes = 2048;

Status Failed(const char* what, const std::string& path) {
  return IoError("cannot {} {}: {}", what, path, std::strerror(errno));
}

bool WriteAll(int fd, std::string_view text) {
  while (!text.empty()) {
    const ssize_t n = write(fd, text.data(), text.size());
    if (n < 0 && errno == EINTR) continue;
    if (n <= 0) return false;
    text.remove_prefix(static_cast<size_t>(n));
  }
  return true;
}

}  // namespace

int64_t WebhookQueue::Event::bytes() const {
  int64_t out = HeapBytes(static_cast<int64_t>(sizeof(Event)) + 2 * static_cast<int64_t>(sizeof(void*)));
  for (const std::string* text : {&id, &session, &target, &body, &trace}) {
    out += HeapBytes(static_cast<int64_t>(text->capacity()) + 1);
  }
  return out;
}

int64_t WebhookQueue::MemoryBytes() {
  // A line as text and as JSON.
  return kMostBytes + 4 * static_cast<int64_t>(kMostLineBytes + kJournalReadBytes);
}

Json WebhookQueue::ToJson(const Event& event) {
  Json out = {{"id", event.id},
              {"session", event.session},
              {"target", event.target},
              {"made_s", event.made_s},
              {"body", event.body}};
  if (event.attempts > 0) out["attempts"] = event.attempts;
  return out;
}

Result<WebhookQueue::Event> WebhookQueue::FromJson(const Json& json) {
  if (!json.is_object()) return InvalidArgument("an event that waits is no object");
  Event out;
  Fields fields(json);
  fields.Get("id", &out.id);
  fields.Get("session", &out.session);
  fields.Get("target", &out.target);
  fields.Get("made_s", &out.made_s, 0, int64_t{1} << 40);
  fields.Get("body", &out.body);
  fields.Get("attempts", &out.attempts, 0, int64_t{1} << 40);
  WEIR_RETURN_IF_ERROR(fields.Done());
  // Ids become a header of a request.
  const bool plain = std::ranges::all_of(out.id, [](unsigned char c) { return c > 0x20 && c < 0x7F; });
  if (out.id.empty() || out.id.size() > kMostIdBytes || !plain || out.session.size() > kMostIdBytes ||
      out.target.size() > kMostTargetBytes || out.body.size() > kMostBodyBytes) {
    return InvalidArgument("an event that waits has an id or a size that no event has");
  }
  return out;
}

Result<WebhookQueue> WebhookQueue::Open(const std::string& path) {
  WebhookQueue out;
  if (path.empty()) return out;
  out.path_ = path;
  // The journal itself is replaced when it is written anew, so that its lock is another file.
  const std::string lock = path + ".lock";
  out.lock_ = open(lock.c_str(), O_RDWR | O_CREAT | O_CLOEXEC | O_NOFOLLOW, 0600);
  if (out.lock_ < 0) return Failed("make", lock);
  if (flock(out.lock_, LOCK_EX | LOCK_NB) != 0) {
    return errno == EWOULDBLOCK ? IoError("{} is in use by another server", path) : Failed("lock", lock);
  }
  out.file_ = open(path.c_str(), O_RDWR | O_CREAT | O_APPEND | O_CLOEXEC | O_NOFOLLOW, 0600);
  if (out.file_ < 0) return Failed("open", path);
  WEIR_RETURN_IF_ERROR(out.Load());
  return out;
}

WebhookQueue::WebhookQueue(WebhookQueue&& other) noexcept
    : path_(std::move(other.path_)),
      lock_(std::exchange(other.lock_, -1)),
      file_(std::exchange(other.file_, -1)),
      events_(std::move(other.events_)),
      bytes_(other.bytes_),
      file_bytes_(other.file_bytes_),
      line_bytes_(other.line_bytes_),
      trouble_(std::move(other.trouble_)) {}

WebhookQueue::~WebhookQueue() {
  if (file_ >= 0) close(file_);
  if (lock_ >= 0) close(lock_);
}

Status WebhookQueue::Load() {
  struct stat info {};
  if (fstat(file_, &info) != 0) return Failed("read", path_);
  if (!S_ISREG(info.st_mode)) return InvalidArgument("{} is not a file", path_);
  std::string rest;
  int64_t line = 1;
  for (off_t at = 0;;) {
    const size_t n_before = rest.size();
    rest.resize(n_before + kJournalReadBytes);
    const ssize_t n = pread(file_, rest.data() + n_before, kJournalReadBytes, at);
    rest.resize(n_before + static_cast<size_t>(std::max<ssize_t>(n, 0)));
    if (n < 0 && errno == EINTR) continue;
    if (n < 0) return Failed("read", path_);
    if (n == 0) break;
    at += static_cast<off_t>(n);
    size_t begin = 0;
    for (size_t end; (end = rest.find('\n', std::max(begin, n_before))) != std::string::npos; begin = end + 1, ++line) {
      if (!TakeLine(std::string_view(rest).substr(begin, end - begin))) {
        return InvalidArgument("{} is no journal of webhooks: line {}", path_, line);
      }
    }
    rest.erase(0, begin);
    file_bytes_ += static_cast<int64_t>(begin);
    if (rest.size() > kMostLineBytes) return InvalidArgument("{} is no journal of webhooks: line {}", path_, line);
  }
  const auto begins = [&](std::string_view other) { return other.starts_with(rest) || rest.starts_with(other); };
  if (!begins("{\"id\":\"") && !begins("{\"tried\":\"") && !begins("{\"done\":\"")) {
    return InvalidArgument("{} is no journal of webhooks: its end", path_);
  }
  // What follows is half a line.
  if (!rest.empty() && ftruncate(file_, file_bytes_) != 0) return Failed("write", path_);
  return Status();
}

bool WebhookQueue::TakeLine(std::string_view line) {
  const auto json = ParseJsonObject(line);
  if (!json.ok()) return false;
  for (const char* const what : {"tried", "done"}) {
    if (!json->contains(what)) continue;
    const Json& id = (*json)[what];
    if (!id.is_string()) return false;
    const auto of = std::ranges::find(events_, id.get<std::string>(), &Event::id);  // mostly the first
    if (of == events_.end()) return true;
    if (what == std::string_view("done")) {
      Erase(of);
    } else {
      of->attempts = std::max<int64_t>(of->attempts, 1);
    }
    return true;
  }
  auto event = FromJson(*json);
  if (!event.ok()) return false;
  bytes_ += event->bytes();
  event->n_line = std::ssize(line) + 1;
  line_bytes_ += event->n_line;
  events_.push_back(*std::move(event));
  // No journal has more than what waited at one time.
  return events_.size() <= kMostEvents && bytes_ <= kMostBytes;
}

void WebhookQueue::Erase(std::list<Event>::iterator at) {
  bytes_ -= at->bytes();
  line_bytes_ -= at->n_line;
  events_.erase(at);
}

int64_t WebhookQueue::Append(const Json& line) {
  if (file_ < 0) return 0;
  const std::string text = JsonText(line) + "\n";
  if (!WriteAll(file_, text)) {
    trouble_ = Failed("write", path_).message();
    // Half a line would make one with the next.
    if (ftruncate(file_, file_bytes_) != 0) trouble_ = Failed("write", path_).message();
  } else {
    file_bytes_ += std::ssize(text);
  }
  return std::ssize(text);
}

void WebhookQueue::Sync() {
  if (file_ >= 0 && fdatasync(file_) != 0) trouble_ = Failed("write", path_).message();
}

int64_t WebhookQueue::Push(Event event) {
  if (event.body.size() > kMostBodyBytes) return 1;
  if (std::ranges::any_of(events_, [&](const Event& other) { return other.id == event.id; })) return 0;
  for (std::string* text : {&event.id, &event.session, &event.target, &event.body}) text->shrink_to_fit();
  int64_t n_dropped = 0;
  while (!events_.empty() && (events_.size() >= kMostEvents || bytes_ + event.bytes() > kMostBytes)) {
    Done(std::string(events_.front().id));
    ++n_dropped;
  }
  bytes_ += event.bytes();
  event.n_line = Append(ToJson(event));
  line_bytes_ += event.n_line;
  events_.push_back(std::move(event));
  return n_dropped;
}

const WebhookQueue::Event* WebhookQueue::Oldest(const std::string& target) const {
  const auto found = std::ranges::find(events_, target, &Event::target);
  return found == events_.end() ? nullptr : &*found;
}

int64_t WebhookQueue::Try(const std::string& id) {
  const auto found = std::ranges::find(events_, id, &Event::id);
  if (found == events_.end()) return 0;
  if (found->attempts++ == 0) Append({{"tried", id}});
  return found->attempts;
}

void WebhookQueue::Done(const std::string& id) {
  const auto found = std::ranges::find(events_, id, &Event::id);
  if (found == events_.end()) return;
  Append({{"done", id}});
  Erase(found);
  if (file_bytes_ > kRewriteBytes && file_bytes_ > 4 * line_bytes_) Rewrite();
}

std::vector<WebhookQueue::Event> WebhookQueue::Of(const std::string& session) const {
  std::vector<Event> out;
  std::ranges::copy_if(events_, std::back_inserter(out), [&](const Event& event) { return event.session == session; });
  return out;
}

void WebhookQueue::Rewrite() {
  const std::string part = path_ + ".part";
  const int file = open(part.c_str(), O_RDWR | O_CREAT | O_TRUNC | O_APPEND | O_CLOEXEC | O_NOFOLLOW, 0600);
  int64_t n_bytes = 0;
  bool written = file >= 0;
  for (Event& event : events_) {
    if (!written) break;
    const std::string line = JsonText(ToJson(event)) + "\n";
    written = WriteAll(file, line);
    n_bytes += std::ssize(line);
    line_bytes_ += std::ssize(line) - std::exchange(event.n_line, std::ssize(line));
  }
  if (!written || fdatasync(file) != 0 || std::rename(part.c_str(), path_.c_str()) != 0) {
    trouble_ = Failed("write", part).message();
    if (file >= 0) close(file);
    return;
  }
  close(file_);
  file_ = file;
  file_bytes_ = n_bytes;
}

}  // namespace weir
