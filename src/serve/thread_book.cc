// SPDX-License-Identifier: Apache-2.0
#include "serve/thread_book.h"

#include <algorithm>
#include <utility>

namespace weir {
namespace {

int64_t BytesOf(const ThreadBook::Response& response) {
  return static_cast<int64_t>(response.id.size() + response.session.size() + response.body.size());
}

}  // namespace

void ThreadBook::EraseAt(std::deque<Response>::iterator at) {
  response_bytes_ -= BytesOf(*at);
  const auto place = places_.find(at->session);
  if (place != places_.end() && place->second.newest == at->id) {
    place->second.newest.clear();
    if (!place->second.in_use) places_.erase(place);
  }
  responses_.erase(at);
}

std::vector<std::string> ThreadBook::Put(Response response) {
  const std::lock_guard<std::mutex> lock(mutex_);
  std::vector<std::string> orphans;
  if (BytesOf(response) > kMaxResponseBytes) response.body.clear();
  const int64_t bytes = BytesOf(response);
  while (!responses_.empty() && (responses_.size() >= kMaxResponses || response_bytes_ + bytes > kMaxResponseBytes)) {
    const Response oldest = responses_.front();
    EraseAt(responses_.begin());
    if (oldest.owns && !places_.contains(oldest.session) && oldest.session != response.session) {
      orphans.push_back(oldest.session);
    }
  }
  places_[response.session] = {response.id, response.owns, false, ++n_used_};
  response_bytes_ += bytes;
  responses_.push_back(std::move(response));
  return orphans;
}

std::optional<ThreadBook::Response> ThreadBook::Find(const std::string& id) const {
  const std::lock_guard<std::mutex> lock(mutex_);
  const auto at = std::find_if(responses_.begin(), responses_.end(), [&](const Response& one) { return one.id == id; });
  return at == responses_.end() ? std::nullopt : std::optional<Response>(*at);
}

bool ThreadBook::IsNewest(const Response& response) const {
  const std::lock_guard<std::mutex> lock(mutex_);
  const auto at = places_.find(response.session);
  return at != places_.end() && !at->second.in_use && at->second.newest == response.id;
}

void ThreadBook::Begin(const std::string& session) {
  const std::lock_guard<std::mutex> lock(mutex_);
  places_[session] = {"", true, true, ++n_used_};
}

bool ThreadBook::Claim(const Response& response) {
  const std::lock_guard<std::mutex> lock(mutex_);
  const auto at = places_.find(response.session);
  if (at == places_.end() || at->second.in_use || at->second.newest != response.id) return false;
  at->second.in_use = true;
  at->second.used = ++n_used_;
  return true;
}

void ThreadBook::Release(const std::string& session, bool changed) {
  const std::lock_guard<std::mutex> lock(mutex_);
  const auto at = places_.find(session);
  if (at == places_.end()) return;
  at->second.in_use = false;
  if (changed) at->second.newest.clear();
  if (at->second.newest.empty() && !at->second.owns) places_.erase(at);
}

bool ThreadBook::Erase(const std::string& id) {
  const std::lock_guard<std::mutex> lock(mutex_);
  const auto at = std::find_if(responses_.begin(), responses_.end(), [&](const Response& one) { return one.id == id; });
  if (at == responses_.end()) return false;
  EraseAt(at);
  return true;
}

std::string ThreadBook::TakeOldestSession() {
  const std::lock_guard<std::mutex> lock(mutex_);
  auto oldest = places_.end();
  for (auto at = places_.begin(); at != places_.end(); ++at) {
    if (!at->second.owns || at->second.in_use) continue;
    if (oldest == places_.end() || at->second.used < oldest->second.used) oldest = at;
  }
  if (oldest == places_.end()) return "";
  const std::string session = oldest->first;
  ForgetSession(session);
  return session;
}

int64_t ThreadBook::NumSessions() const {
  const std::lock_guard<std::mutex> lock(mutex_);
  return std::count_if(places_.begin(), places_.end(), [](const auto& one) { return one.second.owns; });
}

size_t ThreadBook::NumRead(const std::string& session, std::span<const uint64_t> messages) {
  const std::lock_guard<std::mutex> lock(mutex_);
  const auto at = threads_.find(session);
  if (at == threads_.end()) return 0;
  at->second.used = ++n_used_;
  const std::vector<uint64_t>& read = at->second.messages;
  for (size_t n = std::min(read.size(), messages.size()); n > 0; --n) {
    if (std::equal(messages.begin(), messages.begin() + static_cast<ptrdiff_t>(n),
                   read.end() - static_cast<ptrdiff_t>(n))) {
      return n;
    }
  }
  return 0;
}

void ThreadBook::Read(const std::string& session, std::span<const uint64_t> messages) {
  const std::lock_guard<std::mutex> lock(mutex_);
  Thread& thread = threads_[session];
  thread.used = ++n_used_;
  thread.messages.insert(thread.messages.end(), messages.begin(), messages.end());
  if (thread.messages.size() > kMaxMessages) {
    thread.messages.erase(thread.messages.begin(), thread.messages.end() - static_cast<ptrdiff_t>(kMaxMessages));
  }
  if (threads_.size() <= kMaxThreads) return;
  threads_.erase(std::min_element(threads_.begin(), threads_.end(),
                                  [](const auto& a, const auto& b) { return a.second.used < b.second.used; }));
}

void ThreadBook::Forget(const std::string& session) {
  const std::lock_guard<std::mutex> lock(mutex_);
  ForgetSession(session);
}

void ThreadBook::ForgetSession(const std::string& session) {
  threads_.erase(session);
  threads_.erase(SystemOf(session));
  places_.erase(session);
  for (auto at = responses_.begin(); at != responses_.end();) {
    if (at->session != session) {
      ++at;
      continue;
    }
    response_bytes_ -= BytesOf(*at);
    at = responses_.erase(at);
  }
}

}  // namespace weir
