// The rounds of one stream session: what its model reads between one question and the next.
//
// Texts that are appended stand at the beginning of the next user turn, the question ends it. A model without a chat
// template gets plain words instead. Whatever was cut short (a question, an answer) leaves a turn that can go on.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "io/json.h"
#include "text/chat_template.h"
#include "text/tokenizer.h"

namespace weir {

class Conversation {
 public:
  // `chat` may be nullptr. Both outlive the object.
  Conversation(const Tokenizer& tokenizer, const ChatTemplate* chat);

  // Once, first of all: what stands before the first turn.
  std::vector<int32_t> Begin(const std::optional<std::string>& system);

  // The template's words that open a user turn; nothing when one is open. The caller has read all of them when it calls
  // TurnOpened().
  std::vector<int32_t> TurnHead() const;
  void TurnOpened() { turn_open_ = true; }
  // A text was read (or its beginning) as part of the open turn.
  void TextRead() { has_text_ = true; }

  // What ends a turn: a question and the template's words up to where the answer begins. The last n_tail tokens belong
  // together.
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

  // What decides everything above, and back. kInvalidArgument when it cannot be that.
  Json Save() const;
  static Result<Conversation> Restore(const Tokenizer& tokenizer, const ChatTemplate* chat, const Json& saved);

 private:
  ChatRounds Rounds() const;

  const Tokenizer* tokenizer_;
  const ChatTemplate* chat_;
  std::optional<std::string> system_;
  bool turn_open_ = false;       // the turn's head was read
  bool has_text_ = false;        // and something of its content
  bool asked_ = false;           // a turn was ended before
  bool end_token_read_ = false;  // and its answer ended by itself
};

}  // namespace weir
