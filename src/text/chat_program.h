// SPDX-License-Identifier: Apache-2.0
// A chat template that is run: the Jinja program of a model file, with a conversation as its input and pieces as its
// output. What the template wrote is a piece in which control tokens are recognised; what came with the conversation is
// a piece in which they are not, whatever the template did to it (jinja/text.h).
//
// Roles count as the template's words if they are ones that chats have: templates build control tokens of them
// ('<|' + role + '|>').
//
// A stream is read turn by turn, so the texts around a turn's content must be known without the conversation. They are
// found once, by rendering short samples and taking them apart at their contents.
#pragma once

#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/status.h"
#include "text/tokenizer.h"

namespace weir {

// Longer programs are refused.
inline constexpr int64_t kMaxChatProgramBytes = 1 << 18;
// Whether a text is meant as a program, and not as a format's name.
bool IsChatProgram(std::string_view text);

struct ChatMessage {
  std::string role;  // "system" (first, if at all), "user", "assistant"; ChatML formats and programs take any role
  std::string content;
  std::string more = {};  // further fields as a JSON object (tool_calls, reasoning_content ...), for programs; or empty
};

// A template's words around the content of one user turn.
struct AroundContent {
  std::vector<TextPiece> before, after;
};
// Splits a rendering of one turn around its content. kInternal when the template lost the content.
Result<AroundContent> SplitAtContent(std::span<const TextPiece> pieces, std::string_view content);

// All contents joined: what a Jinja engine would have printed.
std::string JoinPieces(const std::vector<TextPiece>& pieces);

// What a template is given beside the messages, as JSON; empty: nothing.
struct ChatArguments {
  std::string named;  // an object: {"enable_thinking": false}
  std::string tools;  // a list of tools as the OpenAI API describes them
  bool empty() const { return named.empty() && tools.empty(); }
};

// Texts of the vocabulary that a template needs.
struct ChatWords {
  std::string bos, eos;
  std::vector<std::string> ends;  // of tokens that end an answer
};

class ChatProgram {
 public:
  // `defaults`: an object of arguments that every rendering gets, where a request does not say otherwise.
  // kInvalidArgument when the program cannot be read, or does not show what a user says.
  static Result<ChatProgram> Make(std::string_view jinja, ChatWords words, std::string_view defaults);

  Result<std::vector<TextPiece>> Render(const std::vector<ChatMessage>& messages, bool add_generation_prompt,
                                        const ChatArguments& arguments = {}) const;

  // The program reads the name: "tools", "enable_thinking".
  bool Reads(std::string_view name) const;

  // The words before the first turn of a conversation, and those around turns. A template that has no place for a
  // system text gets it in the first turn, before the user's words.
  std::vector<TextPiece> System(const std::optional<std::string>& system) const;
  const AroundContent& first() const { return first_; }    // without a system text
  const AroundContent& opened() const { return opened_; }  // the first turn after one
  const AroundContent& later() const { return later_; }
  // Between an answer and the next turn.
  std::vector<TextPiece> EndAnswer(bool end_token_read) const;

 private:
  struct Parsed;
  ChatProgram() = default;
  void FindForms();
  Status FindTurns();
  Status FindTurnsAfter(bool has_system);

  std::shared_ptr<const Parsed> parsed_;  // the program and its source
  ChatWords words_;
  std::string defaults_;
  int64_t work_ = int64_t{16} << 20;  // jinja::Limits::work, beside what a conversation adds; less for samples
  bool content_parts_ = false;        // contents are lists of parts, as templates for pictures want them
  bool text_arguments_ = false;       // a tool call's arguments are a text, not an object
  bool has_system_ = true;            // the template takes a system message
  std::vector<TextPiece> system_;     // before the first turn, of a conversation without a system text
  AroundContent first_, opened_, later_;
  std::vector<TextPiece> end_, end_after_token_;
};

}  // namespace weir
