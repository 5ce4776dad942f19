// SPDX-License-Identifier: Apache-2.0
// Thoughts of a chat's model, apart from its answer.
#pragma once

#include <CLI/CLI.hpp>
#include <memory>
#include <string>
#include <string_view>

#include "chat/generate.h"
#include "common.h"
#include "text/answer_reader.h"
#include "text/chat_template.h"

namespace weir::app {

struct ThoughtFlags {
  std::string where = "apart";  // "apart": on stderr; "hide"; "inline": in the answer, with their marks
};
CLI::Option* AddThoughtsFlag(CLI::App& app, ThoughtFlags* flags);

// How answers to a chat are to be read.
struct ThoughtReading {
  ThoughtReading(const GgufFile& file, const ModelFlags& model, const ChatTemplate& chat, const Tokenizer& tokenizer,
                 std::string where);
  // The model may think, and its thoughts are not a part of the answer.
  bool takes_apart() const { return where != "inline" && (form.dialect().thoughts || !form.thoughts().open.empty()); }

  const std::string where;
  const AnswerForm form;
  bool in_thoughts = false;  // the template's words before an answer begin them
};

// Takes one answer apart as it comes.
class ThoughtPrinter {
 public:
  // `reading`: nullptr: nothing is taken apart.
  explicit ThoughtPrinter(const ThoughtReading* reading);
  // Tokens that the text must contain.
  std::span<const int32_t> shown() const;
  // Returns the part of the answer in it, and prints the thoughts where they go. `last`: there is no more.
  std::string Take(std::string_view text, bool last);
  bool active() const { return reader_ != nullptr; }
  const std::string& thoughts() const { return thoughts_; }

 private:
  const ThoughtReading* const reading_;
  std::unique_ptr<AnswerReader> reader_;  // nullptr: all is the answer
  const bool terminal_, faint_;           // stderr is one; thoughts are shown faint on it
  std::string thoughts_;
  bool thinking_ = false;  // what was printed last
};

}  // namespace weir::app
