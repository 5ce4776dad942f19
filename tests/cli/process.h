// SPDX-License-Identifier: Apache-2.0
// Runs the real program as a user would: arguments, standard input, the interrupt key. The path of the program is
// compiled in (support/build_paths.h).
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "support/build_paths.h"

namespace weir::testing {

struct RunOptions {
  std::string input;           // standard input; then its end
  bool endless_input = false;  // `input` again and again, for as long as the program reads
  bool silent_end = false;     // after `input` nothing comes any more, but the pipe stays open
  std::string directory;       // working directory; empty: this process's own
  std::string output_path;     // standard output goes to this file instead of RunResult::out
  // The interrupt key, pressed once: when this many bytes went in (up to 64 KiB of them are still in the pipe) or came
  // out on standard output, or this long after the first line on standard error; -1: never.
  int64_t interrupt_after_in_bytes = -1;
  int64_t interrupt_after_out_bytes = -1;
  int64_t interrupt_after_ms = -1;
  int timeout_s = 120;
};

struct RunResult {
  int code = -1;           // exit code; -1 when the program was killed
  int signal = 0;          // what killed it
  bool timed_out = false;  // it was killed here
  std::string out, err;
};

// Blocks until the program ended or the timeout passed (it is then killed).
RunResult RunWeir(const std::vector<std::string>& arguments, const RunOptions& options = {});

std::vector<std::string> Lines(const std::string& text);

// An empty folder, removed with everything in it at the end.
class TempDir {
 public:
  TempDir();
  ~TempDir();
  TempDir(const TempDir&) = delete;
  TempDir& operator=(const TempDir&) = delete;
  const std::string& path() const { return path_; }
  std::string File(const std::string& name) const { return path_ + "/" + name; }
  // Writes a file into the folder and gives its path.
  std::string Write(const std::string& name, const std::string& bytes) const;
  // Names of what lies in it, sorted.
  std::vector<std::string> Names() const;

 private:
  std::string path_;
};

}  // namespace weir::testing
