// SPDX-License-Identifier: Apache-2.0
// A WebSocket client that writes every byte itself, so that it can be wrong.
#pragma once

#include <gtest/gtest.h>
#include <sys/socket.h>
#include <sys/time.h>
#include <unistd.h>

#include <chrono>
#include <cstdint>
#include <string>
#include <vector>

#include "serve/server_process.h"

namespace weir::testing {

class SocketClient {
 public:
  static constexpr uint8_t kMore = 0, kText = 1, kBinary = 2, kClose = 8, kPing = 9, kPong = 10;
  static constexpr uint8_t kLast = 0x80, kMask = 0x80;

  // Asks for a WebSocket; `lines` are more lines of the head, each with its end.
  SocketClient(const ServerProcess& server, const std::string& path, const std::string& lines = "")
      : SocketClient(server,
                     "GET " + path + " HTTP/1.1\r\nHost: 127.0.0.1:" + std::to_string(server.port()) + "\r\n" +
                         "Upgrade: websocket\r\nConnection: Upgrade\r\nSec-WebSocket-Version: 13\r\n" +
                         "Sec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\n" + lines + "\r\n",
                     0) {}
  SocketClient(const ServerProcess& server, const std::string& head, int) : socket_(server.Connect()) {
    const timeval limit{30, 0};
    setsockopt(socket_, SOL_SOCKET, SO_RCVTIMEO, &limit, sizeof(limit));
    setsockopt(socket_, SOL_SOCKET, SO_SNDTIMEO, &limit, sizeof(limit));
    Write(head);
    size_t end = std::string::npos;
    while ((end = bytes_.find("\r\n\r\n")) == std::string::npos && Fill()) {
    }
    head_ = bytes_.substr(0, end);
    bytes_.erase(0, end == std::string::npos ? bytes_.size() : end + 4);
  }
  ~SocketClient() { close(socket_); }
  SocketClient(const SocketClient&) = delete;
  SocketClient& operator=(const SocketClient&) = delete;

  bool open() const { return head_.rfind("HTTP/1.1 101 ", 0) == 0; }
  const std::string& head() const { return head_; }
  int status() const { return head_.size() > 12 ? std::stoi(head_.substr(9, 3)) : 0; }

  bool Write(const std::string& bytes) {
    for (size_t at = 0; at < bytes.size();) {
      const ssize_t n = send(socket_, bytes.data() + at, bytes.size() - at, MSG_NOSIGNAL);
      if (n <= 0) return false;
      at += static_cast<size_t>(n);
    }
    return true;
  }
  // One frame with a mask; `first` is its first byte.
  static std::string FrameOf(uint8_t first, const std::string& payload) {
    std::string out(1, static_cast<char>(first));
    const size_t n = payload.size();
    if (n < 126) {
      out += static_cast<char>(kMask | n);
    } else if (n < 65536) {
      out += static_cast<char>(kMask | 126);
      for (int shift = 8; shift >= 0; shift -= 8) out += static_cast<char>(n >> shift);
    } else {
      out += static_cast<char>(kMask | 127);
      for (int shift = 56; shift >= 0; shift -= 8) out += static_cast<char>(static_cast<uint64_t>(n) >> shift);
    }
    const std::string mask = "\x11\x22\x33\x44";
    out += mask;
    for (size_t i = 0; i < n; ++i) out += static_cast<char>(payload[i] ^ mask[i % 4]);
    return out;
  }
  bool Say(const Json& json) { return Write(FrameOf(kLast | kText, json.dump())); }
  bool Show(int64_t t_ms, const std::string& picture) {
    std::string bytes;
    for (int shift = 0; shift < 64; shift += 8) bytes += static_cast<char>(static_cast<uint64_t>(t_ms) >> shift);
    return Write(FrameOf(kLast | kBinary, bytes + picture));
  }

  struct Frame {
    int kind = -1;  // -1: the connection is over
    std::string payload;
  };
  Frame Read() {
    const auto byte = [&](size_t at) { return static_cast<uint8_t>(bytes_[at]); };
    const auto wait = [&](size_t n) {
      while (bytes_.size() < n) {
        if (!Fill()) return false;
      }
      return true;
    };
    if (!wait(2)) return {};
    size_t n = byte(1) & 0x7F, head = 2;
    EXPECT_EQ(byte(1) & kMask, 0) << "a server's frames have no mask";
    if (n >= 126) {
      const size_t more = n == 126 ? 2 : 8;
      if (!wait(2 + more)) return {};
      n = 0;
      for (size_t i = 0; i < more; ++i) n = n << 8 | byte(2 + i);
      head += more;
    }
    if (!wait(head + n)) return {};
    Frame out{byte(0) & 0x0F, bytes_.substr(head, n)};
    bytes_.erase(0, head + n);
    return out;
  }
  // The next message of that type; those of other types go to `others`, which may be null. Null at the end.
  Json Next(const std::string& type, std::vector<Json>* others = nullptr) {
    for (;;) {
      const Frame frame = Read();
      if (frame.kind == kPing) continue;
      if (frame.kind != kText) {
        closed_ = frame;
        return nullptr;
      }
      Json json = Json::parse(frame.payload, nullptr, false);
      EXPECT_FALSE(json.is_discarded()) << frame.payload;
      if (json["type"] == type) return json;
      if (others != nullptr) others->push_back(std::move(json));
    }
  }
  // Reads to the end: the code of the closing frame, 0 without one.
  int CloseCode() {
    while (closed_.kind != kClose) {
      closed_ = Read();
      if (closed_.kind == -1) return 0;
    }
    const std::string& code = closed_.payload;
    return code.size() < 2 ? 0 : static_cast<uint8_t>(code[0]) << 8 | static_cast<uint8_t>(code[1]);
  }

 private:
  bool Fill() {
    char buffer[65536];
    const ssize_t n = recv(socket_, buffer, sizeof(buffer), 0);
    if (n > 0) bytes_.append(buffer, static_cast<size_t>(n));
    return n > 0;
  }

  const int socket_;
  std::string head_, bytes_;
  Frame closed_;
};

}  // namespace weir::testing
