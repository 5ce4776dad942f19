// weir-plugin: store
// SPDX-License-Identifier: Apache-2.0
// Redis, through hiredis. Notes are compared and set by a script, which the server runs as one step; a file is written
// in pieces under another name and then renamed, and read in pieces in a transaction that fails if it changed
// meanwhile.
#include "store/stores/store.h"

#ifdef WEIR_REDIS
#include <hiredis/hiredis.h>
#include <sys/random.h>

#include <algorithm>
#include <charconv>
#include <cstdio>
#include <cstring>
#include <mutex>

#include "store/spool.h"
#endif

namespace weir {
namespace {

constexpr const char* kAddresses = "redis://HOST:PORT/DB";

#ifdef WEIR_REDIS

constexpr size_t kPieceBytes = 1 << 16;
constexpr int64_t kMaxFileBytes = int64_t{512} << 20;  // of one value of Redis
constexpr const char* kUnfinishedSeconds = "3600";     // that a piece of a file lives whose writer was killed
constexpr const char* kKeys = "weir:";                 // before every key

constexpr const char* kWrite =
    "local v = redis.call('GET', KEYS[1]) "
    "if (ARGV[2] == '' and not v) or (v and v == ARGV[2]) then redis.call('SET', KEYS[1], ARGV[1]) return 1 end "
    "return 0";
constexpr const char* kRemove =
    "if redis.call('GET', KEYS[1]) == ARGV[1] then return redis.call('DEL', KEYS[1]) end return 0";

struct Free {
  void operator()(redisContext* context) const { redisFree(context); }
  void operator()(redisReply* reply) const { freeReplyObject(reply); }
  void operator()(std::FILE* file) const { std::fclose(file); }
};
using Context = std::unique_ptr<redisContext, Free>;
using Reply = std::unique_ptr<redisReply, Free>;
using OpenFile = std::unique_ptr<std::FILE, Free>;

struct Address {
  std::string host, user, password;
  int port = 6379, db = 0;
};

Result<Address> ParseAddress(const std::string& text, const StoreOptions& options) {
  const Status wrong = InvalidArgument("'{}' is no address of Redis: write {}", text, kAddresses);
  Address out{.host = "", .user = options.redis_user, .password = options.redis_password};
  std::string_view rest = std::string_view(text).substr(std::strlen("redis://"));
  if (const size_t at = rest.rfind('@'); at != rest.npos) {
    const std::string_view who = rest.substr(0, at);
    const size_t colon = who.find(':');
    if (colon == who.npos) return wrong;
    out.user = who.substr(0, colon);
    out.password = who.substr(colon + 1);
    rest.remove_prefix(at + 1);
  }
  const auto number = [](std::string_view digits, int most, int* to) {
    const auto [end, error] = std::from_chars(digits.data(), digits.data() + digits.size(), *to);
    return error == std::errc() && end == digits.data() + digits.size() && *to >= 0 && *to <= most;
  };
  if (const size_t slash = rest.find('/'); slash != rest.npos) {
    if (slash + 1 < rest.size() && !number(rest.substr(slash + 1), 1 << 20, &out.db)) return wrong;
    rest = rest.substr(0, slash);
  }
  const size_t colon = rest.rfind(':');
  if (colon != rest.npos && rest.back() != ']') {
    if (!number(rest.substr(colon + 1), 65535, &out.port)) return wrong;
    rest = rest.substr(0, colon);
  }
  if (rest.size() > 2 && rest.front() == '[' && rest.back() == ']') rest = rest.substr(1, rest.size() - 2);
  if (rest.empty()) return wrong;
  out.host = rest;
  return out;
}

class RedisStore final : public Store {
 public:
  RedisStore(Address address, const StoreOptions& options, std::unique_ptr<Spool> spool)
      : Store(options), address_(std::move(address)), spool_(std::move(spool)) {}

  Result<LocalFile> NewFile(const std::string&) override { return spool_->NewFile(); }

  Status Check() {
    WEIR_ASSIGN_OR_RETURN(Context context, Take());
    WEIR_RETURN_IF_ERROR(Ask(context, {"PING"}).status());
    Give(std::move(context));
    return Status();
  }

 protected:
  Result<Note> TryRead(const std::string& key) override {
    WEIR_ASSIGN_OR_RETURN(Context context, Take());
    // One byte more than a note has: a file's content is not read here.
    WEIR_ASSIGN_OR_RETURN(const Reply reply,
                          Ask(context, {"GETRANGE", kKeys + key, "0", std::to_string(kMaxNoteBytes)}));
    Give(std::move(context));
    if (reply->len > kMaxNoteBytes) return OverBudget("{}{} is too large for a note", kKeys, key);
    const std::string text(reply->str, reply->len);
    return Note{text, text};  // no note is empty
  }

  Result<std::optional<std::string>> TryWrite(const std::string& key, const std::string& text,
                                              const std::string& version) override {
    WEIR_ASSIGN_OR_RETURN(Context context, Take());
    WEIR_ASSIGN_OR_RETURN(const Reply reply, Ask(context, {"EVAL", kWrite, "1", kKeys + key, text, version}));
    Give(std::move(context));
    return reply->integer == 1 ? std::optional<std::string>(text) : std::nullopt;
  }

  Status TryRemove(const std::string& key, const std::string& version) override {
    WEIR_ASSIGN_OR_RETURN(Context context, Take());
    const auto reply = version.empty() ? Ask(context, {"DEL", kKeys + key})
                                       : Ask(context, {"EVAL", kRemove, "1", kKeys + key, version});
    WEIR_RETURN_IF_ERROR(reply.status());
    Give(std::move(context));
    return Status();
  }

  Status TrySend(const std::string& key, const LocalFile& file) override {
    const OpenFile from(std::fopen(file.path().c_str(), "rbe"));
    if (from == nullptr) return Internal("cannot read {}: {}", file.path(), std::strerror(errno));
    WEIR_ASSIGN_OR_RETURN(Context context, Take());
    uint64_t random = 0;
    if (getrandom(&random, sizeof(random), 0) != sizeof(random))
      return IoError("the system provides no random numbers");
    const std::string part = fmt::format("{}part:{:016x}:{}", kKeys, random, key);
    std::string piece(kPieceBytes, '\0');
    int64_t at = 0;
    for (size_t n = 0; (n = std::fread(piece.data(), 1, kPieceBytes, from.get())) > 0; at += static_cast<int64_t>(n)) {
      if (at + static_cast<int64_t>(n) > kMaxFileBytes) {
        (void)Ask(context, {"DEL", part});
        return OverBudget(
            "a session of more than {} bytes does not fit into a value of Redis: use a smaller --pot, S3 or "
            "a folder",
            kMaxFileBytes);
      }
      piece.resize(n);
      WEIR_RETURN_IF_ERROR(Ask(context, {"SETRANGE", part, std::to_string(at), piece}).status());
      if (at == 0) WEIR_RETURN_IF_ERROR(Ask(context, {"EXPIRE", part, kUnfinishedSeconds}).status());
      piece.resize(kPieceBytes);
    }
    if (std::ferror(from.get()) != 0) return Internal("cannot read {}", file.path());
    WEIR_RETURN_IF_ERROR(Ask(context, {"PERSIST", part}).status());
    WEIR_RETURN_IF_ERROR(Ask(context, {"RENAME", part, kKeys + key}).status());
    Give(std::move(context));
    return Status();
  }

  Result<LocalFile> TryFetch(const std::string& key, int64_t max_bytes) override {
    WEIR_ASSIGN_OR_RETURN(LocalFile out, spool_->NewFile());
    OpenFile to(std::fopen(out.path().c_str(), "wbe"));
    if (to == nullptr) return IoError("cannot write {}: {}", out.path(), std::strerror(errno));
    WEIR_ASSIGN_OR_RETURN(Context context, Take());
    const std::string name = kKeys + key;
    WEIR_RETURN_IF_ERROR(Ask(context, {"WATCH", name}).status());
    WEIR_ASSIGN_OR_RETURN(const Reply length, Ask(context, {"STRLEN", name}));
    if (length->integer > max_bytes)
      return OverBudget("{} has {} bytes, more than the {} that may be read", name, length->integer, max_bytes);
    if (length->integer == 0) return NotFound("there is no {}", name);
    for (int64_t at = 0; at < length->integer;) {
      WEIR_ASSIGN_OR_RETURN(const Reply piece,
                            Ask(context, {"GETRANGE", name, std::to_string(at),
                                          std::to_string(at + static_cast<int64_t>(kPieceBytes) - 1)}));
      if (piece->len == 0) return IoError("{} changed while it was read", name);
      if (std::fwrite(piece->str, 1, piece->len, to.get()) != piece->len) {
        return IoError("cannot write {}: {}", out.path(), std::strerror(errno));
      }
      at += static_cast<int64_t>(piece->len);
    }
    WEIR_RETURN_IF_ERROR(Ask(context, {"MULTI"}).status());
    WEIR_RETURN_IF_ERROR(Ask(context, {"PING"}).status());
    WEIR_ASSIGN_OR_RETURN(const Reply same, Ask(context, {"EXEC"}));
    if (same->type == REDIS_REPLY_NIL) return IoError("{} changed while it was read", name);
    Give(std::move(context));
    if (std::fclose(to.release()) != 0) return IoError("cannot write {}: {}", out.path(), std::strerror(errno));
    return out;
  }

  Result<std::vector<std::string>> TryList(const std::string& prefix) override {
    WEIR_ASSIGN_OR_RETURN(Context context, Take());
    std::string pattern = kKeys;
    for (const char c : prefix) pattern += std::string(std::strchr("*?[]\\", c) != nullptr ? "\\" : "") + c;
    std::vector<std::string> out;
    std::string cursor = "0";
    do {
      WEIR_ASSIGN_OR_RETURN(const Reply page, Ask(context, {"SCAN", cursor, "MATCH", pattern + "*", "COUNT", "500"}));
      if (page->type != REDIS_REPLY_ARRAY || page->elements != 2) return IoError("{} sent no list", address_.host);
      cursor.assign(page->element[0]->str, page->element[0]->len);
      for (size_t i = 0; i < page->element[1]->elements; ++i) {
        const std::string_view name(page->element[1]->element[i]->str, page->element[1]->element[i]->len);
        out.emplace_back(name.substr(std::strlen(kKeys)));
      }
    } while (cursor != "0" && out.size() < kMaxKeys);
    Give(std::move(context));
    std::sort(out.begin(), out.end());  // a scan may name one twice
    out.erase(std::unique(out.begin(), out.end()), out.end());
    return out;
  }

 private:
  std::string Where() const { return fmt::format("redis://{}:{}/{}", address_.host, address_.port, address_.db); }

  Result<Context> Take() {
    {
      const std::lock_guard<std::mutex> lock(mutex_);
      if (!idle_.empty()) {
        Context out = std::move(idle_.back());
        idle_.pop_back();
        return out;
      }
    }
    const int64_t ms = options_.timeout.count();
    const timeval time{.tv_sec = ms / 1000, .tv_usec = (ms % 1000) * 1000},
        soon{.tv_sec = std::min<int64_t>(5, 1 + ms / 1000), .tv_usec = 0};
    Context out(redisConnectWithTimeout(address_.host.c_str(), address_.port, soon));
    if (out == nullptr || out->err != 0 || redisSetTimeout(out.get(), time) != REDIS_OK) {
      return IoError("{} does not answer: {}", Where(), out == nullptr ? "no memory" : out->errstr);
    }
    if (!address_.password.empty()) {
      std::vector<std::string> auth = {"AUTH"};
      if (!address_.user.empty()) auth.push_back(address_.user);
      auth.push_back(address_.password);
      WEIR_RETURN_IF_ERROR(Ask(out, auth).status());
    }
    if (address_.db != 0) WEIR_RETURN_IF_ERROR(Ask(out, {"SELECT", std::to_string(address_.db)}).status());
    return out;
  }

  void Give(Context context) {
    const std::lock_guard<std::mutex> lock(mutex_);
    idle_.push_back(std::move(context));
  }

  // After an error the connection is not used again.
  Result<Reply> Ask(Context& context, const std::vector<std::string>& words) {
    std::vector<const char*> texts;
    std::vector<size_t> lengths;
    for (const std::string& word : words) {
      texts.push_back(word.data());
      lengths.push_back(word.size());
    }
    Reply out(static_cast<redisReply*>(
        redisCommandArgv(context.get(), static_cast<int>(texts.size()), texts.data(), lengths.data())));
    if (out == nullptr) {
      const std::lock_guard<std::mutex> lock(mutex_);
      idle_.clear();  // as old as this one
      return IoError("{} does not answer: {}", Where(), context->errstr);
    }
    if (out->type != REDIS_REPLY_ERROR) return out;
    const std::string said(out->str, std::min<size_t>(out->len, 200));
    // It is being loaded, is no master at the moment, or has no memory left.
    constexpr const char* kLater[] = {"LOADING",     "BUSY", "MASTERDOWN", "READONLY",  "TRYAGAIN",
                                      "CLUSTERDOWN", "OOM",  "MISCONF",    "NOREPLICAS"};
    for (const char* const word : kLater) {
      if (said.starts_with(word)) return IoError("{} cannot do {}: {}", Where(), words[0], said);
    }
    return InvalidArgument("{} refuses {}: {}", Where(), words[0], said);
  }

  const Address address_;
  const std::unique_ptr<Spool> spool_;
  std::mutex mutex_;
  std::vector<Context> idle_;
};

Result<std::unique_ptr<Store>> Open(const std::string& address, const StoreOptions& options) {
  WEIR_ASSIGN_OR_RETURN(Address where, ParseAddress(address, options));
  WEIR_ASSIGN_OR_RETURN(auto spool, Spool::Make(options.spool));
  auto out = std::make_unique<RedisStore>(std::move(where), options, std::move(spool));
  WEIR_RETURN_IF_ERROR(out->Check());
  return std::unique_ptr<Store>(std::move(out));
}

#else

Result<std::unique_ptr<Store>> Open(const std::string&, const StoreOptions&) {
  return Unsupported("this build has no Redis: hiredis was not there when it was made");
}

#endif

}  // namespace

extern const StoreInfo kRedisStore;
// A piece of a file, as it is read, sent and received.
const StoreInfo kRedisStore = {.scheme = "redis", .addresses = kAddresses, .bytes_a_call = 1 << 18, .open = Open};

}  // namespace weir
