// SPDX-License-Identifier: Apache-2.0
#include "store/stores/store.h"

#include <sys/random.h>
#include <unistd.h>

#include <algorithm>
#include <thread>

namespace weir {
namespace {

constexpr std::chrono::milliseconds kFirstPause{100}, kLongestPause{2000};

// Half to one and a half times the pause, so that servers that failed together do not come back together.
std::chrono::milliseconds Spread(std::chrono::milliseconds pause) {
  uint16_t random = 0;
  (void)getrandom(&random, sizeof(random), GRND_NONBLOCK);
  return pause / 2 + pause * random / 65536;
}

// Calls `once` until it returns anything but kIo.
template <typename Once>
auto Again(int tries, const Once& once) {
  auto pause = kFirstPause;
  for (int n = 1;; ++n) {
    auto out = once(n);
    const Status& status = [&]() -> const Status& {
      if constexpr (std::is_same_v<decltype(out), Status>) {
        return out;
      } else {
        return out.status();
      }
    }();
    if (status.code() != StatusCode::kIo || n >= tries) return out;
    std::this_thread::sleep_for(Spread(pause));
    pause = std::min(pause * 4, kLongestPause);
  }
}

}  // namespace

LocalFile::~LocalFile() {
  if (passing_ && !path_.empty()) unlink(path_.c_str());
}

Result<Store::Note> Store::Read(const std::string& key) {
  return Again(options_.tries, [&](int) { return TryRead(key); });
}

Result<std::optional<std::string>> Store::Write(const std::string& key, const std::string& text,
                                                const std::string& version) {
  bool unsure = false;  // an earlier try may have written it
  return Again(options_.tries, [&](int) -> Result<std::optional<std::string>> {
    auto written = TryWrite(key, text, version);
    if (!written.ok()) {
      unsure = true;
      return written;
    }
    if (*written || !unsure) return written;
    WEIR_ASSIGN_OR_RETURN(const Note there, TryRead(key));
    return there.text == text && !there.version.empty() ? std::optional<std::string>(there.version) : std::nullopt;
  });
}

Status Store::Remove(const std::string& key, const std::string& version) {
  return Again(options_.tries, [&](int) { return TryRemove(key, version); });
}

Status Store::Send(const std::string& key, const LocalFile& file) {
  return Again(options_.tries, [&](int) { return TrySend(key, file); });
}

Result<LocalFile> Store::Fetch(const std::string& key, int64_t max_bytes) {
  return Again(options_.tries, [&](int) { return TryFetch(key, max_bytes); });
}

Result<std::vector<std::string>> Store::List(const std::string& prefix) {
  return Again(options_.tries, [&](int) { return TryList(prefix); });
}

Result<const StoreInfo*> StoreOf(std::string_view address) {
  const size_t at = address.find("://");
  const std::string_view scheme = at == address.npos ? std::string_view() : address.substr(0, at);
  std::string known;
  for (const StoreInfo* const info : AllStoreInfos()) {
    if (scheme == info->scheme) return info;
    known += std::string(known.empty() ? "" : ", ") + info->addresses;
  }
  return InvalidArgument("'{}' is no place for sessions: it may be {}", address, known);
}

Result<std::unique_ptr<Store>> OpenStore(const std::string& address, const StoreOptions& options) {
  WEIR_ASSIGN_OR_RETURN(const StoreInfo* const info, StoreOf(address));
  return info->open(address, options);
}

}  // namespace weir
