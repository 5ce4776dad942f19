// SPDX-License-Identifier: Apache-2.0
#include "serve/http_server.h"

#include <netdb.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <cstring>
#include <string_view>
#include <utility>

#include "base/caught.h"
#include "base/clock.h"

namespace weir {
namespace {

constexpr int kBacklog = 1024;

// The connection that the current thread handles.
thread_local HttpConnection* current = nullptr;

// How long a client may be silent in the middle of its body, or take nothing of its answer, while others wait. Every
// job waits for a moment, so others wait if they do at several looks in a row.
constexpr std::chrono::seconds kPatience{3};
constexpr int kLooks = 3;
// An answer that the client's side does not take is seen to stand still once so many bytes of it wait here.
constexpr int kUnsentBytes = 16 << 10;

void Peer(int socket, bool remote, std::string* ip, int* port) {
  sockaddr_storage address{};
  socklen_t length = sizeof(address);
  const int failed = remote ? getpeername(socket, reinterpret_cast<sockaddr*>(&address), &length)
                            : getsockname(socket, reinterpret_cast<sockaddr*>(&address), &length);
  char host[NI_MAXHOST] = "", service[NI_MAXSERV] = "";
  if (failed != 0 || getnameinfo(reinterpret_cast<sockaddr*>(&address), length, host, sizeof(host), service,
                                 sizeof(service), NI_NUMERICHOST | NI_NUMERICSERV) != 0) {
    return;
  }
  *ip = host;
  *port = std::atoi(service);
}

// The stream of one request's bytes, limited in size and time.
class LimitedStream : public httplib::Stream {
 public:
  struct Watch {
    const std::atomic<bool>& stop;
    std::function<bool()> body_crowded, answer_crowded;  // whether others wait for what this request holds
    bool* begun;                                         // is set before the first byte of an answer
  };
  LimitedStream(WaitingRoom::Arrival arrival, const HttpLimits& limits, const Watch& watch)
      : socket_(arrival.socket),
        watch_(watch),
        n_left_(limits.max_head_bytes),
        read_deadline_(arrival.deadline),
        write_timeout_(limits.write_timeout_s),
        bytes_(std::move(arrival.early)) {}

  // What has come and was not read.
  std::string Unread() const { return bytes_.substr(std::min(at_, bytes_.size())); }
  // The header was read; at most `n_bytes` more may follow.
  void StartBody(int64_t n_bytes) { n_left_ = n_bytes; }

  bool is_readable() const override { return at_ < bytes_.size() || WaitToRead(); }
  bool is_writable() const override { return WaitToWrite() && !Broken(); }

  ssize_t read(char* to, size_t size) override {
    if (n_left_ <= 0) return -1;
    if (at_ == bytes_.size()) {
      // What is there already is taken even if the time is over: the request may have waited for a thread.
      bytes_.resize(kReadBytes);
      at_ = 0;
      ssize_t n = Receive();
      if (n < 0 && (errno == EAGAIN || errno == EWOULDBLOCK) && WaitToRead()) n = Receive();
      bytes_.resize(static_cast<size_t>(std::max<ssize_t>(n, 0)));
      if (n <= 0) return n;
    }
    const size_t n = std::min({size, bytes_.size() - at_, static_cast<size_t>(n_left_)});
    std::memcpy(to, bytes_.data() + at_, n);
    at_ += n;
    n_left_ -= static_cast<int64_t>(n);
    return static_cast<ssize_t>(n);
  }

  ssize_t write(const char* from, size_t size) override {
    if (current != nullptr && current->taken_over()) return static_cast<ssize_t>(size);
    if (!WaitToWrite()) return -1;
    if (watch_.begun != nullptr) *watch_.begun = true;
    for (;;) {
      const ssize_t n = send(socket_, from, size, MSG_NOSIGNAL | MSG_DONTWAIT);
      if (n >= 0 || errno != EINTR) return n;
    }
  }

  void get_remote_ip_and_port(std::string& ip, int& port) const override { Peer(socket_, true, &ip, &port); }
  void get_local_ip_and_port(std::string& ip, int& port) const override { Peer(socket_, false, &ip, &port); }
  socket_t socket() const override { return socket_; }

 private:
  ssize_t Receive() {
    for (;;) {
      const ssize_t n = recv(socket_, bytes_.data(), bytes_.size(), MSG_DONTWAIT);
      if (n >= 0 || errno != EINTR) return n;
    }
  }
  bool Broken() const {
    pollfd fd{socket_, POLLOUT, 0};
    return poll(&fd, 1, 0) < 0 || (fd.revents & (POLLERR | POLLHUP)) != 0;
  }

  // False on timeout, on a broken socket, when `grace` has passed since the server began to stop, or when nothing came
  // for kPatience while others wait.
  bool Wait(short events, Clock::time_point deadline, Clock::duration grace,
            const std::function<bool()>& crowded) const {
    const Clock::time_point start = Clock::now();
    int n_crowded = 0;
    for (bool stopping = false;;) {
      const bool was_stopping = std::exchange(stopping, watch_.stop.load());
      const Clock::time_point now = Clock::now();
      if (stopping && !was_stopping) deadline = std::min(deadline, now + grace);
      const auto left = std::chrono::duration_cast<std::chrono::milliseconds>(deadline - now).count();
      n_crowded = now - start >= kPatience && crowded() ? n_crowded + 1 : 0;
      if (left <= 0 || n_crowded == kLooks) return false;
      pollfd fd{socket_, events, 0};
      const int n = poll(&fd, 1, static_cast<int>(std::min<int64_t>(left, 200)));
      if (n > 0) return true;
      if (n < 0 && errno != EINTR) return false;
    }
  }
  bool WaitToRead() const { return Wait(POLLIN, read_deadline_, Clock::duration::zero(), watch_.body_crowded); }
  bool WaitToWrite() const { return Wait(POLLOUT, Clock::now() + write_timeout_, kLastWrite, watch_.answer_crowded); }

  static constexpr size_t kReadBytes = 16 << 10;
  static constexpr std::chrono::seconds kLastWrite{1};  // a finished answer is still sent
  const int socket_;
  const Watch watch_;
  int64_t n_left_;
  const Clock::time_point read_deadline_;
  const std::chrono::seconds write_timeout_;
  std::string bytes_;  // received; the first at_ of them were read
  size_t at_ = 0;
};

// No length: it ends with the connection.
constexpr std::string_view kBusy =
    "HTTP/1.1 503 Service Unavailable\r\nContent-Type: application/json\r\nRetry-After: 1\r\n"
    "x-should-retry: true\r\nConnection: close\r\n\r\n"
    "{\"error\":{\"message\":\"the server has too many connections\",\"type\":\"server_error\",\"param\":null,"
    "\"code\":\"too_many_connections\"}}";

void Refuse(int socket) { (void)!send(socket, kBusy.data(), kBusy.size(), MSG_NOSIGNAL | MSG_DONTWAIT); }

constexpr std::string_view kFailed =
    "HTTP/1.1 500 Internal Server Error\r\nContent-Type: application/json\r\nConnection: close\r\n\r\n"
    "{\"error\":{\"message\":\"the request failed: the server has no memory left\",\"type\":\"server_error\","
    "\"param\":null,\"code\":\"internal\"}}";

// The library's task of a new connection only hands it to the waiting room.
class AtOnce : public httplib::TaskQueue {
 public:
  explicit AtOnce(WaitingRoom& room) : room_(room) {}
  void enqueue(std::function<void()> task) override { task(); }
  void shutdown() override { room_.Stop(); }

 private:
  WaitingRoom& room_;
};

int MaxSilent(const HttpLimits& limits) {
  if (limits.max_silent > 0) return limits.max_silent;
  rlimit files{};
  if (getrlimit(RLIMIT_NOFILE, &files) != 0) return 256;
  const int64_t n_files = static_cast<int64_t>(std::min<rlim_t>(files.rlim_cur, 1 << 20));
  // Two lists of this length: those that have not asked yet, and those that were answered.
  return static_cast<int>(std::clamp<int64_t>((n_files - limits.n_threads - limits.max_queued) / 4, 16, 1024));
}

}  // namespace

bool HttpConnection::Alive() const {
  pollfd fd{socket_, POLLIN | POLLRDHUP, 0};
  if (poll(&fd, 1, 0) < 0) return errno == EINTR;
  return (fd.revents & (POLLERR | POLLHUP | POLLRDHUP | POLLNVAL)) == 0;
}

Status HttpConnection::Take(int64_t bytes) {
  if (bytes > bodies_.budget_bytes()) {
    return InvalidArgument(
        "this request would need {} bytes, but all requests together may hold {}; ask for less at once", bytes,
        bodies_.budget_bytes());
  }
  auto taken = bodies_.Reserve(MemTag::kOther, bytes);
  if (!taken.ok()) {
    return OverBudget("the server is busy: running requests hold {} of {} bytes; try again later", bodies_.used_bytes(),
                      bodies_.budget_bytes());
  }
  taken_.push_back(*std::move(taken));
  return Status();
}

HttpConnection* HttpConnection::Current() { return current; }

void HttpConnection::Handle(int socket, Ledger& bodies, const std::function<std::string()>& handler) {
  HttpConnection connection(socket, bodies);
  struct Mine {
    explicit Mine(HttpConnection* connection) { current = connection; }
    ~Mine() { current = nullptr; }
  } const mine(&connection);
  std::string unread = handler();
  if (connection.speak_ != nullptr) connection.speak_(socket, std::move(unread));
}

HttpServer::HttpServer(const HttpLimits& limits, Rules rules)
    : limits_(limits),
      rules_(std::move(rules)),
      bodies_(limits.max_bodies_bytes > 0
                  ? limits.max_bodies_bytes
                  : std::max<int64_t>(32 << 20, std::min(limits.max_body_bytes, INT64_MAX / 4) * 4)) {
  new_task_queue = [this] {
    room_ = std::make_unique<WaitingRoom>(
        WaitingRoom::Limits{limits_.n_threads, limits_.max_queued, MaxSilent(limits_), limits_.max_head_bytes,
                            std::chrono::seconds(limits_.request_timeout_s)},
        WaitingRoom::Calls{[this](WaitingRoom::Arrival arrival) { Answer(std::move(arrival)); }, Refuse,
                           rules_.urgent});
    return new AtOnce(*room_);
  };
  set_payload_max_length(static_cast<size_t>(limits.max_body_bytes));
  // The library's own options let a second server share the port, so that each gets some of the requests. These do not,
  // but a port whose server has just ended can still be reused at once.
  set_socket_options([](socket_t socket) {
    const int yes = 1;
    (void)setsockopt(socket, SOL_SOCKET, SO_REUSEADDR, &yes, sizeof(yes));
  });
}

Result<int> HttpServer::Bind(const std::string& address, int port) {
  const int asked = port;
  const bool bound = port == 0 ? (port = bind_to_any_port(address)) > 0 : bind_to_port(address, port);
  // The library's listen backlog is five; beyond it, clients retry after a second.
  if (!bound || ::listen(svr_sock_, kBacklog) != 0) {
    return IoError("cannot listen on {} port {}; is the port in use, or is the address not this machine's?", address,
                   asked);
  }
  return port;
}

void HttpServer::Shutdown() {
  if (is_running() && !stopping_.exchange(true)) stop();
}

bool HttpServer::process_and_close_socket(socket_t socket) {
  room_->Add(socket);
  return true;
}

void HttpServer::Answer(WaitingRoom::Arrival arrival) {
  const int socket = arrival.socket;
  setsockopt(socket, IPPROTO_TCP, TCP_NOTSENT_LOWAT, &kUnsentBytes, sizeof(kUnsentBytes));
  bool begun = false;
  const bool handled = Tried([&] {
    HttpConnection::Handle(socket, bodies_, [&] {
      const auto body_crowded = [this] { return room_->crowded(); };
      LimitedStream stream(std::move(arrival), limits_,
                           {stopping_, body_crowded, [&] { return body_crowded() || rules_.crowded(); }, &begun});
      bool closed = true;
      process_request(stream, /*close_connection=*/true, closed, [&](httplib::Request& request) {
        request.ranges.clear();  // range requests are not supported
        // The framing of a chunked body costs up to six bytes per byte; the size limit is enforced while the content is
        // read.
        stream.StartBody(limits_.max_body_bytes * 7 + (1 << 16));
      });
      return stream.Unread();
    });
  });
  // What was half sent ends in its middle.
  if (!handled && !begun) (void)!send(socket, kFailed.data(), kFailed.size(), MSG_NOSIGNAL | MSG_DONTWAIT);
  room_->Close(socket);
}

}  // namespace weir
