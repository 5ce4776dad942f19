// SPDX-License-Identifier: Apache-2.0
// `weir watch --follow --skip-same N`: lines of a log that say again what was read a short while ago.
//
// Two lines are the same if they differ in words with digits only: numbers, addresses, times, ids. A line is left out
// if the same one was read within the last N lines, so that what goes on is read again every N lines.
#pragma once

#include <cstdint>
#include <string_view>

#include "base/ledger.h"
#include "base/memory.h"
#include "base/status.h"

namespace weir::app {

class RepeatedLines {
 public:
  static constexpr int64_t kMostWindow = 1 << 20;

  // Bytes that Make() reserves. REQUIRES: 1 <= window <= kMostWindow, for both.
  static int64_t Bytes(int64_t window);
  static Result<RepeatedLines> Make(int64_t window, Ledger& ledger);

  // The next line, with or without its end. False: it need not be read.
  bool IsNew(std::string_view line);
  int64_t n_lines() const { return n_lines_; }
  int64_t n_same() const { return n_same_; }

  // What two lines that are the same have in common; for tests and for IsNew().
  static uint64_t Shape(std::string_view line);

 private:
  struct Entry {
    uint64_t shape;
    int64_t line;  // that was read, from 1 on; 0: none
  };
  RepeatedLines(int64_t window, HostBuffer table) : window_(window), table_(std::move(table)) {}
  static int64_t Entries(int64_t window);

  int64_t window_;
  HostBuffer table_;  // one place for every shape: of two that share it, the newer stays
  int64_t n_lines_ = 0, n_same_ = 0;
};

}  // namespace weir::app
