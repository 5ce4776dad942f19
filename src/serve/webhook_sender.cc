// SPDX-License-Identifier: Apache-2.0
#include "serve/webhook_sender.h"

#include <fmt/core.h>
#include <httplib.h>

#include <algorithm>
#include <chrono>
#include <ctime>
#include <optional>
#include <utility>

#include "base/caught.h"
#include "base/clock.h"
#include "serve/http_address.h"

namespace weir {
namespace {

constexpr std::chrono::milliseconds kFirstWait{500}, kLongestWait{60000};
constexpr std::chrono::milliseconds kPatience{1000}, kBreakAgain{50};  // with a request that has to end
constexpr int64_t kKeepSeconds = 86400;
constexpr int kConnectSeconds = 5, kAnswerSeconds = 10;
constexpr size_t kMostAnswerBytes = 1 << 16;  // that are read of an answer; nothing in it is used

// What an attempt came to.
struct Outcome {
  int http = 0;  // 0: no answer
  std::chrono::milliseconds retry_after{0};

  bool delivered() const { return http >= 200 && http < 300; }
  bool refused() const { return http == 400 || http == 410 || http == 413 || http == 422; }
};

}  // namespace

class WebhookSender::Target {
 public:
  Target(std::string url, HttpAddress address)
      : url(std::move(url)), path_(std::move(address.path)), client_(address.origin) {
    client_.set_connection_timeout(kConnectSeconds);
    client_.set_read_timeout(kAnswerSeconds);
    client_.set_write_timeout(kAnswerSeconds);
    client_.set_keep_alive(true);
  }

  Outcome Send(const WebhookKey& key, const WebhookQueue::Event& event) {
    const auto now = static_cast<int64_t>(std::time(nullptr));
    httplib::Headers headers = {{"webhook-id", event.id},
                                {"webhook-timestamp", fmt::format("{}", now)},
                                {"webhook-attempt", fmt::format("{}", event.attempts)},
                                {"webhook-signature", key.Sign(event.id, now, event.body)},
                                {"User-Agent", "weir"}};
    if (!event.trace.empty()) headers.emplace("traceparent", event.trace);
    httplib::Request request;
    request.method = "POST";
    request.path = path_;
    request.headers = headers;
    request.set_header("Content-Type", "application/json");
    request.body = event.body;
    // An answer may be endless.
    size_t n_read = 0;
    request.content_receiver = [&](const char*, size_t n, uint64_t, uint64_t) {
      return (n_read += n) < kMostAnswerBytes;
    };
    std::optional<Outcome> answered;
    request.response_handler = [&](const httplib::Response& response) {
      answered = Outcome{response.status, RetryAfter(response)};
      return true;
    };
    (void)client_.send(request);
    return answered.value_or(Outcome());
  }
  // Breaks off a request that is under way. Any thread.
  void BreakOff() { client_.stop(); }

  const std::string url;
  std::string sending;  // session whose event is under way; empty: none
  std::thread thread;

 private:
  const std::string path_;
  httplib::Client client_;
};

int64_t WebhookSender::MemoryBytes(const WebhookOptions& options) {
  if (options.targets.empty()) return 0;
  // The event itself, the request made of it, and what is read of the answer.
  constexpr int64_t kUnderWay = 3 * static_cast<int64_t>(WebhookQueue::kMostBodyBytes) + (64 << 10);
  return WebhookQueue::MemoryBytes() + std::ssize(options.targets) * kUnderWay;
}

Result<std::unique_ptr<WebhookSender>> WebhookSender::Make(const WebhookOptions& options, Ledger& ledger) {
  if (options.targets.empty()) {
    return InvalidArgument("webhooks without an address that they may go to: --webhook URL");
  }
  if (options.targets.size() > WebhookOptions::kMostTargets) {
    return InvalidArgument("{} addresses of webhooks; {} are possible", options.targets.size(),
                           WebhookOptions::kMostTargets);
  }
  std::vector<std::unique_ptr<Target>> targets;
  for (const std::string& url : options.targets) {
    auto address = ParseHttpAddress(url);
    if (!address) return InvalidArgument("--webhook {} is not an address such as https://hooks.example/weir", url);
    targets.push_back(std::make_unique<Target>(url, *std::move(address)));
  }
  WEIR_ASSIGN_OR_RETURN(WebhookKey key, WebhookKey::Parse(options.secret));
  WEIR_ASSIGN_OR_RETURN(Reservation room, ledger.Reserve(MemTag::kOther, MemoryBytes(options)));
  WEIR_ASSIGN_OR_RETURN(WebhookQueue queue, WebhookQueue::Open(options.queue));
  std::unique_ptr<WebhookSender> out(new WebhookSender(std::move(key), std::move(queue)));
  out->targets_ = std::move(targets);
  out->room_ = std::move(room);
  for (const auto& target : out->targets_) {
    target->thread =
        std::thread([sender = out.get(), one = target.get()] { TryUntilDone([&] { sender->Work(*one); }); });
  }
  return out;
}

WebhookSender::WebhookSender(WebhookKey key, WebhookQueue queue) : key_(std::move(key)), queue_(std::move(queue)) {}

WebhookSender::~WebhookSender() {
  {
    Lock lock(mutex_);
    stop_ = true;
    changed_.notify_all();
    for (const auto& target : targets_) Settle(*target, "", lock);
  }
  for (const auto& target : targets_) target->thread.join();
  queue_.Sync();
}

Status WebhookSender::CheckTarget(const std::string& target) const {
  const bool allowed = std::ranges::any_of(targets_, [&](const auto& one) { return one->url == target; });
  return allowed ? Status() : InvalidArgument("'{}' is not an address that this server sends webhooks to", target);
}

Status WebhookSender::Post(const std::string& session, int64_t event, const std::string& target, std::string body,
                           std::string trace) {
  WEIR_RETURN_IF_ERROR(CheckTarget(target));
  {
    const std::lock_guard<std::mutex> lock(mutex_);
    counters_.dropped += queue_.Push({.id = fmt::format("{}-{}", session, event),
                                      .session = session,
                                      .target = target,
                                      .made_s = static_cast<int64_t>(std::time(nullptr)),
                                      .body = std::move(body),
                                      .trace = std::move(trace)});
  }
  changed_.notify_all();
  return Status();
}

std::vector<WebhookQueue::Event> WebhookSender::Hold(const std::string& session) {
  Lock lock(mutex_);
  held_.push_back(session);
  for (const auto& target : targets_) Settle(*target, session, lock);
  return queue_.Of(session);
}

void WebhookSender::Settle(Target& target, const std::string& session, Lock& lock) {
  const auto idle = [&] { return session.empty() ? target.sending.empty() : target.sending != session; };
  // A request that is not connected yet cannot be broken off.
  for (auto wait = kPatience; !changed_.wait_for(lock, wait, idle); wait = kBreakAgain) target.BreakOff();
}

void WebhookSender::Release(const std::string& session, bool moved) {
  {
    const std::lock_guard<std::mutex> lock(mutex_);
    if (moved) {
      for (const WebhookQueue::Event& event : queue_.Of(session)) queue_.Done(event.id);
    }
    std::erase(held_, session);
  }
  changed_.notify_all();
}

Status WebhookSender::Resume(const std::vector<WebhookQueue::Event>& events) {
  Status status;
  {
    const std::lock_guard<std::mutex> lock(mutex_);
    for (const WebhookQueue::Event& event : events) {
      if (Status one = CheckTarget(event.target); !one.ok()) {
        status = std::move(one);
        ++counters_.dropped;
      } else {
        counters_.dropped += queue_.Push(event);
      }
    }
    queue_.Sync();
  }
  changed_.notify_all();
  return status;
}

WebhookSender::Counters WebhookSender::counters() const {
  const std::lock_guard<std::mutex> lock(mutex_);
  Counters out = counters_;
  out.waiting = static_cast<int64_t>(queue_.size());
  return out;
}

std::string WebhookSender::trouble() const {
  const std::lock_guard<std::mutex> lock(mutex_);
  return queue_.trouble();
}

void WebhookSender::Work(Target& target) {
  Lock lock(mutex_);
  std::chrono::milliseconds wait = kFirstWait;
  while (!stop_) {
    const WebhookQueue::Event* const oldest = queue_.Oldest(target.url);
    if (oldest == nullptr || std::ranges::find(held_, oldest->session) != held_.end()) {
      changed_.wait(lock);
      continue;
    }
    WebhookQueue::Event event = *oldest;  // the queue changes meanwhile
    event.attempts = queue_.Try(event.id);
    target.sending = event.session;
    lock.unlock();
    const Outcome outcome = target.Send(key_, event);
    lock.lock();
    target.sending.clear();
    const bool too_old = std::time(nullptr) - event.made_s > kKeepSeconds;
    ++(outcome.delivered() ? counters_.delivered : counters_.failed);
    if (outcome.delivered() || outcome.refused() || too_old) {
      if (!outcome.delivered()) ++counters_.dropped;
      queue_.Done(event.id);
      wait = kFirstWait;
    }
    changed_.notify_all();
    if (outcome.delivered() || outcome.refused() || too_old) continue;
    const Clock::time_point until = Clock::now() + std::max(wait, outcome.retry_after);
    wait = std::min(2 * wait, kLongestWait);
    changed_.wait_until(lock, until, [this, until] { return stop_ || Clock::now() >= until; });
  }
}

}  // namespace weir
