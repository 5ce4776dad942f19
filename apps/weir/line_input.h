// SPDX-License-Identifier: Apache-2.0
// Reads lines of any length that a user types or pastes.
//
// On a terminal they can be edited (libedit: arrow keys, Ctrl-A, Ctrl-K and so on) and recalled with the up and down
// arrows; Tab completes commands, and names of files after those that take one; several lines pasted at once are one
// message where the terminal marks a paste, as nearly all do. Left to itself, the kernel cuts a terminal's lines at
// 4,095 bytes; while a LineInput exists it does not, nor does it cut what is typed ahead. From a pipe or a file, lines
// are read as they are.
//
// One at a time in a process, used by one thread. Lines to recall are kept in memory only.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "base/status.h"

namespace weir::app {

class LineInput {
 public:
  // Takes over standard input. The destructor restores the terminal's mode; a second Ctrl-C that ends the process does
  // so too.
  // waits: for Read(), which waits for a line; otherwise for Poll(), which edits only on the terminal of a program in
  // the foreground.
  explicit LineInput(bool waits = true);
  ~LineInput();
  LineInput(const LineInput&) = delete;
  LineInput& operator=(const LineInput&) = delete;

  bool terminal() const { return editor_ != nullptr; }
  // What Tab completes at the start of a line: "/help"; with a space at its end, "/file ", a command that takes a file.
  void SetCommands(std::vector<std::string> commands);

  enum class Event {
    kLine,         // *line has it, without its end; pasted, it may hold line feeds
    kEnd,          // Ctrl-D, or the end of the file; or it cannot be read: status()
    kInterrupted,  // Ctrl-C (StopFlag() in common.h); Read() sets *line to what was typed until then
    kNothing,      // Poll() only: no line is complete yet
  };
  // Shows `prompt`, one line of ASCII, on a terminal, and waits for a line.
  Event Read(const char* prompt, std::string* line);
  // Takes what has been typed, without waiting for more, and the first complete line of it. Shows no prompt. Not to be
  // mixed with Read().
  Event Poll(std::string* line);
  // Why standard input ended; ok: because it is over.
  Status status() const;
  // Shows an unfinished line again after other output.
  void Redraw();

 private:
  // From a pipe or a file; wait_ms 0: without waiting.
  Event NextLine(int wait_ms, std::string* line);

  class Bytes;
  class Editor;
  std::unique_ptr<Bytes> bytes_;
  size_t looked_at_ = 0;            // bytes without a line's end
  std::unique_ptr<Editor> editor_;  // nullptr unless standard input is a terminal
};

}  // namespace weir::app
