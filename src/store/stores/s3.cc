// weir-plugin: store
// SPDX-License-Identifier: Apache-2.0
// S3-compatible storage, through libcurl, which signs the requests (AWS Signature Version 4). Conditional writes
// (If-None-Match: *, If-Match: ETag) take the place of rename; a request body comes from a file or a note, never from a
// copy of a file in memory. Buckets are addressed by path, which every such storage understands.
#include "store/stores/store.h"

#ifdef WEIR_S3
#include <curl/curl.h>
#include <fmt/core.h>

#include <algorithm>
#include <cstdio>
#include <cstring>
#include <mutex>

#include "store/spool.h"
#endif

namespace weir {
namespace {

constexpr const char* kAddresses = "s3://BUCKET/PREFIX";

#ifdef WEIR_S3

constexpr size_t kMaxReplyBytes = 1 << 18;  // of a list or an error: a list has at most kKeysAPage keys
constexpr int kKeysAPage = 250;
constexpr size_t kMaxKeyBytes = 512;
constexpr long kBufferBytes = 1 << 16;

struct Free {
  void operator()(CURL* easy) const { curl_easy_cleanup(easy); }
  void operator()(curl_slist* list) const { curl_slist_free_all(list); }
  void operator()(std::FILE* file) const { std::fclose(file); }
};
using Easy = std::unique_ptr<CURL, Free>;
using Headers = std::unique_ptr<curl_slist, Free>;
using OpenFile = std::unique_ptr<std::FILE, Free>;

// Everything but what AWS calls unreserved, and '/'.
std::string Escape(std::string_view text, bool slashes) {
  std::string out;
  for (const char c : text) {
    const bool plain = (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '-' ||
                       c == '.' || c == '_' || c == '~' || (slashes && c == '/');
    out += plain ? std::string(1, c) : fmt::format("%{:02X}", static_cast<unsigned char>(c));
  }
  return out;
}

// The text of the first element of that name from `at` on, unescaped; moves `at` behind it. Nullopt: none is left.
std::optional<std::string> Element(std::string_view xml, std::string_view name, size_t* at) {
  const std::string open = fmt::format("<{}>", name), close = fmt::format("</{}>", name);
  const size_t begin = xml.find(open, *at);
  if (begin == xml.npos) return std::nullopt;
  const size_t end = xml.find(close, begin);
  if (end == xml.npos) return std::nullopt;
  std::string out(xml.substr(begin + open.size(), end - begin - open.size()));
  *at = end + close.size();
  constexpr std::pair<const char*, const char*> kNames[] = {
      {"&lt;", "<"}, {"&gt;", ">"}, {"&quot;", "\""}, {"&apos;", "'"}, {"&amp;", "&"}};
  for (const auto& [from, to] : kNames) {
    for (size_t i = 0; (i = out.find(from, i)) != out.npos; i += std::strlen(to)) out.replace(i, std::strlen(from), to);
  }
  return out;
}

std::string First(std::string_view xml, std::string_view name) {
  size_t at = 0;
  return Element(xml, name, &at).value_or("");
}

// One line for a message.
std::string Shown(std::string text) {
  std::replace_if(
      text.begin(), text.end(), [](unsigned char c) { return c < 0x20 || c == 0x7F; }, ' ');
  if (text.size() > 200) text.resize(200);
  return text;
}

struct Request {
  const char* method = "GET";
  std::string path = {};   // of the object in the bucket, escaped; "": the bucket
  std::string query = {};  // sorted and escaped
  std::vector<std::string> headers = {};
  std::string_view text = {};   // of a PUT
  std::FILE* upload = nullptr;  // instead of it
  int64_t upload_bytes = 0;
  std::FILE* download = nullptr;  // where the body of a success goes; nullptr: Reply::body
  int64_t most = kMaxReplyBytes;  // of the body
};

struct Reply {
  long http = 0;
  std::string body, etag;
  bool too_large = false;
};

struct Transfer {
  const Request* request;
  Reply* reply;
  CURL* easy;
  size_t sent = 0;  // of a text
  int64_t received = 0;
};

size_t OnRead(char* to, size_t size, size_t n, void* data) {
  Transfer& transfer = *static_cast<Transfer*>(data);
  if (transfer.request->upload != nullptr) return std::fread(to, 1, size * n, transfer.request->upload);
  const std::string_view left = transfer.request->text.substr(transfer.sent);
  const size_t take = std::min(left.size(), size * n);
  std::memcpy(to, left.data(), take);
  transfer.sent += take;
  return take;
}

int OnSeek(void* data, curl_off_t offset, int origin) {
  Transfer& transfer = *static_cast<Transfer*>(data);
  if (transfer.request->upload != nullptr) {
    return fseeko(transfer.request->upload, offset, origin) == 0 ? CURL_SEEKFUNC_OK : CURL_SEEKFUNC_FAIL;
  }
  if (origin != SEEK_SET || offset < 0 || offset > std::ssize(transfer.request->text)) return CURL_SEEKFUNC_FAIL;
  transfer.sent = static_cast<size_t>(offset);
  return CURL_SEEKFUNC_OK;
}

size_t OnWrite(char* from, size_t size, size_t n, void* data) {
  Transfer& transfer = *static_cast<Transfer*>(data);
  const size_t bytes = size * n;
  long http = 0;
  curl_easy_getinfo(transfer.easy, CURLINFO_RESPONSE_CODE, &http);
  const bool to_file = transfer.request->download != nullptr && http == 200;
  transfer.received += static_cast<int64_t>(bytes);
  if (transfer.received > (to_file ? transfer.request->most : static_cast<int64_t>(kMaxReplyBytes))) {
    transfer.reply->too_large = true;
    return 0;
  }
  if (to_file) return std::fwrite(from, 1, bytes, transfer.request->download);
  transfer.reply->body.append(from, bytes);
  return bytes;
}

size_t OnHeader(char* from, size_t size, size_t n, void* data) {
  std::string_view line(from, size * n);
  constexpr std::string_view kName = "etag:";
  const bool is_etag =
      line.size() > kName.size() && std::equal(kName.begin(), kName.end(), line.begin(),
                                               [](char a, char b) { return a == (b >= 'A' && b <= 'Z' ? b + 32 : b); });
  if (is_etag) {
    line.remove_prefix(kName.size());
    while (!line.empty() && (line.front() == ' ' || line.front() == '\t')) line.remove_prefix(1);
    while (!line.empty() && (line.back() == '\r' || line.back() == '\n' || line.back() == ' ')) line.remove_suffix(1);
    static_cast<Transfer*>(data)->reply->etag = line;
  }
  return size * n;
}

class S3Store final : public Store {
 public:
  S3Store(std::string url, std::string bucket, std::string prefix, const StoreOptions& options,
          std::unique_ptr<Spool> spool)
      : Store(options),
        url_(std::move(url)),
        bucket_(std::move(bucket)),
        prefix_(std::move(prefix)),
        spool_(std::move(spool)) {}

  Result<LocalFile> NewFile(const std::string&) override { return spool_->NewFile(); }

  Status Check() { return TryList("").status(); }

 protected:
  Result<Note> TryRead(const std::string& key) override {
    WEIR_ASSIGN_OR_RETURN(const Reply reply, Do({.path = PathOf(key), .most = kMaxNoteBytes}, key));
    if (reply.http == 404) return Note();
    if (reply.http != 200) return Refused(reply, "read", key);
    if (reply.body.size() > kMaxNoteBytes) return OverBudget("{} is too large for a note", Named(key));
    if (reply.etag.empty()) return IoError("{} sent {} without an ETag", url_, Named(key));
    return Note{reply.body, reply.etag};
  }

  Result<std::optional<std::string>> TryWrite(const std::string& key, const std::string& text,
                                              const std::string& version) override {
    Request request{.method = "PUT", .path = PathOf(key), .text = text};
    request.headers.push_back(version.empty() ? std::string("If-None-Match: *") : "If-Match: " + version);
    WEIR_ASSIGN_OR_RETURN(const Reply reply, Do(request, key));
    // 404: there is nothing any more that could match.
    const bool absent = reply.http == 404 && First(reply.body, "Code") != "NoSuchBucket" && !version.empty();
    if (reply.http == 412 || absent) return std::optional<std::string>();
    if (reply.http != 200) return Refused(reply, "write", key);
    if (reply.etag.empty()) return IoError("{} took {} without an ETag", url_, Named(key));
    return std::optional<std::string>(reply.etag);
  }

  Status TryRemove(const std::string& key, const std::string& version) override {
    Request request{.method = "DELETE", .path = PathOf(key)};
    if (!version.empty()) request.headers.push_back("If-Match: " + version);
    WEIR_ASSIGN_OR_RETURN(const Reply reply, Do(request, key));
    const bool fine = reply.http == 200 || reply.http == 204 || reply.http == 404 || reply.http == 412;
    return fine ? Status() : Refused(reply, "delete", key);
  }

  Status TrySend(const std::string& key, const LocalFile& file) override {
    const OpenFile from(std::fopen(file.path().c_str(), "rbe"));
    if (from == nullptr || fseeko(from.get(), 0, SEEK_END) != 0) {
      return Internal("cannot read {}: {}", file.path(), std::strerror(errno));
    }
    const int64_t n_bytes = ftello(from.get());
    std::rewind(from.get());
    WEIR_ASSIGN_OR_RETURN(
        const Reply reply,
        Do({.method = "PUT", .path = PathOf(key), .upload = from.get(), .upload_bytes = n_bytes}, key));
    return reply.http == 200 ? Status() : Refused(reply, "write", key);
  }

  Result<LocalFile> TryFetch(const std::string& key, int64_t max_bytes) override {
    WEIR_ASSIGN_OR_RETURN(LocalFile out, spool_->NewFile());
    OpenFile to(std::fopen(out.path().c_str(), "wbe"));
    if (to == nullptr) return IoError("cannot write {}: {}", out.path(), std::strerror(errno));
    WEIR_ASSIGN_OR_RETURN(const Reply reply, Do({.path = PathOf(key), .download = to.get(), .most = max_bytes}, key));
    if (reply.too_large) return OverBudget("{} has more than the {} bytes that may be read", Named(key), max_bytes);
    if (reply.http == 404 && First(reply.body, "Code") != "NoSuchBucket") return NotFound("there is no {}", Named(key));
    if (reply.http != 200) return Refused(reply, "read", key);
    if (std::fclose(to.release()) != 0) return IoError("cannot write {}: {}", out.path(), std::strerror(errno));
    return out;
  }

  Result<std::vector<std::string>> TryList(const std::string& prefix) override {
    std::vector<std::string> out;
    for (std::string token; out.size() < kMaxKeys;) {
      std::string query = token.empty() ? "" : "continuation-token=" + Escape(token, false) + "&";
      query += fmt::format("list-type=2&max-keys={}&prefix={}", kKeysAPage, Escape(prefix_ + prefix, false));
      WEIR_ASSIGN_OR_RETURN(const Reply reply, Do({.query = std::move(query)}, prefix));
      if (reply.http != 200) return Refused(reply, "list", prefix);
      size_t at = 0;
      while (auto key = Element(reply.body, "Key", &at)) {
        if (key->starts_with(prefix_)) out.push_back(key->substr(prefix_.size()));
      }
      token = First(reply.body, "NextContinuationToken");
      if (First(reply.body, "IsTruncated") != "true" || token.empty()) break;
    }
    return out;
  }

 private:
  std::string PathOf(const std::string& key) const { return fmt::format("/{}", Escape(prefix_ + key, true)); }
  std::string Named(const std::string& key) const { return fmt::format("s3://{}/{}{}", bucket_, prefix_, key); }

  // kIo where the storage may be well again later.
  Status Refused(const Reply& reply, const char* what, const std::string& key) const {
    const std::string code = Shown(First(reply.body, "Code")), message = Shown(First(reply.body, "Message"));
    const std::string said =
        fmt::format("cannot {} {} at {}: {} {} {}", what, Named(key), url_, reply.http, code, message);
    const bool later = reply.http >= 500 || reply.http == 429 || reply.http == 409 || reply.http == 408;
    if (later) return IoError("{}", said);
    if (reply.http == 301 || reply.http == 307) return InvalidArgument("{}: AWS_REGION names another region", said);
    if (code == "NoSuchBucket") return NotFound("{}: make the bucket first", said);
    return InvalidArgument("{}", said);
  }

  Easy Take() {
    const std::lock_guard<std::mutex> lock(mutex_);
    if (idle_.empty()) return Easy(curl_easy_init());
    Easy out = std::move(idle_.back());
    idle_.pop_back();
    curl_easy_reset(out.get());  // its connections stay
    return out;
  }

  Result<Reply> Do(const Request& request, const std::string& key) {
    Easy easy = Take();
    if (easy == nullptr) return IoError("libcurl cannot begin a request");
    Reply reply;
    Transfer transfer{&request, &reply, easy.get()};
    Headers headers;
    const auto add = [&](const std::string& line) {
      curl_slist* const longer = curl_slist_append(headers.get(), line.c_str());
      if (longer == nullptr) return false;
      (void)headers.release();
      headers.reset(longer);
      return true;
    };
    // The body is read while it is sent, so that its hash is not known before; TLS protects it. Part of what is signed.
    bool fine = add("x-amz-content-sha256: UNSIGNED-PAYLOAD");
    for (const std::string& line : request.headers) fine = fine && add(line);
    if (!options_.s3_session_token.empty()) fine = fine && add("x-amz-security-token: " + options_.s3_session_token);
    if (!fine) return IoError("libcurl cannot begin a request");
    char error[CURL_ERROR_SIZE] = "";
    const std::string url = fmt::format("{}/{}{}{}{}", url_, Escape(bucket_, false), request.path,
                                        request.query.empty() ? "" : "?", request.query);
    CURL* const c = easy.get();
    const long timeout_ms = static_cast<long>(options_.timeout.count());
    curl_easy_setopt(c, CURLOPT_URL, url.c_str());
    curl_easy_setopt(c, CURLOPT_PROTOCOLS_STR, "http,https");
    curl_easy_setopt(c, CURLOPT_PROXY, "");  // not what the environment names
    curl_easy_setopt(c, CURLOPT_NOSIGNAL, 1L);
    curl_easy_setopt(c, CURLOPT_HTTP_VERSION, static_cast<long>(CURL_HTTP_VERSION_1_1));
    curl_easy_setopt(c, CURLOPT_AWS_SIGV4, fmt::format("aws:amz:{}:s3", options_.s3_region).c_str());
    curl_easy_setopt(c, CURLOPT_USERNAME, options_.s3_key.c_str());
    curl_easy_setopt(c, CURLOPT_PASSWORD, options_.s3_secret.c_str());
    curl_easy_setopt(c, CURLOPT_HTTPHEADER, headers.get());
    curl_easy_setopt(c, CURLOPT_ERRORBUFFER, error);
    curl_easy_setopt(c, CURLOPT_CONNECTTIMEOUT_MS, std::min(timeout_ms, 5000L));
    // A small request has a time; a large one may take long as long as it moves.
    const bool large = request.upload != nullptr || request.download != nullptr;
    if (large) {
      curl_easy_setopt(c, CURLOPT_LOW_SPEED_LIMIT, 1L);
      curl_easy_setopt(c, CURLOPT_LOW_SPEED_TIME, std::max(1L, timeout_ms / 1000));
    } else {
      curl_easy_setopt(c, CURLOPT_TIMEOUT_MS, timeout_ms);
    }
    curl_easy_setopt(c, CURLOPT_BUFFERSIZE, kBufferBytes);
    curl_easy_setopt(c, CURLOPT_UPLOAD_BUFFERSIZE, kBufferBytes);
    curl_easy_setopt(c, CURLOPT_EXPECT_100_TIMEOUT_MS, 1L);
    curl_easy_setopt(c, CURLOPT_WRITEFUNCTION, OnWrite);
    curl_easy_setopt(c, CURLOPT_WRITEDATA, &transfer);
    curl_easy_setopt(c, CURLOPT_HEADERFUNCTION, OnHeader);
    curl_easy_setopt(c, CURLOPT_HEADERDATA, &transfer);
    if (std::strcmp(request.method, "PUT") == 0) {
      curl_easy_setopt(c, CURLOPT_UPLOAD, 1L);
      curl_easy_setopt(c, CURLOPT_READFUNCTION, OnRead);
      curl_easy_setopt(c, CURLOPT_READDATA, &transfer);
      curl_easy_setopt(c, CURLOPT_SEEKFUNCTION, OnSeek);
      curl_easy_setopt(c, CURLOPT_SEEKDATA, &transfer);
      curl_easy_setopt(
          c, CURLOPT_INFILESIZE_LARGE,
          static_cast<curl_off_t>(request.upload != nullptr ? request.upload_bytes : std::ssize(request.text)));
    } else if (std::strcmp(request.method, "GET") != 0) {
      curl_easy_setopt(c, CURLOPT_CUSTOMREQUEST, request.method);
    }
    const CURLcode code = curl_easy_perform(c);
    curl_easy_getinfo(c, CURLINFO_RESPONSE_CODE, &reply.http);
    const bool well = code == CURLE_OK;
    if (well || reply.too_large) {
      const std::lock_guard<std::mutex> lock(mutex_);
      if (well) idle_.push_back(std::move(easy));
      return reply;
    }
    return IoError("{} does not answer for {}: {}", url_, Named(key),
                   Shown(error[0] != '\0' ? error : curl_easy_strerror(code)));
  }

  const std::string url_, bucket_, prefix_;
  const std::unique_ptr<Spool> spool_;
  std::mutex mutex_;
  std::vector<Easy> idle_;
};

// Once, while there may be other threads: libcurl says that it can.
bool StartCurl() {
  static const bool started = curl_global_init(CURL_GLOBAL_DEFAULT) == CURLE_OK;
  return started;
}

Result<std::unique_ptr<Store>> Open(const std::string& address, const StoreOptions& options) {
  const std::string_view rest = std::string_view(address).substr(std::strlen("s3://"));
  const size_t slash = std::min(rest.find('/'), rest.size());
  std::string bucket(rest.substr(0, slash)), prefix(rest.substr(std::min(slash + 1, rest.size())));
  while (!prefix.empty() && prefix.back() == '/') prefix.pop_back();
  if (!prefix.empty()) prefix += '/';
  if (bucket.empty() || bucket.size() > 63 || bucket.find_first_of("?#%@: ") != bucket.npos ||
      prefix.size() > kMaxKeyBytes) {
    return InvalidArgument("'{}' is no place in S3: write {}", address, kAddresses);
  }
  if (options.s3_key.empty() || options.s3_secret.empty()) {
    return InvalidArgument("{} needs AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY in the environment", address);
  }
  std::string url = options.s3_endpoint;
  if (url.empty()) url = fmt::format("https://s3.{}.amazonaws.com", options.s3_region);
  while (!url.empty() && url.back() == '/') url.pop_back();
  if (!url.starts_with("http://") && !url.starts_with("https://")) {
    return InvalidArgument("the S3 endpoint '{}' must begin with https:// or http://", url);
  }
  if (!StartCurl()) return IoError("libcurl cannot be used");
  WEIR_ASSIGN_OR_RETURN(auto spool, Spool::Make(options.spool));
  auto out = std::make_unique<S3Store>(std::move(url), std::move(bucket), std::move(prefix), options, std::move(spool));
  WEIR_RETURN_IF_ERROR(out->Check());
  return std::unique_ptr<Store>(std::move(out));
}

#else

Result<std::unique_ptr<Store>> Open(const std::string&, const StoreOptions&) {
  return Unsupported("this build has no S3: libcurl was not there when it was made");
}

#endif

}  // namespace

extern const StoreInfo kS3Store;
// Buffers for both directions, TLS's, a page of a list or the text of an error.
const StoreInfo kS3Store = {.scheme = "s3", .addresses = kAddresses, .bytes_a_call = 1 << 19, .open = Open};

}  // namespace weir
