// SPDX-License-Identifier: Apache-2.0
// Status and Result<T>: how every library function of Weir reports errors. Nothing in the library prints, exits, aborts
// or throws for a bad file, a bad request or a full budget: it returns one of these.
//
// A message is one line: what is wrong, where, and what to do about it.
#pragma once

#include <fmt/core.h>

#include <optional>
#include <string>
#include <utility>

namespace weir {

enum class StatusCode {
  kOk = 0,
  kInvalidArgument,  // invalid request by the caller (flags, sizes, empty prompt)
  kNotFound,         // no such file, policy, tensor, key
  kCorrupt,          // a file or request that is inconsistent
  kUnsupported,      // well-formed, but not supported by this build (architecture, tensor type)
  kOverBudget,       // not enough bytes left in the ledger, or slots in the pot
  kIo,               // the operating system reported an error (open, read, write, map)
  kCancelled,        // cancelled by the user or the embedder
  kInternal,         // a bug: an invariant is broken
};

class [[nodiscard]] Status {
 public:
  Status() = default;
  Status(StatusCode code, std::string message) : code_(code), message_(std::move(message)) {}

  bool ok() const { return code_ == StatusCode::kOk; }
  StatusCode code() const { return code_; }
  const std::string& message() const { return message_; }

 private:
  StatusCode code_ = StatusCode::kOk;
  std::string message_;
};

// Formats the message of a Status: `return InvalidArgument("a pot of {} tokens is too small", n)`. The format is
// checked at compile time.
Status FormatStatus(StatusCode code, fmt::string_view format, fmt::format_args args);

#define WEIR_STATUS_FUNCTION(Name, code)                                           \
  template <typename... Args>                                                      \
  Status Name(fmt::format_string<Args...> format, Args&&... args) {                \
    return FormatStatus(StatusCode::code, format, fmt::make_format_args(args...)); \
  }
WEIR_STATUS_FUNCTION(InvalidArgument, kInvalidArgument)
WEIR_STATUS_FUNCTION(NotFound, kNotFound)
WEIR_STATUS_FUNCTION(Corrupt, kCorrupt)
WEIR_STATUS_FUNCTION(Unsupported, kUnsupported)
WEIR_STATUS_FUNCTION(OverBudget, kOverBudget)
WEIR_STATUS_FUNCTION(IoError, kIo)
WEIR_STATUS_FUNCTION(Cancelled, kCancelled)
WEIR_STATUS_FUNCTION(Internal, kInternal)
#undef WEIR_STATUS_FUNCTION

// A T, or the Status that says why it is missing. REQUIRES: ok() before value(), `*` or `->`.
template <typename T>
class [[nodiscard]] Result {
 public:
  Result(Status status) : status_(std::move(status)) {}  // NOLINT: implicit, so that `return NotFound(...)` works
  Result(T value) : value_(std::move(value)) {}          // NOLINT

  bool ok() const { return value_.has_value(); }
  const Status& status() const { return status_; }
  T& value() & { return *value_; }
  const T& value() const& { return *value_; }
  T&& value() && { return *std::move(value_); }
  T& operator*() & { return *value_; }
  const T& operator*() const& { return *value_; }
  T&& operator*() && { return *std::move(value_); }
  T* operator->() { return &*value_; }
  const T* operator->() const { return &*value_; }

 private:
  Status status_;
  std::optional<T> value_;
};

#define WEIR_RETURN_IF_ERROR(expr)                                                     \
  do {                                                                                 \
    if (::weir::Status weir_status_ = (expr); !weir_status_.ok()) return weir_status_; \
  } while (0)

#define WEIR_CONCAT_INNER(a, b) a##b
#define WEIR_CONCAT(a, b) WEIR_CONCAT_INNER(a, b)
// WEIR_ASSIGN_OR_RETURN(auto x, F()): x from the Result, or return its Status.
#define WEIR_ASSIGN_OR_RETURN(lhs, expr) WEIR_ASSIGN_OR_RETURN_IMPL(WEIR_CONCAT(weir_result_, __LINE__), lhs, expr)
#define WEIR_ASSIGN_OR_RETURN_IMPL(tmp, lhs, expr) \
  auto tmp = (expr);                               \
  if (!tmp.ok()) return tmp.status();              \
  lhs = std::move(tmp).value()

}  // namespace weir
