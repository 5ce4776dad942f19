// SPDX-License-Identifier: Apache-2.0
// Reads calls that are written in a notation of their own between two markers: the whole block is collected, and then
// understood or not. So these calls come in one piece.
#pragma once

#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "text/dialects/call_writer.h"
#include "text/dialects/text_reader.h"

namespace weir {

struct NotedCall {
  std::string name;
  std::string arguments;  // a JSON object
};

struct BlockForm {
  std::span<const std::string_view> opens;
  std::span<const std::string_view> closes;  // the end of the answer closes a block, too
  // What a block says; empty if it is not understood.
  std::vector<NotedCall> (*understand)(std::string_view block);
};

class BlockReader final : public TextReader {
 public:
  BlockReader(const BlockForm& form, const DialectOptions& options, PartSink& sink)
      : TextReader(sink), form_(form), held_(options.held) {}

 private:
  bool Step(bool last) override;
  void Restart() override { in_block_ = false; }

  const BlockForm form_;
  const bool held_;
  bool in_block_ = false;
  std::string block_;
};

// Python's calls: f(a=1, b="x"), a list of them, or several lines. Arguments have names and are literals.
std::vector<NotedCall> UnderstandPython(std::string_view block);
// call:f{a:1,b:<|"|>x<|"|>}, one or several. `quote` stands before and behind a text.
std::vector<NotedCall> UnderstandBraces(std::string_view block, std::string_view quote);

// Calls as these functions understand them: one in Python, and blocks with one in braces each.
Result<FormBuilder::Part> WritePythonCall(CallWriter& writer, const CallWriter::Tool& tool);
Result<CallParts> WriteBraces(CallWriter& writer, std::span<const std::string_view> opens, std::string_view close,
                              std::string_view quote);

}  // namespace weir
