// SPDX-License-Identifier: Apache-2.0
// Byte streams, read or written in pieces, so that data the size of a pot is never in memory twice.
#pragma once

#include <algorithm>
#include <cstdint>
#include <span>
#include <vector>

#include "base/status.h"

namespace weir {

class ByteSink {
 public:
  virtual ~ByteSink() = default;
  // Takes all of `bytes`. After an error, everything written so far is invalid.
  virtual Status Write(std::span<const uint8_t> bytes) = 0;
};

inline Status EndsEarly() { return InvalidArgument("the saved session ends early"); }

class ByteSource {
 public:
  virtual ~ByteSource() = default;
  // Fills `to`, or skips n bytes. EndsEarly() when fewer remain.
  virtual Status Read(std::span<uint8_t> to) = 0;
  virtual Status Skip(int64_t n) = 0;
  virtual int64_t n_left() const = 0;
  // Back to the first byte.
  virtual void Rewind() = 0;
};

// The raw bytes of plain objects.
template <typename T>
std::span<const uint8_t> BytesOf(std::span<const T> objects) {
  return {reinterpret_cast<const uint8_t*>(objects.data()), objects.size_bytes()};
}
template <typename T>
std::span<uint8_t> BytesOf(std::span<T> objects) {
  return {reinterpret_cast<uint8_t*>(objects.data()), objects.size_bytes()};
}

// Appends to a vector, which must outlive it.
class VectorSink final : public ByteSink {
 public:
  explicit VectorSink(std::vector<uint8_t>* out) : out_(out) {}
  Status Write(std::span<const uint8_t> bytes) override {
    out_->insert(out_->end(), bytes.begin(), bytes.end());
    return Status();
  }

 private:
  std::vector<uint8_t>* out_;
};

// Fills memory owned by the caller. kInvalidArgument when it is too small.
class SpanSink final : public ByteSink {
 public:
  explicit SpanSink(std::span<uint8_t> to) : to_(to) {}
  Status Write(std::span<const uint8_t> bytes) override {
    if (bytes.size() > to_.size()) return InvalidArgument("the bytes do not fit");
    std::copy(bytes.begin(), bytes.end(), to_.begin());
    to_ = to_.subspan(bytes.size());
    return Status();
  }

 private:
  std::span<uint8_t> to_;
};

// Reads memory owned by the caller.
class SpanSource final : public ByteSource {
 public:
  explicit SpanSource(std::span<const uint8_t> bytes) : bytes_(bytes) {}
  Status Read(std::span<uint8_t> to) override {
    if (std::ssize(to) > n_left()) return EndsEarly();
    std::copy_n(bytes_.begin() + at_, to.size(), to.begin());
    at_ += std::ssize(to);
    return Status();
  }
  Status Skip(int64_t n) override {
    if (n < 0 || n > n_left()) return EndsEarly();
    at_ += n;
    return Status();
  }
  int64_t n_left() const override { return std::ssize(bytes_) - at_; }
  void Rewind() override { at_ = 0; }

 private:
  std::span<const uint8_t> bytes_;
  int64_t at_ = 0;
};

// A range of another source. That source must outlive it and must not be read by anything else meanwhile.
class SectionSource final : public ByteSource {
 public:
  // REQUIRES: begin and n are not negative, and the whole source has begin + n bytes.
  SectionSource(ByteSource& whole, int64_t begin, int64_t n) : whole_(whole), begin_(begin), n_(n) {}
  Status Read(std::span<uint8_t> to) override {
    if (std::ssize(to) > n_left()) return EndsEarly();
    WEIR_RETURN_IF_ERROR(Place());
    WEIR_RETURN_IF_ERROR(whole_.Read(to));
    at_ += std::ssize(to);
    return Status();
  }
  Status Skip(int64_t n) override {
    if (n < 0 || n > n_left()) return EndsEarly();
    WEIR_RETURN_IF_ERROR(Place());
    WEIR_RETURN_IF_ERROR(whole_.Skip(n));
    at_ += n;
    return Status();
  }
  int64_t n_left() const override { return n_ - at_; }
  void Rewind() override {
    at_ = 0;
    placed_ = false;
  }

 private:
  // The underlying source may be at any position before the first read.
  Status Place() {
    if (placed_) return Status();
    placed_ = true;
    whole_.Rewind();
    return whole_.Skip(begin_);
  }

  ByteSource& whole_;
  const int64_t begin_, n_;
  int64_t at_ = 0;
  bool placed_ = false;
};

}  // namespace weir
