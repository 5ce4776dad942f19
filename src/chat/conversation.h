// SPDX-License-Identifier: Apache-2.0
// The rounds of one session: what its model reads between one question and the next.
//
// Texts that are appended stand at the beginning of the next user turn, the question ends it. A model without a chat
// template gets plain words instead. Whatever was cut short (a question, an answer) leaves a turn that can go on.
//
// Words of the template that are due (the system message's, the end of the last answer, the head of a turn) are given
// as tokens of their own where the caller asks for them by Begin() and TurnHead(), and are encoded together with the
// next text otherwise. A tokenizer may join words at a seam, so the two are not always the same tokens; a caller stays
// with one of them.
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

// The words of a round that are not the template's.
struct RoundForm {
  std::string question;  // how a question is put, with kQuestionMark in it
  std::string gap;       // without a template: between an answer and the next round
  // The question alone; without a template "Question: ... Answer:" on two lines.
  static RoundForm Default(const ChatTemplate* chat);
};

class Conversation {
 public:
  // `chat` may be nullptr. Both outlive the object.
  Conversation(const Tokenizer& tokenizer, const ChatTemplate* chat)
      : Conversation(tokenizer, chat, RoundForm::Default(chat)) {}
  Conversation(const Tokenizer& tokenizer, const ChatTemplate* chat, RoundForm form);

  // Once, first of all, where there is a system message: its words are due.
  void SetSystem(std::optional<std::string> system) { system_ = std::move(system); }
  // The same, and what stands before the first turn as tokens of its own.
  std::vector<int32_t> Begin(std::optional<std::string> system);

  // The words that are due before the content of the user's turn; nothing when a turn is open. They are encoded
  // together with `text`, the beginning of that content. The caller has read all of them when it calls TurnOpened().
  std::vector<int32_t> TurnHead(std::string_view text = {}, EncodeReport* report = nullptr) const;
  void TurnOpened() { begun_ = turn_open_ = true; }
  // A text was read (or its beginning) as part of the open turn: a blank line will separate the question from it.
  void TextRead() { has_text_ = true; }

  // What ends a turn: a question and the template's words up to where the answer begins, after the words that are due
  // where no turn is open. The last n_tail tokens belong together.
  struct Question {
    std::vector<int32_t> tokens;
    size_t n_tail = 0;
  };
  // `report` (may be nullptr): what the tokenizer had to replace or leave out.
  Question Ask(const std::string& question, EncodeReport* report = nullptr) const;
  // The question was read; an answer follows.
  void Asked();
  bool turn_open() const { return turn_open_; }
  // How the answer ended.
  void Answered(bool end_token_read) { end_token_read_ = end_token_read; }
  // An answer that the caller gives in the model's place, as tokens, the end token included where the vocabulary has
  // one. REQUIRES: Asked() was the last call.
  std::vector<int32_t> Tell(const std::string& answer);

  // What decides everything above but the form, and back. kInvalidArgument when it cannot be that. REQUIRES of Save():
  // Begin() or TurnOpened() before.
  Json Save() const;
  static Result<Conversation> Restore(const Tokenizer& tokenizer, const ChatTemplate* chat, const Json& saved);

 private:
  // Where the stream stands: rounds that were asked before are behind it.
  ChatRounds Rounds() const;
  std::vector<TextPiece> SystemWords() const;
  std::vector<TextPiece> Due() const;
  // BOS is due, and not part of the template's words.
  bool adds_special() const { return !begun_ && (chat_ == nullptr || !chat_->includes_bos()); }

  const Tokenizer* tokenizer_;
  const ChatTemplate* chat_;
  RoundForm form_;
  std::optional<std::string> system_;
  bool begun_ = false;           // what stands before the first turn was read
  bool turn_open_ = false;       // the turn's head was read
  bool has_text_ = false;        // and something of its content
  bool asked_ = false;           // a turn was ended before
  bool end_token_read_ = false;  // and its answer ended by itself
};

}  // namespace weir
