// SPDX-License-Identifier: Apache-2.0
// The rounds of one session: which tokens its model reads between one question and the next.
//
// Appended texts go at the beginning of the next user turn; the question ends that turn. A model without a chat
// template gets plain words instead. A question or answer that was interrupted leaves a turn that can be continued.
//
// Pending words of the template (the system message's, the end of the last answer, the head of a turn) are returned as
// separate tokens if the caller calls Begin() and TurnHead(); otherwise they are encoded together with the next text. A
// tokenizer may merge words across a boundary, so the two ways can give different tokens; a caller must use one of them
// throughout.
#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "chat/question_form.h"
#include "io/json.h"
#include "text/chat_template.h"
#include "text/tokenizer.h"

namespace weir {

// The words of a round that do not come from the template.
struct RoundForm {
  std::string question;  // the form of a question, with kQuestionMark in it
  std::string gap;       // without a template: between an answer and the next round
  // With a template only the question; without one "Question: ... Answer:" on two lines.
  static RoundForm Default(const ChatTemplate* chat);
};

class Conversation {
 public:
  // `chat` may be nullptr. Both must outlive the object.
  Conversation(const Tokenizer& tokenizer, const ChatTemplate* chat)
      : Conversation(tokenizer, chat, RoundForm::Default(chat)) {}
  Conversation(const Tokenizer& tokenizer, const ChatTemplate* chat, RoundForm form);

  // Sets the system message, which is then pending. Call it once, before everything else.
  void SetSystem(std::optional<std::string> system) { system_ = std::move(system); }
  // Sets the system message and returns everything before the first turn as separate tokens.
  std::vector<int32_t> Begin(std::optional<std::string> system);

  // Returns the pending words before the content of the user's turn, encoded together with `text`, the beginning of
  // that content; empty if a turn is open. The caller reads all of them, then calls TurnOpened().
  std::vector<int32_t> TurnHead(std::string_view text = {}, EncodeReport* report = nullptr) const;
  void TurnOpened() { begun_ = turn_open_ = true; }
  // Call after a text (or its beginning) was read as part of the open turn: a blank line will separate the question
  // from it.
  void TextRead() { has_text_ = true; }

  // The end of a turn: the pending words if no turn is open, the question, and the template's words up to the start of
  // the answer. The last n_tail tokens must not be split.
  struct Question {
    std::vector<int32_t> tokens;
    size_t n_tail = 0;
  };
  // `report` (may be nullptr) receives what the tokenizer had to replace or drop.
  Question Ask(const std::string& question, EncodeReport* report = nullptr) const;
  // Call after the question was read; an answer follows.
  void Asked();
  bool turn_open() const { return turn_open_; }
  // Call after the answer: whether its end token was read.
  void Answered(bool end_token_read) { end_token_read_ = end_token_read; }
  // Returns the tokens of an answer that the caller supplies instead of the model, with the end token if the vocabulary
  // has one. REQUIRES: Asked() was the last call.
  std::vector<int32_t> Tell(const std::string& answer);

  // Saves and restores all state except the form. kInvalidArgument if the JSON is not such a state. Save() REQUIRES an
  // earlier Begin() or TurnOpened().
  Json Save() const;
  static Result<Conversation> Restore(const Tokenizer& tokenizer, const ChatTemplate* chat, const Json& saved);

 private:
  // The template's state at the current place in the stream, after all earlier rounds.
  ChatRounds Rounds() const;
  std::vector<TextPiece> SystemWords() const;
  std::vector<TextPiece> Due() const;
  // BOS is pending and not part of the template's words.
  bool adds_special() const { return !begun_ && (chat_ == nullptr || !chat_->includes_bos()); }

  const Tokenizer* tokenizer_;
  const ChatTemplate* chat_;
  RoundForm form_;
  std::optional<std::string> system_;
  bool begun_ = false;           // everything before the first turn was read
  bool turn_open_ = false;       // the turn's head was read
  bool has_text_ = false;        // and part of its content
  bool asked_ = false;           // a turn was ended before
  bool end_token_read_ = false;  // and its answer ended with an end token
};

}  // namespace weir
