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
  const auto newest = newest_.find(at->session);
  if (newest != newest_.end() && newest->second == at->id) newest_.erase(newest);
  responses_.erase(at);
}

std::vector<std::string> ThreadBook::Put(Response response) {
  const std::lock_guard<std::mutex> lock(mutex_);
  std::vector<std::string> orphans;
  const int64_t bytes = BytesOf(response);
  while (!responses_.empty() && (responses_.size() >= kMaxResponses || response_bytes_ + bytes > kMaxResponseBytes)) {
    const Response oldest = responses_.front();
    EraseAt(responses_.begin());
    if (oldest.owns && !newest_.contains(oldest.session) && oldest.session != response.session) {
      orphans.push_back(oldest.session);
    }
  }
  newest_[response.session] = response.id;
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
  const auto at = newest_.find(response.session);
  return at != newest_.end() && at->second == response.id;
}

bool ThreadBook::Erase(const std::string& id) {
  const std::lock_guard<std::mutex> lock(mutex_);
  const auto at = std::find_if(responses_.begin(), responses_.end(), [&](const Response& one) { return one.id == id; });
  if (at == responses_.end()) return false;
  EraseAt(at);
  return true;
}

std::string ThreadBook::OldestSession() const {
  const std::lock_guard<std::mutex> lock(mutex_);
  for (const Response& one : responses_) {
    const auto at = newest_.find(one.session);
    if (one.owns && at != newest_.end() && at->second == one.id) return one.session;
  }
  return "";
}

int64_t ThreadBook::NumSessions() const {
  const std::lock_guard<std::mutex> lock(mutex_);
  return std::count_if(responses_.begin(), responses_.end(), [&](const Response& one) {
    const auto at = newest_.find(one.session);
    return one.owns && at != newest_.end() && at->second == one.id;
  });
}

size_t ThreadBook::NumRead(const std::string& session, std::span<const uint64_t> messages) const {
  const std::lock_guard<std::mutex> lock(mutex_);
  const auto at = threads_.find(session);
  if (at == threads_.end()) return 0;
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
  threads_.erase(session);
  newest_.erase(session);
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
