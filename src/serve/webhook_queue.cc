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

namespace weir {
namespace {

constexpr int64_t kMostFileBytes = 256 << 20;  // that are read at the start
constexpr int64_t kRewriteBytes = 1 << 20;     // smaller journals are left as they are
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
  return static_cast<int64_t>(sizeof(Event) + id.size() + session.size() + target.size() + body.size());
}

Json WebhookQueue::ToJson(const Event& event) {
  return {{"id", event.id},
          {"session", event.session},
          {"target", event.target},
          {"made_s", event.made_s},
          {"body", event.body}};
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
  WEIR_RETURN_IF_ERROR(fields.Done());
  // Ids become a header of a request.
  const bool plain = std::ranges::all_of(out.id, [](unsigned char c) { return c > 0x20 && c < 0x7F; });
  if (out.id.empty() || out.id.size() > kMostIdBytes || !plain || out.session.size() > kMostIdBytes ||
      out.target.size() > kMostTargetBytes || out.bytes() > kMostBytes) {
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
      trouble_(std::move(other.trouble_)) {}

WebhookQueue::~WebhookQueue() {
  if (file_ >= 0) close(file_);
  if (lock_ >= 0) close(lock_);
}

Status WebhookQueue::Load() {
  struct stat info {};
  if (fstat(file_, &info) != 0) return Failed("read", path_);
  if (!S_ISREG(info.st_mode)) return InvalidArgument("{} is not a file", path_);
  if (info.st_size > kMostFileBytes) return InvalidArgument("{} is too large for a journal of webhooks", path_);
  std::string text(static_cast<size_t>(info.st_size), '\0');
  for (size_t at = 0; at < text.size();) {
    const ssize_t n = pread(file_, text.data() + at, text.size() - at, static_cast<off_t>(at));
    if (n < 0 && errno == EINTR) continue;
    if (n <= 0) return Failed("read", path_);
    at += static_cast<size_t>(n);
  }
  std::string_view rest = text;
  for (int64_t line = 1; rest.find('\n') != std::string_view::npos; ++line) {
    const std::string_view one = rest.substr(0, rest.find('\n'));
    rest.remove_prefix(one.size() + 1);
    const auto json = ParseJsonObject(one);
    if (!json.ok()) return InvalidArgument("{} is no journal of webhooks: line {}", path_, line);
    if (json->contains("done")) {
      const Json& id = (*json)["done"];
      if (!id.is_string()) return InvalidArgument("{} is no journal of webhooks: line {}", path_, line);
      const auto done = std::ranges::find(events_, id.get<std::string>(), &Event::id);  // mostly the first
      if (done != events_.end()) events_.erase(done);
      continue;
    }
    auto event = FromJson(*json);
    if (!event.ok()) return InvalidArgument("{} is no journal of webhooks: line {}", path_, line);
    events_.push_back(*std::move(event));
  }
  for (const Event& event : events_) bytes_ += event.bytes();
  file_bytes_ = static_cast<int64_t>(text.size() - rest.size());
  const auto begins = [&](std::string_view line) { return line.starts_with(rest) || rest.starts_with(line); };
  if (!begins("{\"id\":\"") && !begins("{\"done\":\"")) {
    return InvalidArgument("{} is no journal of webhooks: its end", path_);
  }
  // What follows is half a line.
  if (!rest.empty() && ftruncate(file_, file_bytes_) != 0) return Failed("write", path_);
  return Status();
}

void WebhookQueue::Append(const Json& line) {
  if (file_ < 0) return;
  const std::string text = JsonText(line) + "\n";
  if (!WriteAll(file_, text)) {
    trouble_ = Failed("write", path_).message();
    // Half a line would make one with the next.
    if (ftruncate(file_, file_bytes_) != 0) trouble_ = Failed("write", path_).message();
    return;
  }
  file_bytes_ += std::ssize(text);
}

void WebhookQueue::Sync() {
  if (file_ >= 0 && fdatasync(file_) != 0) trouble_ = Failed("write", path_).message();
}

int64_t WebhookQueue::Push(Event event) {
  if (std::ranges::any_of(events_, [&](const Event& other) { return other.id == event.id; })) return 0;
  int64_t n_dropped = 0;
  while (!events_.empty() && (events_.size() >= kMostEvents || bytes_ + event.bytes() > kMostBytes)) {
    Done(std::string(events_.front().id));
    ++n_dropped;
  }
  bytes_ += event.bytes();
  Append(ToJson(event));
  events_.push_back(std::move(event));
  return n_dropped;
}

const WebhookQueue::Event* WebhookQueue::Oldest(const std::string& target) const {
  const auto found = std::ranges::find(events_, target, &Event::target);
  return found == events_.end() ? nullptr : &*found;
}

void WebhookQueue::Done(const std::string& id) {
  const auto found = std::ranges::find(events_, id, &Event::id);
  if (found == events_.end()) return;
  Append({{"done", id}});
  bytes_ -= found->bytes();
  events_.erase(found);
  if (file_bytes_ > kRewriteBytes && file_bytes_ > 4 * bytes_) Rewrite();
}

std::vector<WebhookQueue::Event> WebhookQueue::Of(const std::string& session) const {
  std::vector<Event> out;
  std::ranges::copy_if(events_, std::back_inserter(out), [&](const Event& event) { return event.session == session; });
  return out;
}

void WebhookQueue::Rewrite() {
  const std::string part = path_ + ".part";
  const int file = open(part.c_str(), O_RDWR | O_CREAT | O_TRUNC | O_APPEND | O_CLOEXEC | O_NOFOLLOW, 0600);
  std::string text;
  for (const Event& event : events_) text += JsonText(ToJson(event)) + "\n";
  if (file < 0 || !WriteAll(file, text) || fdatasync(file) != 0 || std::rename(part.c_str(), path_.c_str()) != 0) {
    trouble_ = Failed("write", part).message();
    if (file >= 0) close(file);
    return;
  }
  close(file_);
  file_ = file;
  file_bytes_ = std::ssize(text);
}

}  // namespace weir
