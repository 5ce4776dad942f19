// SPDX-License-Identifier: Apache-2.0
// A dialect: how one family of models writes calls of tools into its answers. docs/recipes/add-a-tool-format.md.
//
// A dialect is one file of this folder. It recognises its family by the text of the chat template, names the control
// tokens that are parts of its markers, and makes a reader that is given an answer piece by piece.
#pragma once

#include <memory>
#include <span>
#include <string>
#include <string_view>

#include "base/status.h"
#include "text/dialects/part_sink.h"

namespace weir {

class CallWriter;
struct CallParts;
class ToolTable;

struct DialectOptions {
  std::shared_ptr<const ToolTable> tools;  // nullptr: none are offered
  bool thoughts_apart = true;              // for dialects that tell thoughts apart: else they are content
  // The answer is held to what `write` says, so that only what is written so is a call.
  bool held = false;
};

// Takes apart an answer that arrives in pieces. The pieces' boundaries never matter. Text that turns out to be no call
// is content, whole; what belongs to a call is not content. Holds back only what may still become a marker, and what
// comes between a marker and the tool's name; no more than kMaxHeldBytes.
class DialectReader {
 public:
  virtual ~DialectReader() = default;
  virtual void Push(std::string_view text) = 0;
  // The answer has ended.
  virtual void Finish() = 0;
};

inline constexpr size_t kMaxHeldBytes = 1 << 20;

struct DialectInfo {
  const char* name;
  const char* summary;  // one line
  // How surely a chat template's text shows this dialect; 0: not at all. The largest wins.
  int (*fits)(std::string_view jinja);
  // Everything that control tokens may be parts of. Control tokens that occur in none of these never reach a reader.
  std::span<const std::string_view> markers;
  std::unique_ptr<DialectReader> (*make)(const DialectOptions& options, PartSink& sink);
  // How calls are written, as parts of a form (call_writer.h). kInvalidArgument: a tool's schema that these calls
  // cannot be held to. nullptr: answers in this dialect cannot be held.
  Result<CallParts> (*write)(CallWriter& writer) = nullptr;
  bool thoughts = false;   // the reader tells thoughts apart itself, so it is needed without tools, too
  bool short_ids = false;  // its templates take only ids of nine letters and digits
};

// All dialects, by name. Generated from the folder.
std::span<const DialectInfo* const> AllDialectInfos();
// The dialect that fits best. There is always one: "generic" fits every template, worst.
const DialectInfo& DialectOf(std::string_view jinja);

}  // namespace weir
