// SPDX-License-Identifier: Apache-2.0
// Reads calls behind a marker, with their arguments as JSON: an object or a list of objects (json_call.h), or a name
// and then the arguments.
#pragma once

#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "text/dialects/json_call.h"
#include "text/dialects/text_reader.h"

namespace weir {

struct CallsForm {
  std::span<const std::string_view> opens;        // each begins calls
  std::span<const std::string_view> closes = {};  // may come behind a call; dropped
  // Dropped wherever they come: brackets around several calls.
  std::span<const std::string_view> dropped = {};
  // Markers between a tool's name and its arguments; none: no names before objects.
  std::span<const std::string_view> name_ends = {};
  std::string_view id_begins = {};  // between a tool's name and the call's id, which a name's end ends
  // An answer that begins with an object or a list of them is a call, if it is one of a tool that was offered.
  bool bare = false;
  bool numbered = false;  // a name is written functions.NAME:0, and that is the call's id, too
  bool keyed = false;     // an object is {NAME: ARGUMENTS}
};

class CallsReader final : public TextReader {
 public:
  // What `form` refers to must outlive the reader.
  CallsReader(const CallsForm& form, const DialectOptions& options, PartSink& sink);

 private:
  enum class Stage { kContent, kOpen, kName, kId, kNamed, kArguments, kObject, kBetween };
  bool Step(bool last) override;
  void Restart() override;
  bool ReadContent(bool last);
  bool ReadOpen(bool last);
  bool ReadName(bool last);
  bool ReadNamed(bool last);
  bool ReadArguments(bool last);
  // Of the arguments; returns how much it took.
  size_t Feed(std::string_view text);
  bool ReadObject(bool last);
  bool ReadBetween(bool last);
  // Goes back to content in the middle of a call that was begun, or gives it up.
  bool Abandon();

  const CallsForm form_;
  const DialectOptions options_;
  std::vector<std::string_view> opens_, name_marks_;
  Stage stage_ = Stage::kContent;
  bool at_start_;                        // nothing but white space was read
  bool bare_ = false, in_list_ = false;  // of the calls that are being read
  std::string name_, id_;
  JsonArguments arguments_;
  std::optional<JsonCall> object_;
};

}  // namespace weir
