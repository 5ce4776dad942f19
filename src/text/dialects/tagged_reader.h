// SPDX-License-Identifier: Apache-2.0
// Reads calls whose arguments are tags with values between them, and makes JSON of them. Whether a value is a text is
// known from the tool's schema; without one, what is JSON is JSON.
#pragma once

#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "text/dialects/call_writer.h"
#include "text/dialects/text_reader.h"

namespace weir {

enum class ParameterTakes : int;  // text/tool_table.h

struct TaggedForm {
  std::span<const std::string_view> opens;   // around calls; each needs a call next
  std::span<const std::string_view> closes;  // of these
  std::string_view call;                     // before the tool's name; empty: the name follows an open
  std::string_view name_end;
  std::string_view parameter, key_end;  // around a parameter's name; what follows a quote in between are attributes
  std::string_view value = {};          // before a value; empty: it follows key_end
  std::string_view value_end;
  std::string_view close = {};  // of a call; empty: that of an open
  bool lines = false;           // a value stands on lines of its own
  // For writing. Several calls may share one pair of opens and closes.
  bool shared = false;
  // The tag of a parameter says whether its value is a text: string="true".
  bool says_text = false;
};

// Calls as the reader of the same form reads them.
Result<CallParts> WriteTagged(const TaggedForm& form, CallWriter& writer);

class TaggedReader final : public TextReader {
 public:
  // What `form` refers to must outlive the reader.
  TaggedReader(const TaggedForm& form, const DialectOptions& options, PartSink& sink);

 private:
  enum class Stage { kContent, kOpened, kName, kBody, kKey, kBeforeValue, kValue, kAfter };
  bool Step(bool last) override;
  void Restart() override { stage_ = Stage::kContent; }
  bool ReadContent(bool last);
  bool ReadOpened(bool last);
  bool ReadName(bool last);
  bool ReadBody(bool last);
  bool ReadKey(bool last);
  bool ReadValue(bool last);
  bool ReadAfter(bool last);
  void AddValue(std::string_view text);
  void EndValue();
  void EndCall();

  const TaggedForm form_;
  const DialectOptions options_;
  std::vector<std::string_view> starts_, after_name_, in_body_;
  Stage stage_ = Stage::kContent;
  std::string name_, key_, value_;
  ParameterTakes takes_ = ParameterTakes();
  bool has_arguments_ = false, value_begun_ = false;
};

}  // namespace weir
