// SPDX-License-Identifier: Apache-2.0
#include "store/ownership.h"

#include <algorithm>
#include <filesystem>
#include <system_error>
#include <utility>

#include "io/json.h"

namespace weir {
namespace {

constexpr std::string_view kFolder = "handover/", kEnd = ".weir";
constexpr std::string_view kSnapshotMagic = "weirsnap";
constexpr int64_t kMost = int64_t{1} << 53;

}  // namespace

std::string Ownership::HeadText(const Head& head) {
  Json out = {{"owner", head.owner}, {"token", head.token}, {"count", head.count}, {"state", head.state}};
  if (head.gone) out["gone"] = true;
  const std::string lease = lease_.id();
  const std::lock_guard<std::mutex> lock(mutex_);
  out["by"] = fmt::format("{}/{}", lease, ++n_writes_);
  return JsonText(out);
}

Result<Ownership::Head> Ownership::ReadHead(const std::string& id) {
  WEIR_ASSIGN_OR_RETURN(const Store::Note note, store_.Read(KeyOf(id)));
  Head out;
  out.version = note.version;
  if (note.version.empty()) return out;
  // Earlier versions wrote the state itself under this name.
  if (note.text.starts_with(kSnapshotMagic)) {
    out.state = KeyOf(id);
    return out;
  }
  const auto json = ParseJsonObject(note.text);
  if (!json.ok()) return Corrupt("what the store has for session '{}' is damaged", id);
  Fields fields(*json);
  fields.Get("owner", &out.owner);
  fields.Get("state", &out.state);
  fields.Get("token", &out.token, 0, kMost);
  fields.Get("count", &out.count, 0, kMost);
  fields.Get("gone", &out.gone);
  fields.Ignore("by");
  if (!fields.Done().ok()) return Corrupt("what the store has for session '{}' is damaged", id);
  return out;
}

std::optional<Ownership::Owned> Ownership::Known(const std::string& id) const {
  const std::lock_guard<std::mutex> lock(mutex_);
  const auto it = owned_.find(id);
  return it == owned_.end() ? std::nullopt : std::optional<Owned>(it->second);
}

Result<std::optional<std::string>> Ownership::WriteHead(const std::string& id, Head next, const std::string& over) {
  ++next.count;
  const std::string lease = lease_.id();
  WEIR_ASSIGN_OR_RETURN(auto version, store_.Write(KeyOf(id), HeadText(next), over));
  if (!version) return version;
  const std::lock_guard<std::mutex> lock(mutex_);
  owned_[id] = {lease, *version, next.state, next.token, next.count};
  return version;
}

Result<Ownership::Taken> Ownership::Take(const std::string& id) {
  WEIR_ASSIGN_OR_RETURN(Head head, ReadHead(id));
  if (!head.there() || head.state.empty()) return Taken();
  const std::string mine = lease_.id();
  if (!lease_.Valid()) return IoError("this server has no lease at the moment; try again");
  if (!head.owner.empty() && head.owner != mine) {
    WEIR_ASSIGN_OR_RETURN(const bool ended, watch_.Ended(head.owner));
    if (!ended) return Taken{Found::kElsewhere, ""};
  }
  if (head.state == KeyOf(id)) {  // of an earlier version: its own file stays, under another name
    head.state = NewState(id);
    WEIR_ASSIGN_OR_RETURN(const LocalFile old, store_.Fetch(KeyOf(id), INT64_MAX));
    WEIR_ASSIGN_OR_RETURN(const LocalFile file, store_.NewFile(head.state));
    std::error_code error;
    std::filesystem::create_hard_link(old.path(), file.path(), error);
    if (error) return IoError("cannot link {}: {}", file.path(), error.message());
  }
  head.owner = mine;
  ++head.token;
  WEIR_ASSIGN_OR_RETURN(const auto version, WriteHead(id, head, head.version));
  if (!version) return Taken{Found::kElsewhere, ""};
  return Taken{Found::kTaken, head.state};
}

std::string Ownership::NewState(const std::string& id) {
  const auto known = Known(id);
  const std::string lease = lease_.id();
  const std::lock_guard<std::mutex> lock(mutex_);
  return fmt::format("{}{}.{}-{}-{}.state", kFolder, id, known ? known->token : 0, lease, ++n_writes_);
}

Result<bool> Ownership::Advance(const std::string& id, const std::string& state, const std::string& owner) {
  const auto known = Known(id);
  Head next;
  std::string over, old;
  if (known && !known->version.empty()) {
    next.token = known->token;
    next.count = known->count;
    over = known->version;
    old = known->state;
  } else {
    WEIR_ASSIGN_OR_RETURN(const Head head, ReadHead(id));
    if (head.there()) return false;
    next.token = std::max(head.token, known ? known->token : 0) + 1;
    next.count = std::max(head.count, known ? known->count : 0);
    over = head.version;
  }
  next.owner = owner;
  next.state = state;
  WEIR_ASSIGN_OR_RETURN(const auto version, WriteHead(id, next, over));
  if (!version) return false;
  if (!old.empty() && old != state) (void)store_.Remove(old);
  return true;
}

Result<bool> Ownership::Commit(const std::string& id, const std::string& state, bool keep) {
  WEIR_ASSIGN_OR_RETURN(const bool mine, Advance(id, state, keep ? lease_.id() : ""));
  if (!mine) (void)store_.Remove(state);
  if (!mine || !keep) Drop(id);
  return mine;
}

Result<bool> Ownership::GiveBack(const std::string& id) {
  const auto known = Known(id);
  if (!known || known->version.empty()) return false;
  WEIR_ASSIGN_OR_RETURN(const bool mine, Advance(id, known->state, ""));
  Drop(id);
  return mine;
}

Result<bool> Ownership::Forget(const std::string& id) {
  const auto known = Known(id);
  if (!known || known->version.empty()) return true;
  Head gone;
  gone.token = known->token;
  gone.count = known->count;
  gone.gone = true;
  WEIR_ASSIGN_OR_RETURN(const auto version, WriteHead(id, gone, known->version));
  if (!version) {
    Drop(id);
    return false;
  }
  // From here on nobody takes it. What cannot be removed now is a mark that says so.
  (void)store_.Remove(KeyOf(id), *version);
  if (!known->state.empty()) (void)store_.Remove(known->state);
  const std::lock_guard<std::mutex> lock(mutex_);
  if (const auto it = owned_.find(id); it != owned_.end()) it->second.version.clear();
  return true;
}

bool Ownership::Mine(const std::string& id) const {
  const auto known = Known(id);
  return known && known->lease == lease_.id() && lease_.Valid();
}

void Ownership::Drop(const std::string& id) {
  const std::lock_guard<std::mutex> lock(mutex_);
  owned_.erase(id);
}

int64_t Ownership::token(const std::string& id) const {
  const auto known = Known(id);
  return known ? known->token : 0;
}

Result<bool> Ownership::Holds(const std::string& id) {
  WEIR_ASSIGN_OR_RETURN(const Head head, ReadHead(id));
  return head.there() && !head.state.empty();
}

Result<bool> Ownership::IsLeft(const std::string& id) {
  WEIR_ASSIGN_OR_RETURN(const Head head, ReadHead(id));
  return head.there() && head.owner.empty();
}

Result<std::vector<std::string>> Ownership::Sessions() {
  WEIR_ASSIGN_OR_RETURN(const std::vector<std::string> keys, store_.List(std::string(kFolder)));
  std::vector<std::string> out;
  for (const std::string& key : keys) {
    if (key.ends_with(kEnd)) out.push_back(key.substr(kFolder.size(), key.size() - kFolder.size() - kEnd.size()));
  }
  return out;
}

}  // namespace weir
