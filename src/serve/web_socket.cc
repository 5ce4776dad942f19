// SPDX-License-Identifier: Apache-2.0
#include "serve/web_socket.h"

#ifdef WEIR_WEBSOCKET

#include <unistd.h>

#include <algorithm>
#include <boost/asio/io_context.hpp>
#include <boost/asio/ip/tcp.hpp>
#include <boost/beast/core/flat_buffer.hpp>
#include <boost/beast/http/message.hpp>
#include <boost/beast/http/string_body.hpp>
#include <boost/beast/websocket.hpp>
#include <optional>
#include <utility>

#include "base/clock.h"

namespace weir {
namespace {

namespace asio = boost::asio;
namespace beast = boost::beast;
namespace websocket = boost::beast::websocket;
using HttpRequest = beast::http::request<beast::http::string_body>;

constexpr size_t kPart = 64 << 10;  // bytes that are read at once
constexpr std::chrono::seconds kHandshake{10}, kFarewell{2};
constexpr size_t kMostReasonBytes = 120;  // of a closing frame

HttpRequest ToBeast(const httplib::Request& request) {
  HttpRequest out;
  out.method_string(request.method);
  out.version(request.version == "HTTP/1.1" ? 11 : 10);
  out.target("/");
  for (const auto& [name, value] : request.headers) {
    const auto field = beast::http::string_to_field(name);
    // What the handshake is about; the rest has been seen to.
    switch (field) {
      case beast::http::field::host:
      case beast::http::field::upgrade:
      case beast::http::field::connection:
      case beast::http::field::sec_websocket_key:
      case beast::http::field::sec_websocket_version:
        out.insert(field, value);
        break;
      default:
        break;
    }
  }
  return out;
}

class BeastSocket : public WebSocket {
 public:
  BeastSocket(int socket, const Limits& limits, Ledger& ledger)
      : limits_(limits), ledger_(ledger), stream_(io_), buffer_(static_cast<size_t>(limits.max_message) + kPart) {
    // Its own name for the connection: the socket itself is closed by who has it.
    beast::error_code error;
    (void)stream_.next_layer().assign(asio::ip::tcp::v4(), dup(socket), error);
    over_ = error.failed();
  }
  ~BeastSocket() override {
    // What is under way refers to this object.
    beast::error_code error;
    (void)stream_.next_layer().close(error);
    io_.restart();
    io_.run_for(kFarewell);
  }

  Status Accept(const HttpRequest& request) {
    websocket::stream_base::timeout timeout{};
    timeout.handshake_timeout = kHandshake;
    timeout.idle_timeout = limits_.idle;
    timeout.keep_alive_pings = true;
    stream_.set_option(timeout);
    stream_.set_option(websocket::stream_base::decorator(
        [](websocket::response_type& response) { response.set(beast::http::field::server, "weir"); }));
    stream_.read_message_max(static_cast<uint64_t>(limits_.max_message));
    stream_.auto_fragment(false);
    bool done = false;
    stream_.async_accept(request, [&](beast::error_code error) {
      done = true;
      over_ = over_ || error.failed();
    });
    io_.restart();
    const auto end = Clock::now() + kHandshake;
    while (!done && Clock::now() < end) io_.run_one_for(std::chrono::milliseconds(100));
    if (!done) {
      beast::error_code error;
      (void)stream_.next_layer().close(error);
      io_.run_for(kFarewell);
    }
    return done && !over_ ? Status() : IoError("the client is gone");
  }

  Heard Next(std::chrono::milliseconds wait, Message* message) override {
    if (!over_ && !reading_ && !whole_ && !no_room_) Read();
    if (no_room_) {
      Close(Why::kTryLater, "the server has no room for this message; try again later");
      return Heard::kGone;
    }
    io_.restart();
    if (io_.run_one_for(wait) > 0) {
      // What else is there already, but not for long.
      for (int i = 0; i < 16 && !whole_ && io_.poll_one() > 0;) ++i;
    }
    if (sending_ && Clock::now() - sending_since_ > limits_.write) over_ = true;
    if (whole_) {
      message->binary = stream_.got_binary();
      message->bytes.assign(static_cast<const char*>(buffer_.data().data()), buffer_.size());
      message->room = std::exchange(room_, {});
      n_room_ = 0;
      buffer_ = beast::flat_buffer(static_cast<size_t>(limits_.max_message) + kPart);
      whole_ = false;
      return Heard::kMessage;
    }
    return over_ ? Heard::kGone : Heard::kNothing;
  }

  bool sending() const override { return sending_; }

  void Send(std::string text) override {
    if (over_) return;
    out_ = std::move(text);
    sending_ = true;
    sending_since_ = Clock::now();
    stream_.text(true);
    stream_.async_write(asio::buffer(out_), [this](beast::error_code error, size_t) {
      sending_ = false;
      over_ = over_ || error.failed();
    });
  }

  void Close(Why why, std::string_view words) override {
    if (over_) return;
    bool done = false;
    const auto end = Clock::now() + kFarewell;
    io_.restart();
    while (sending_ && !over_ && Clock::now() < end) io_.run_one_for(std::chrono::milliseconds(50));
    if (over_ || sending_) return;
    websocket::close_reason reason(static_cast<uint16_t>(why));
    reason.reason.assign(words.data(), std::min(words.size(), kMostReasonBytes));
    stream_.async_close(reason, [&](beast::error_code) { done = true; });
    while (!done && Clock::now() < end) io_.run_one_for(std::chrono::milliseconds(50));
    over_ = true;
    if (done) return;
    beast::error_code error;  // ends what refers to `done`
    (void)stream_.next_layer().close(error);
    while (!done && io_.run_one_for(kFarewell) > 0) {
    }
  }

 private:
  void Read() {
    // The buffer may be moved while it grows, and becomes a text.
    if (const int64_t needed = 2 * static_cast<int64_t>(buffer_.size() + kPart); n_room_ < needed) {
      auto more = ledger_.Reserve(MemTag::kOther, needed - n_room_);
      no_room_ = !more.ok();
      if (no_room_) return;
      room_.push_back(*std::move(more));
      n_room_ = needed;
    }
    reading_ = true;
    stream_.async_read_some(buffer_, kPart, [this](beast::error_code error, size_t) {
      reading_ = false;
      over_ = over_ || error.failed();
      whole_ = !error.failed() && stream_.is_message_done();
      if (!over_ && !whole_) Read();
    });
  }

  const Limits limits_;
  Ledger& ledger_;
  asio::io_context io_{1};
  websocket::stream<asio::ip::tcp::socket> stream_;
  std::vector<Reservation> room_;  // for buffer_
  int64_t n_room_ = 0;
  beast::flat_buffer buffer_;
  std::string out_;
  Clock::time_point sending_since_;
  bool reading_ = false, sending_ = false, whole_ = false, over_ = false;
  bool no_room_ = false;
};

}  // namespace

ApiError WebSocket::Check(const httplib::Request& request) {
  const HttpRequest head = ToBeast(request);
  const bool asks = websocket::is_upgrade(head) && head.count(beast::http::field::sec_websocket_key) == 1 &&
                    head[beast::http::field::sec_websocket_version] == "13";
  if (asks) return {0, "", ""};
  return {426, "upgrade_required", "this address speaks WebSocket, version 13"};
}

Result<std::unique_ptr<WebSocket>> WebSocket::Accept(int socket, const httplib::Request& request, const Limits& limits,
                                                     Ledger& ledger) {
  auto out = std::make_unique<BeastSocket>(socket, limits, ledger);
  WEIR_RETURN_IF_ERROR(out->Accept(ToBeast(request)));
  return std::unique_ptr<WebSocket>(std::move(out));
}

}  // namespace weir

#else

namespace weir {

ApiError WebSocket::Check(const httplib::Request&) {
  return {501, "not_built", "this build has no WebSocket: Boost.Beast was not there when it was made"};
}

Result<std::unique_ptr<WebSocket>> WebSocket::Accept(int, const httplib::Request&, const Limits&, Ledger&) {
  return Unsupported("this build has no WebSocket");
}

}  // namespace weir

#endif
