// SPDX-License-Identifier: Apache-2.0
// Takes an answer apart as its text arrives: thoughts, content, calls of tools.
//
// Thoughts are what a model writes between two markers (<think> and </think>, or its family's own) at the beginning of
// its answer; templates may write the first marker themselves. Calls are read by a dialect (text/dialects). Without
// thoughts and calls the content is the text, byte for byte.
//
// The text must contain the control tokens that are parts of markers (ShownTokens).
#pragma once

#include <functional>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "text/answer_part.h"
#include "text/dialects/dialect.h"
#include "text/tokenizer.h"

namespace weir {

class ChatTemplate;

// The markers of thoughts. Empty: the template knows none.
struct ThoughtMarks {
  std::string_view open, close;
};

// The markers that a chat template's text shows.
ThoughtMarks ThoughtsOf(std::string_view jinja);

// How a model's answers are to be read, and what its template shows of tools: found once, by the template's text and by
// rendering samples.
class AnswerForm {
 public:
  // `jinja`: the template's text, if `chat` has a program. `chat` may be nullptr: no thoughts, the generic dialect.
  AnswerForm(std::string_view jinja, const ChatTemplate* chat, const Tokenizer& tokenizer);
  // As given, without a vocabulary.
  AnswerForm(const DialectInfo& dialect, ThoughtMarks thoughts) : dialect_(&dialect), thoughts_(thoughts) {}

  const DialectInfo& dialect() const { return *dialect_; }
  const ThoughtMarks& thoughts() const { return thoughts_; }
  // The template itself shows the model its tools. Otherwise a text describes them (text/tool_prompt.h).
  bool shows_tools() const { return shows_tools_; }
  // The template shows a system text, an assistant's calls, messages of the role "tool". What it does not show is
  // written into the contents (text/tool_prompt.h).
  bool shows_system() const { return shows_system_; }
  bool shows_calls() const { return shows_calls_; }
  bool shows_results() const { return shows_results_; }
  // Control tokens that an answer's text must contain; sorted.
  const std::vector<int32_t>& shown() const { return shown_; }
  // Whether the words before an answer end within thoughts. Only what the template wrote counts.
  bool OpensThoughts(const std::vector<TextPiece>& prompt) const;

 private:
  void FindShown(const ChatTemplate& chat);

  const DialectInfo* dialect_;
  ThoughtMarks thoughts_;
  bool shows_tools_ = false, shows_system_ = true, shows_calls_ = false, shows_results_ = false;
  std::vector<int32_t> shown_;
};

struct ReadingOptions {
  std::shared_ptr<const ToolTable> tools;  // nullptr: calls are not looked for
  bool parallel = true;                    // false: the answer ends with its first call
  bool thoughts_apart = true;              // false: thoughts are content, with their markers
  bool in_thoughts = false;                // the prompt has opened them
  std::string begun;                       // the answer's beginning, if the prompt contains it
  bool held = false;                       // to a form (text/held_answer.h)
  std::function<std::string()> new_id;     // of calls; nullptr: they are counted
};

class AnswerReader {
 public:
  // `form` must outlive the reader.
  AnswerReader(const AnswerForm& form, const ReadingOptions& options);

  // Pieces end anywhere; the text is UTF-8.
  void Push(std::string_view text);
  void Finish();
  // What became certain since the last call.
  std::vector<AnswerPart> Take() { return sink_.Take(); }
  int n_calls() const { return sink_.n_calls(); }
  // The one call that was allowed is complete; what follows would be dropped.
  bool done() const { return sink_.done(); }

 private:
  enum class Stage { kStart, kThoughts, kAnswer };
  void PushAnswer(std::string_view text);
  // Looks for markers in held_; false if it can do no more.
  bool Step(bool last);

  const ThoughtMarks thoughts_;
  const bool apart_;
  PartSink sink_;
  std::unique_ptr<DialectReader> dialect_;  // nullptr: all is content
  Stage stage_ = Stage::kAnswer;
  bool opened_ = false;  // by the prompt: a marker at the beginning repeats it
  std::string held_;
};

}  // namespace weir
