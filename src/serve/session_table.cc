// SPDX-License-Identifier: Apache-2.0
#include "serve/session_table.h"

#include <utility>

namespace weir {

bool SessionTable::Has(const std::string& id) const {
  const std::lock_guard<std::mutex> lock(mutex_);
  return sessions_.contains(id);
}

StreamSession* SessionTable::Add(std::unique_ptr<StreamSession> stream) {
  const std::lock_guard<std::mutex> lock(mutex_);
  std::string id = stream->id;
  return sessions_.emplace(std::move(id), std::move(stream)).first->second.get();
}

StreamSession* SessionTable::Find(const std::string& id) {
  const auto it = sessions_.find(id);
  if (it == sessions_.end() || it->second->closing) return nullptr;
  it->second->used_at = Clock::now();
  return it->second.get();
}

StreamSession* SessionTable::FindIdle(std::chrono::seconds idle) const {
  for (const auto& [id, stream] : sessions_) {
    if (!stream->busy && !stream->closing && stream->idle() >= idle) return stream.get();
  }
  return nullptr;
}

void SessionTable::Erase(const std::string& id) {
  decltype(sessions_)::node_type gone;  // declared before the lock, so that the pot is freed outside it
  const std::lock_guard<std::mutex> lock(mutex_);
  gone = sessions_.extract(id);
}

}  // namespace weir
